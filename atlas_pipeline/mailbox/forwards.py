"""The mail inside a forward. What stands there is the forwarder's claim, never proof.

The library behind it knows the labels of some twenty languages, and is fed bounded text: 20 kB of blank lines kept it
busy for 80 seconds. Confidence, by what was found (``confidence`` of ``Forward``):

    0.95  an attached mail
    0.90  a block with an address, under a subject that says forward
    0.80  a block with an address, where the subject says nothing
    0.50  the plain text and the HTML name different senders
    0.40  a block with a name only

Not here: what the requester may do (``trust.py``).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace

from emailforwardparser.forward_parser import ForwardMetadata, get_forwarded_metadata

from atlas_pipeline.mailbox import headers
from atlas_pipeline.mailbox.html import html_to_text
from atlas_pipeline.mailbox.mime import read_content
from atlas_pipeline.mailbox.tree import read
from atlas_pipeline.model import Address, Forward, Part
from atlas_pipeline.text import clean_text, one_line

MAX_BODY_CHARS = 200_000
WINDOW_CHARS = 40_000
MAX_LINE_CHARS = 400

_REPLY = re.compile(r"\s*(?:re|aw|sv|antw|rép|rep|ré|odp|ynt|r|vá|ref)\s*(?:\[\d+\])?\s*:", re.IGNORECASE)
_FORWARD = re.compile(
    r"\s*(?:fwd?|tr|wg|rv|vs|i|pd|enc|redir\.?|vb|vl|videresend|İlt|doorst|transf)\s*(?:\[\d+\])?\s*:\s*", re.IGNORECASE
)
# A line that only a forward has, whatever its subject says (French and English; the library knows the others).
_EXPLICIT = re.compile(
    r"^[> ]*(?:-{5,} ?(?:forwarded message|message transféré|message réexpédié) ?-{5,}"
    r"|begin forwarded message ?:|début du message (?:transféré|réexpédié) ?:)",
    re.IGNORECASE | re.MULTILINE,
)
_SEPARATOR_LINE = re.compile(r"^[> ]*(?:-{5,} ?[^-\n]{3,60} ?-{5,}|_{20,})$", re.MULTILINE)
_RULE = re.compile(r"^([> ]*)_{20,}$", re.MULTILINE)
_LABEL = re.compile(r"\s*\n(?:[> ]*\n)?[> *]*[^\W\d_][^:\n]{0,20}:", re.MULTILINE)
_PLAUSIBLE = re.compile(r"[^\s@<>\"]{1,64}@[^\s@<>\"]{1,255}")


def find_forward(subject: str | None, body_text: str, body_html: str | None, parts: Sequence[Part]) -> Forward:
    """Find the original mail: attached, in the plain text, or in the HTML; else ``found`` is False. Never raises."""
    attached = _attached(subject, parts)
    if attached is not None:
        return attached
    plain = _inline(subject, body_text, "inline_text")
    if not body_html or "@" not in body_html:
        return plain or Forward(found=False)
    html = _inline(subject, html_to_text(body_html)[0], "inline_html")
    if plain is None or html is None:
        return plain or html or Forward(found=False)
    if plain.sender.address and html.sender.address and plain.sender.address.lower() != html.sender.address.lower():
        return replace(plain, confidence=0.5)
    return plain if plain.sender.address else html


def _attached(subject: str | None, parts: Sequence[Part]) -> Forward | None:
    """Read the first attached mail; a reply that carries one is an answer with an enclosure, not a forward."""
    part = next((part for part in parts if part.sniffed_type == "message/rfc822" and part.content), None)
    if part is None or _is_reply(subject):
        return None
    try:
        message = read(part.content)
        content = read_content(part.content, message)
    except RecursionError:
        return None
    found, _ = headers.fields(message.raw_items())
    senders = headers.addresses(headers.values(found, "from"))
    if not senders:
        return None
    return Forward(
        found=True,
        method="attachment",
        confidence=0.95,
        sender=senders[0],
        subject=headers.decoded(headers.first(found, "subject") or "") or None,
        date=headers.decoded(headers.first(found, "date") or "") or None,
        body=content.body_text,
    )


def _is_reply(subject: str | None) -> bool:
    return bool(subject and _REPLY.match(subject))


def _says_forward(subject: str | None) -> bool:
    return bool(subject and _FORWARD.match(subject))


def _inline(subject: str | None, text: str, method: str) -> Forward | None:
    if not text.strip() or (_is_reply(subject) and not _EXPLICIT.search(text[:MAX_BODY_CHARS])):
        return None
    masked = _Masked(text[:MAX_BODY_CHARS])
    hint = "Fwd: " + _FORWARD.sub("", one_line(subject or ""), count=1) if _says_forward(subject) else None
    answer = _ask(masked.text, hint.replace("=?", "= ?") if hint else None)
    if answer is None:
        return None
    original = answer.email
    name, address = one_line(masked.restored(original.from_.name)), original.from_.address.strip()
    address = address if _PLAUSIBLE.fullmatch(address) else ""
    if not name and not address:
        return None
    return Forward(
        found=True,
        method=method,
        confidence=0.4 if not address else 0.9 if hint else 0.8,
        sender=Address(name or None, clean_text(address) or None),
        subject=one_line(masked.restored(original.subject)) or None,
        date=one_line(masked.restored(original.date)) or None,
        body=clean_text(masked.restored(original.body) + masked.rest),
    )


def _ask(text: str, hint: str | None) -> ForwardMetadata | None:
    """Ask the library; None when it finds nothing or breaks on the text (it indexes what it did not check)."""
    try:
        answer = get_forwarded_metadata(text, hint)
    except Exception:  # noqa: BLE001  # regular expressions over hostile text: a mail that breaks them is simply no forward
        return None
    return answer if answer.forwarded else None


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
        text = re.sub(r"(?:[> ]*\n){3,}", "\n\n", text) if ">" not in text else re.sub(r"\n{3,}", "\n\n", text)
        text = re.sub(r"[ \t]{6,}", "     ", text)
        text, self.rest = self._window(text)
        text = _RULE.sub(self._only_before_labels, text)
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
