"""Who wrote, as mail programs show it in a text. Headers have a stricter reader (``headers.py``)."""

from __future__ import annotations

import re

from atlas_pipeline.model import Address
from atlas_pipeline.text import clean_text, one_line

MAX_VALUE_CHARS = 2_000

_LINK = re.compile(r"\[([^\[\]]{0,300})\]\(([^()\s]{0,1000})\)")
_ADDRESS = re.compile(r"[^\s@<>()\[\]\"',;:]{1,64}@[^\s@<>()\[\]\"',;:]{1,255}")


def mailbox(value: str) -> Address:
    """Return name and address as mail programs show them: ``Name <a@b>``, ``Name [mailto:a@b]``, ``a@b (Name)``."""
    shown = _LINK.sub(_shown, value[:MAX_VALUE_CHARS]).replace("mailto:", "")
    found = _ADDRESS.search(shown)
    if found is None:
        return Address(_name(shown) or None, None)
    address = clean_text(found.group()).rstrip(".")
    name = _name(re.split(r"[<\[(]", shown[: found.start()], maxsplit=1)[0])
    if not name and shown[found.end() :].lstrip("> ").startswith("("):
        name = _name(shown[found.end() :].partition("(")[2].partition(")")[0])
    return Address(name if name and name.lower() != address.lower() else None, address)


def _shown(link: re.Match[str]) -> str:
    """Return a link of the HTML as the text it shows, with the address where only the target has it."""
    text, target = link.groups()
    return text if "@" in text or not target.startswith("mailto:") else f"{text} <{target}>"


def _name(text: str) -> str:
    return one_line(text).strip(" \"'\u00ab\u00bb\u201c\u201d\u201e*_,;")
