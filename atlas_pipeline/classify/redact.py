"""Keeping the text of pictures out of what is stored: a model may quote it, against its instructions."""

from __future__ import annotations

import re
import unicodedata

RUN_WORDS = 5
_WORD = re.compile(r"\w+")
_ADDRESS = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)*")
# A number, or the grouped pieces of one; letters before and between them belong to it, as in an IBAN.
_NUMBER = re.compile(r"\b[A-Z]{0,4}\d(?:[ .\u00a0\u202f/-]?[A-Z]{0,2}\d){5,}", re.IGNORECASE)
_SECRET = re.compile(r"\b(?=\w*\d)(?=\w*[^\W\d_])\w{6,}\b")  # letters and digits in one word
_GAP = "[…]"


def redact_ocr(reasoning: str, ocr_text: str, body: str) -> str:
    """The reasoning with ``[…]`` for what it can only have from the OCR text.

    That is every run of five or more words, and every e-mail address or number of six digits or more, that occurs in
    the OCR text and not in ``body`` (hand in the subject with it).
    """
    spans = _quoted_runs(reasoning, ocr_text, body) + _identifiers(reasoning, ocr_text, body)
    redacted = reasoning
    for start, end in reversed(_merged(spans)):
        redacted = redacted[:start] + _GAP + redacted[end:]
    return redacted


def _quoted_runs(reasoning: str, ocr_text: str, body: str) -> list[tuple[int, int]]:
    only_ocr = _runs(_words(ocr_text)) - _runs(_words(body))
    matches = list(_WORD.finditer(reasoning))
    words = [_folded(match.group()) for match in matches]
    return [
        (matches[i].start(), matches[i + RUN_WORDS - 1].end())
        for i in range(len(words) - RUN_WORDS + 1)
        if tuple(words[i : i + RUN_WORDS]) in only_ocr
    ]


def _identifiers(reasoning: str, ocr_text: str, body: str) -> list[tuple[int, int]]:
    """Addresses, numbers and mixed words, compared without what separates or surrounds them."""
    found = []
    for pattern, core in ((_ADDRESS, _folded), (_NUMBER, _joined), (_SECRET, _folded)):
        picture, written = core(ocr_text), core(body)
        for match in pattern.finditer(reasoning):
            identifier = core(match.group()).strip("._-")
            if identifier and identifier in picture and identifier not in written:
                found.append(match.span())
    return found


def _joined(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", _folded(text))


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _words(text: str) -> list[str]:
    return [_folded(word) for word in _WORD.findall(text)]


def _runs(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + RUN_WORDS]) for i in range(len(words) - RUN_WORDS + 1)}


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()
