"""The bare text of a mail, for models that read no prompt: what was asked, without what mail programs add."""

from __future__ import annotations

import re

from atlas_pipeline.classify.facts import ClassifyFacts
from atlas_pipeline.classify.subject import without_prefixes
from atlas_pipeline.model import Forward
from atlas_pipeline.text import clean_text

_HEADER = re.compile(
    r"[>\s*]*(?:from|de|von|to|à|an|sent|envoyé|gesendet|date|datum|subject|objet|betreff|cc|reply-to)[*\s]*:",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(
    r"[>\s]*(?:[-_]{4,}|begin forwarded message|début du message (?:réexpédié|transféré)|message transféré)",
    re.IGNORECASE,
)
_QUOTE_INTRODUCTION = re.compile(r"(?:le|on|am)\b.{3,160}\b(?:a écrit|wrote|schrieb.{0,60})\s*:\s*", re.IGNORECASE)


def document_of(facts: ClassifyFacts) -> str:
    """Subject, body and OCR text. Of a forward: what the forwarder wrote above it, then the original's body."""
    forward = facts.forward
    subject = without_prefixes((forward.subject if forward.found else None) or facts.subject)
    # A rule that forwards leaves the mail as it was: there is nothing above it.
    inner = forward.body if forward.found and forward.method != "automatic" else None
    body = f"{_before_forward(facts.body_text)}\n{inner}" if inner else _own_words(facts.body_text)
    return clean_text("\n".join(part for part in (subject, body.strip(), facts.ocr_text.strip()) if part))


def whole_body(body_text: str, forward: Forward) -> str:
    """The body as received; below it the original of a mail that was forwarded as an attachment."""
    original = (forward.body or "").strip()
    if not original or _squeezed(original[:200]) in _squeezed(body_text):
        return body_text
    return f"{body_text.rstrip()}\n\n{original}".lstrip()


def _before_forward(body: str) -> str:
    kept: list[str] = []
    for line in body.splitlines():
        if _HEADER.match(line) or _SEPARATOR.match(line):
            break
        kept.append(line)
    return "\n".join(kept)


def _own_words(body: str) -> str:
    """The body without quoted lines and signature; all of it where nothing else would be left."""
    kept: list[str] = []
    for line in body.splitlines():
        if line.rstrip() == "--":
            break
        if not line.startswith(">") and not _QUOTE_INTRODUCTION.fullmatch(line.strip()):
            kept.append(line)
    own = "\n".join(kept)
    return own if own.strip() else body


def _squeezed(text: str) -> str:
    return "".join(text.split())
