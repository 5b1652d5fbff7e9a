"""The forward function over the public forwards and replies; ``tests/benchmarks/forwards_corpus.py`` prints the figures."""

from __future__ import annotations

from pathlib import Path

from tests.forward_cases import Case, cases


def misses(some: list[Case]) -> dict[str, list[str]]:
    """What is not as stated, by kind."""
    wrong: dict[str, list[str]] = {"found": [], "address": [], "body": [], "subject": []}
    for case in some:
        found = case.found()
        stated = {
            "address": (case.address, found.sender.address),
            "body": (case.body, found.body),
            "subject": (case.original_subject, found.subject),
        }
        if found.found != case.forwarded:
            wrong["found"].append(case.path)
        for kind, (expected, given) in stated.items():
            if expected is not None and expected.strip() != (given or "").strip():
                wrong[kind].append(case.path)
    return wrong


def test_public_forwards_are_read_exactly(corpus: Path) -> None:
    """All of them at the time of writing; of 172 addresses the bare library has 151, of 157 bodies 148."""
    forwards = [case for case in cases(corpus) if case.forwarded]
    wrong = misses(forwards)
    assert len(forwards) > 0
    assert len(wrong["found"]) <= 0.02 * len(forwards), wrong
    assert len(wrong["address"]) <= 0.02 * sum(case.address is not None for case in forwards), wrong
    assert len(wrong["body"]) <= 0.04 * sum(case.body is not None for case in forwards), wrong
    assert len(wrong["subject"]) <= 0.04 * sum(case.original_subject is not None for case in forwards), wrong


def test_public_replies_are_not_taken_for_forwards(corpus: Path) -> None:
    """A wrong requester sends work to a wrong client."""
    others = [case for case in cases(corpus) if not case.forwarded]
    assert len(others) > 0
    assert misses(others)["found"] == []
