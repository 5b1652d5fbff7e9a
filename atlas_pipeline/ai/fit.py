"""Make ``exemplar_vectors.npz`` after the exemplars changed: their vectors, and the temperature that calibrates.

    python -m atlas_pipeline.ai.fit     (prints what cross-validation says; about a minute)

Texts that are translations or variants of each other stay in one fold, or the folds would flatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlas_pipeline.ai.intent_model import digest, exemplars, gist, learn, probabilities
from atlas_pipeline.ai.local import Local

FOLDS = 10
# Cosine from which two exemplars count as variants of one.
_VARIANTS = 0.92
_STEPS = np.exp(np.linspace(-2.0, 2.5, 200))


@dataclass(frozen=True)
class Validated:
    """What each exemplar's fold said of it: scores by class, and the temperature under which they are likeliest."""

    intents: tuple[str, ...]
    truth: Any
    scores: Any
    temperature: float

    @property
    def likely(self) -> Any:
        """Probabilities, one row an exemplar."""
        return probabilities(self.scores, self.temperature)


def groups_of(vectors: Any) -> list[int]:
    """One number for all variants of a text, found by their vectors' cosines, transitively."""
    parents = list(range(len(vectors)))

    def root(item: int) -> int:
        while parents[item] != item:
            item = parents[item]
        return item

    near = vectors @ vectors.T > _VARIANTS
    for one, other in zip(*np.nonzero(np.triu(near, 1)), strict=True):
        parents[root(int(one))] = root(int(other))
    return [root(item) for item in range(len(vectors))]


def validate(texts: Sequence[str], vectors: Any, intents: Sequence[str]) -> Validated:
    """Judge each text by a model that learned from the other folds."""
    from sklearn.model_selection import GroupKFold

    classes = tuple(sorted(set(intents)))
    truth = np.array([classes.index(intent) for intent in intents])
    scores = np.zeros((len(texts), len(classes)))
    for known, asked in GroupKFold(FOLDS).split(texts, truth, groups_of(vectors)):
        learned = learn([texts[i] for i in known], vectors[known], [intents[i] for i in known])
        scores[asked] = learned.scores(learned.features([texts[i] for i in asked], vectors[asked]))

    def surprise(temperature: float) -> float:
        return float(-np.log(probabilities(scores, temperature)[np.arange(len(truth)), truth] + 1e-12).mean())

    return Validated(classes, truth, scores, float(min(_STEPS, key=surprise)))


def main() -> None:
    """Embed, validate, write."""
    local = Local()
    pairs = [(intent, text) for intent, found in exemplars().items() for text in found]
    texts, intents = [text for _, text in pairs], [intent for intent, _ in pairs]
    vectors = np.array([local.vector(gist(text)) for text in texts], dtype=np.float16)
    found = validate(texts, vectors.astype(np.float64), intents)
    right = float((found.likely.argmax(axis=1) == found.truth).mean())
    file = Path(__file__).with_name("exemplar_vectors.npz")
    np.savez_compressed(
        file, digests=np.array([digest(text) for text in texts]), vectors=vectors, temperature=found.temperature
    )
    print(f"{len(texts)} exemplars, {FOLDS} folds: {right:.3f} right, temperature {found.temperature:.2f}")


if __name__ == "__main__":
    main()
