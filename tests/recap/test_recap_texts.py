"""The texts of the main recaps, word for word: whoever changes one sees what the team will read."""

from __future__ import annotations

import pytest

from tests.recap_cases import TEXTS, texts


@pytest.mark.parametrize("file", sorted(texts()))
def test_a_recap_reads_as_it_was_agreed(file: str) -> None:
    """After a change on purpose ``python -m tests.recap_cases`` writes them anew."""
    assert texts()[file] == (TEXTS / file).read_text("utf-8")


def test_no_text_is_left_over() -> None:
    assert sorted(path.name for path in TEXTS.iterdir()) == sorted(texts())
