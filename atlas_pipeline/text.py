"""The one door for text from outside: what PostgreSQL, JSON and SMTP refuse is taken out here.

Here: functions on strings and JSON values. Not here: decoding bytes (``mailbox/text.py``), cutting prompts.
The bytes of a mail never pass through this; they are kept as received.
"""

from __future__ import annotations

import math
import re

_SURROGATE = re.compile("[\ud800-\udfff]")
# C0 and C1 controls (tab, line feed and carriage return among them), and the two Unicode line separators.
_LINE_BREAKING = re.compile("[\x00-\x20\x7f-\x9f\u2028\u2029]+")
# What is there and not seen, or shows the text after it in another order: soft hyphen, zero width, direction marks, tags. The
# joiners of emoji and of some scripts are not among them.
_HIDDEN = re.compile("[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")


def clean_text(value: str) -> str:
    """Return text that UTF-8 and PostgreSQL accept: NUL removed, lone surrogates replaced by U+FFFD.

    A high and a low surrogate that stand together (JSON's way of writing an emoji) become the character they mean.
    """
    if "\x00" in value:
        value = value.replace("\x00", "")
    if _SURROGATE.search(value):
        value = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def one_line(value: str) -> str:
    """Return clean text on one line: every control character and line separator is a space, runs of them are one.

    What came from a subject or a file name ends up in headers and log-like columns; a line break there is an injection.
    """
    if value.isprintable() and "  " not in value:  # nothing to replace: the case of nearly every header
        return value.strip()
    return clean_text(_LINE_BREAKING.sub(" ", value)).strip()


def visible(value: str) -> str:
    """Return one line to show to a person: what would hide or turn text around is written out, as ``<U+202E>``.

    ``invoice<U+202E>fdp.exe`` would otherwise be read as a PDF's name.
    """
    return _HIDDEN.sub(lambda found: f"<U+{ord(found[0]):04X}>", one_line(value))


def clean_json(value: object) -> object:
    """Return a JSON value with every string cleaned, keys too; NaN and infinities, which jsonb refuses, become None."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {clean_text(key) if isinstance(key, str) else key: clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_json(item) for item in value]
    return value
