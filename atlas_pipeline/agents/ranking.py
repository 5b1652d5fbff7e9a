"""Which of the lessons found is the most useful: how near its vector is, and how many rare pieces of words it shares. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Pieces of words bridge inflections, typing errors and the words that French and English share. They count as much as the vector:
# measured by tests/benchmarks/scars.py.
_PIECES = (3, 5)


def best_first(about: str, near: Mapping[int, tuple[str, float]], by_words: Mapping[int, str]) -> list[str]:
    """Lessons, the most useful first. ``near`` has each one's text and distance, ``by_words`` those that a search for words gave.

    Without vectors the search for words has the say.
    """
    texts = {**by_words, **{scar: lesson for scar, (lesson, _away) in near.items()}}
    if not near or len(texts) < 2:
        return list(texts.values())
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    farthest = max(away for _lesson, away in near.values())
    nearness = np.array([-near[scar][1] if scar in near else -farthest for scar in texts])
    vectoriser = TfidfVectorizer(analyzer="char_wb", ngram_range=_PIECES, strip_accents="unicode", sublinear_tf=True)
    try:
        pieces = vectoriser.fit_transform(texts.values())
    except ValueError:  # not one word in any of them
        return [lesson for _away, lesson in sorted(zip(-nearness, texts.values(), strict=True))]
    shared = (pieces @ vectoriser.transform([about]).T).toarray().ravel()
    scores = _levelled(nearness) + _levelled(shared)
    return [lesson for _score, _scar, lesson in sorted(zip(-scores, texts, texts.values(), strict=True))]


def _levelled(values: Any) -> Any:
    """The same with mean 0 and deviation 1, or all 0."""
    spread = values.std()
    return (values - values.mean()) / spread if spread > 1e-9 else values * 0.0
