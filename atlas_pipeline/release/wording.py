"""Sentences of checks: bounded, on one line, and told apart from mere notes.

A note is something worth seeing that fails nothing (a third party's script was blocked, a screenshot could not be
taken). It travels in ``RouteCheck.errors`` with a prefix; ``problems`` leaves it out.
"""

from __future__ import annotations

from http import HTTPStatus

from atlas_pipeline.model import QaResult, RouteCheck

NOTE = "note: "
SENTENCE_CHARACTERS = 300


def one_line(text: str, limit: int = SENTENCE_CHARACTERS) -> str:
    """The text without line breaks and control characters, at most ``limit`` characters."""
    # Cut first: the text comes from a page and may be megabytes.
    flat = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: limit * 4]).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def note(text: str) -> str:
    """A sentence that fails nothing."""
    return NOTE + one_line(text)


def problems(check: RouteCheck) -> tuple[str, ...]:
    """The sentences of a check that are no notes."""
    return tuple(sentence for sentence in check.errors if not sentence.startswith(NOTE))


def problems_of(result: QaResult | None) -> list[str]:
    """The sentences that failed the checks of a report, each once, in their order."""
    return list(dict.fromkeys(one for check in result.checks for one in problems(check))) if result else []


def notes_of(result: QaResult | None) -> list[str]:
    """The notes of a report without their prefix, each once, in their order."""
    sentences = [sentence for check in result.checks for sentence in check.errors] if result else []
    return list(dict.fromkeys(one.removeprefix(NOTE) for one in sentences if one.startswith(NOTE)))


def answered(status: int) -> str:
    """``500 Internal Server Error``, or the bare number where it has no name."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
