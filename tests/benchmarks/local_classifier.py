"""How well the local classifier judges, how well it knows how sure to be, and what it costs.

    python -m tests.benchmarks.local_classifier

Grouped cross-validation over the exemplars (variants of one text in one fold), then the mails of ``tests/ai/heldout.yaml``, which
it never learned from: accuracy, macro-F1, expected calibration error over ten bins, and the confusion table. CPU by length, memory.
Asserts nothing.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from atlas_pipeline.ai.fit import validate
from atlas_pipeline.ai.intent_model import exemplars, gist, learn, probabilities
from atlas_pipeline.ai.local import Local

HELD_OUT = Path(__file__).parent.parent / "ai" / "heldout.yaml"
_MAIL = "Bonjour, pourriez-vous changer le numéro de téléphone affiché sur notre site ? Merci et bonne journée. "


def peak_megabytes() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def calibration_error(likely: Any, truth: Any, bins: int = 10) -> float:
    """The mean distance between what was promised and what came true, weighed by how often it was promised."""
    sure, right = likely.max(axis=1), likely.argmax(axis=1) == truth
    error = 0.0
    for number in range(bins):
        inside = (sure > number / bins) & (sure <= (number + 1) / bins)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    return error


def told(name: str, intents: Sequence[str], likely: Any, truth: Any) -> None:
    """The figures and the table of one set."""
    found = likely.argmax(axis=1)
    table = np.zeros((len(intents), len(intents)), dtype=int)
    for true, said in zip(truth, found, strict=True):
        table[true, said] += 1
    hits = np.diag(table)
    f1 = np.mean(2 * hits / np.maximum(table.sum(axis=0) + table.sum(axis=1), 1))
    sure = likely.max(axis=1) >= 0.7
    print(
        f"\n{name}: {len(truth)} texts, accuracy {hits.sum() / len(truth):.3f}, macro-F1 {f1:.3f}, "
        f"calibration error {calibration_error(likely, truth):.3f}; "
        f"{sure.mean():.0%} at 0.7 or more, of these {(found == truth)[sure].mean():.1%} right"
    )
    print(f"{'is / said':<14}" + "".join(f"{intent:>13}" for intent in intents))
    for intent, row in zip(intents, table, strict=True):
        print(f"{intent:<14}" + "".join(f"{count:>13}" for count in row))


def main() -> None:
    """Validate, judge, time."""
    local = Local()
    local.vector("warm")
    started = time.process_time()
    local._intents.judge(_MAIL)
    print(f"training at the first judgement: {time.process_time() - started:.1f} s CPU")
    for characters in (60, 100, 200, 400, 2_000, 50_000):
        text = (_MAIL * 600)[:characters]
        local._intents.judge(text)
        started = time.process_time()
        for _ in range(5):
            local._intents.judge(text)
        print(f"a mail of {characters:>6} characters: {(time.process_time() - started) / 5 * 1000:.0f} ms CPU")
    print(f"peak memory: {peak_megabytes():.0f} MB")

    pairs = [(intent, text) for intent, texts in exemplars().items() for text in texts]
    texts, intents = [text for _, text in pairs], [intent for intent, _ in pairs]
    vectors = np.array([local.vector(gist(text)) for text in texts])
    found = validate(texts, vectors, intents)
    told("cross-validation", found.intents, found.likely, found.truth)

    held = yaml.safe_load(HELD_OUT.read_text("utf-8"))
    unseen = [(intent, text) for intent, some in held.items() for text in some]
    learned = learn(texts, vectors, intents)
    rows = learned.features([text for _, text in unseen], [local.vector(gist(text)) for _, text in unseen])
    likely = probabilities(learned.scores(rows), found.temperature)
    told("held out", found.intents, likely, np.array([found.intents.index(intent) for intent, _ in unseen]))


if __name__ == "__main__":
    main()
