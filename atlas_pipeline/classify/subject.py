"""Reading subjects: reply and forward prefixes in the languages mail programs write them, and Atlas's own summaries."""

from __future__ import annotations

import re

from atlas_pipeline.text import one_line

_FORWARD = r"(?:fwd?|tr|wg|rv|reenv|enc|inoltra|i|doorst|vs|vb|vl|pd|ilt|fs|továbbítás|transf|πρθ|пересл|转发)"
_REPLY = r"(?:re|aw|sv|antw|rif|r|rép|res|odp|ynt|vast|vá)"
# A count in brackets, and the wide colon of Chinese. \s takes in the no-break space that French writes before a colon.
_END = "(?:\\[\\d{1,3}\\])?\\s*[:\uff1a]"
_ANY_PREFIX = re.compile(rf"\s*(?:{_FORWARD}|{_REPLY}){_END}", re.IGNORECASE)
OWN_TAG = "[Atlas]"
_FORWARDED_SUMMARY = re.compile(rf"\s*(?:{_FORWARD}{_END}\s*)+{re.escape(OWN_TAG)}", re.IGNORECASE)


def without_prefixes(subject: str | None) -> str:
    """The subject on one line, without its leading ``Re:``, ``Fwd:``, ``TR :``, ``WG:``…"""
    text = one_line(subject or "")
    while (prefix := _ANY_PREFIX.match(text)) is not None:
        text = text[prefix.end() :].strip()
    return text


def is_forwarded_summary(subject: str | None) -> bool:
    """Whether this is one of Atlas's summaries, forwarded. A reply (``Re:``) is a person's answer and is none."""
    return _FORWARDED_SUMMARY.match(subject or "") is not None
