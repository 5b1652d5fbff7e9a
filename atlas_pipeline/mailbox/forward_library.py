"""The forward library, fed with text that it can bear: it knows the separators of some twenty languages.

It breaks on texts that it did not expect, and its patterns are cubic in a line: 20 kB of blank lines kept it busy for
80 seconds. Not here: blocks of labels on lines of their own (``forward_blocks.py``), which are read without it.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field

from emailforwardparser.forward_parser import ForwardMetadata, get_forwarded_metadata

from atlas_pipeline.model import Address
from atlas_pipeline.text import clean_text, one_line

WINDOW_CHARS = 40_000
MAX_LINE_CHARS = 400

_SEPARATOR_LINE = re.compile(r"^[> ]*(?:-{5,} ?[^-\n]{3,60} ?-{5,}|_{20,})$", re.MULTILINE)
_RULE = re.compile(r"^([> ]*)_{20,}$", re.MULTILINE)
_LABEL = re.compile(r"\s*\n(?:[> ]*\n)?[> *]*[^\W\d_][^:\n]{0,20}:", re.MULTILINE)
_PLAUSIBLE = re.compile(r"[^\s@<>\"]{1,64}@[^\s@<>\"]{1,255}")


@dataclass(frozen=True)
class Answer:
    """What the library found: a mail whose sender has an address, or a name at least."""

    sender: Address
    subject: str | None = field(repr=False)
    date: str | None
    body: str = field(repr=False)


def ask(text: str, subject: str | None) -> Answer | None:
    """Ask for the original mail; ``subject`` is what follows a forward's prefix, None where there is no such prefix.

    Raises nothing: a mail that breaks the library is no forward.
    """
    masked = _Masked(text)
    hint = None if subject is None else "Fwd: " + subject.replace("=?", "= ?")
    answer = _asked(masked.text, hint)
    if answer is None:
        return None
    if not answer.email.from_.address and answer.message:
        # It looks for who wrote the separator's line at the very beginning only: show it what begins there.
        above = masked.text.find(answer.message) + len(answer.message)
        answer = _asked(masked.text[above:].strip(), hint) or answer
    original = answer.email
    name, address = one_line(masked.restored(original.from_.name)), original.from_.address.strip()
    address = address if _PLAUSIBLE.fullmatch(address) else ""
    if not name and not address:
        return None
    return Answer(
        sender=Address(name or None, clean_text(address) or None),
        subject=one_line(masked.restored(original.subject)) or None,
        date=one_line(masked.restored(original.date)) or None,
        body=clean_text(masked.restored(original.body) + masked.rest),
    )


def _asked(text: str, hint: str | None) -> ForwardMetadata | None:
    try:
        answer = get_forwarded_metadata(text, hint)
    except Exception:  # noqa: BLE001  # regular expressions over hostile text: it indexes what it did not check
        return None
    return answer if answer.forwarded else None


def _without_gaps(text: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", text) if ">" in text else re.sub(r"(?:[> ]*\n){3,}", "\n\n", text)


class _Masked:
    """Text as the library can bear it; ``restored`` gives an answer its long lines back, ``rest`` was not shown.

    Long lines and encoded words become tokens, since the library's patterns are cubic in a line, and it decodes the
    latter; blank lines and spaces are collapsed; of two equal separators the first counts (it would take the last).
    """

    def __init__(self, text: str) -> None:
        self._token = f"zq{secrets.token_hex(4)}"
        self._long: list[str] = []
        text = text.replace("\r\n", "\n").replace("\ufeff", "").replace("\xa0", " ").replace("\u202f", " ")
        text = re.sub(r"[ \t\f\v]+$", "", text, flags=re.MULTILINE)
        text = _without_gaps(text)
        text = re.sub(r"[ \t]{6,}", "     ", text)
        text, self.rest = self._window(text)
        text = _without_gaps(_RULE.sub(self._only_before_labels, text))
        self.text = "\n".join(self._mask(line) for line in text.split("\n")).replace("=?", f"{self._token}w")

    def _window(self, text: str) -> tuple[str, str]:
        separators: set[str] = set()
        end = min(len(text), WINDOW_CHARS)
        for match in _SEPARATOR_LINE.finditer(text, 0, end):
            line = match.group().strip("> ")
            if line in separators and _LABEL.match(text, match.end()):
                end = match.start()
                break
            separators.add(line)
        return text[:end], text[end:]

    def _only_before_labels(self, rule: re.Match[str]) -> str:
        """Outlook's rule stands before From, Sent, To; before a confidentiality notice it is no separator."""
        return rule.group(1) + "_" * 32 if _LABEL.match(rule.string, rule.end()) else rule.group(1)

    def _mask(self, line: str) -> str:
        if len(line) <= MAX_LINE_CHARS:
            return line
        self._long.append(line)
        return f"{self._token}x{len(self._long) - 1}x"

    def restored(self, text: str) -> str:
        """Return a piece of the answer with the long lines in their place."""
        text = text.replace(f"{self._token}w", "=?")
        return re.sub(f"{self._token}x(\\d+)x", lambda found: self._long[int(found.group(1))], text)
