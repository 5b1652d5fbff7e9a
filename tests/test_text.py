"""What is shown to people of text from outside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_pipeline.text import visible


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("facture.pdf", "facture.pdf"),
        ("invoice\u202efdp.exe", "invoice<U+202E>fdp.exe"),
        ("a\u200bb\u00adc\ufeffd", "a<U+200B>b<U+00AD>c<U+FEFF>d"),
        ("tag\U000e0041", "tag<U+E0041>"),
        ("\u2066x\u2069\x1b[2J\r\ny\x00", "<U+2066>x<U+2069> [2J y"),
        ("👩\u200d💻 می\u200cخواهم", "👩\u200d💻 می\u200cخواهم"),
        ("", ""),
    ],
)
def test_what_hides_or_turns_a_name_around_is_written_out(name: str, shown: str) -> None:
    assert visible(name) == shown


@given(st.text())
def test_no_name_keeps_a_direction_mark_or_a_line_break(name: str) -> None:
    assert not set(visible(name)) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\r\n\x1b\x00\u2028"
    )
