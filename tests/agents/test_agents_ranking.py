"""Which lesson is told first: near in meaning and alike in words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atlas_pipeline.agents.ranking import best_first

NEAR = {1: ("Une redirection permanente reste en cache.", 0.20), 2: ("Le certificat expire le dimanche.", 0.19)}


def test_words_decide_between_lessons_that_are_about_as_near() -> None:
    assert best_first("la redirection ne marche plus", NEAR, {})[0] == NEAR[1][0]
    assert best_first("le certificat", NEAR, {})[0] == NEAR[2][0]


def test_meaning_decides_where_no_word_is_shared() -> None:
    far = {1: ("Une redirection reste en cache.", 0.1), 2: ("Le certificat expire.", 0.6)}
    assert best_first("xyz 123", far, {})[0] == far[1][0]


def test_without_vectors_the_search_for_words_has_the_say() -> None:
    assert best_first("x", {}, {7: "sept", 3: "trois"}) == ["sept", "trois"]
    assert best_first("x", {}, {}) == []


@given(
    st.text(max_size=50),
    st.dictionaries(st.integers(0, 9), st.tuples(st.text(max_size=30), st.floats(0, 2)), max_size=6),
    st.dictionaries(st.integers(0, 9), st.text(max_size=30), max_size=6),
)
def test_every_lesson_found_is_ranked_once_whatever_it_says(
    about: str, near: dict[int, tuple[str, float]], words: dict[int, str]
) -> None:
    ranked = best_first(about, near, words)
    assert len(ranked) == len({**words, **near})
    assert sorted(ranked) == sorted({**words, **{scar: text for scar, (text, _away) in near.items()}}.values())
