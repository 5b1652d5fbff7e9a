"""Drift: how far a month's mix of intents and confidences is from that of the three months before it.

Above 0.25 a distribution is usually called changed, above 0.1 moved (Siddiqi 2006). Both borders are raised to what chance alone
brings about in samples of these sizes. Below thirty cases on either side nothing is concluded; a first month has nothing behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atlas_pipeline.calibration.rates import stability, stability_by_chance
from atlas_pipeline.calibration.reliability import BINS

ENOUGH = 30
MOVED, CHANGED = 0.1, 0.25
INTENTS = ("run", "chantier", "question", "noise", "negociation", "conseil")
TENTHS = tuple(str(number) for number in range(1, BINS + 1))


@dataclass(frozen=True)
class Shift:
    """One distribution. ``level`` is ``too_few``, ``stable``, ``moved`` or ``changed``; ``chance`` what chance alone may bring."""

    cases: int
    cases_before: int
    index: float | None
    chance: float | None
    level: str


@dataclass(frozen=True)
class Drift:
    """The month beside the three before it. ``new_models`` and ``new_prompts`` decided now and not then, ``gone_…`` the reverse.

    ``explained`` says that a model or prompt did change: then a shift is news of that change. Without one it is news of the mail.
    """

    intents: Shift
    confidence: Shift
    new_models: tuple[str, ...]
    gone_models: tuple[str, ...]
    new_prompts: tuple[str, ...]
    gone_prompts: tuple[str, ...]
    explained: bool


def drift(rows: Sequence[Mapping[str, Any]]) -> Drift:
    """Compare rows of ``current`` (of the month, or of those before it), ``intent``, ``bin``, ``model``, ``prompt_version``, ``n``.

    ``bin`` is None for a rule's decision, which states no confidence and is nobody's model or prompt.
    """
    now, before = _Side(rows, current=True), _Side(rows, current=False)
    known = bool(before.models)
    return Drift(
        intents=_shift(now.intents, before.intents, INTENTS),
        confidence=_shift(now.tenths, before.tenths, TENTHS),
        new_models=_beyond(now.models, before.models) if known else (),
        gone_models=_beyond(before.models, now.models) if now.models else (),
        new_prompts=_beyond(now.prompts, before.prompts) if known else (),
        gone_prompts=_beyond(before.prompts, now.prompts) if now.models else (),
        explained=known and bool(now.models) and (now.models != before.models or now.prompts != before.prompts),
    )


class _Side:
    """One side's histograms and who decided."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], *, current: bool) -> None:
        mine = [row for row in rows if row["current"] is current]
        judged = [row for row in mine if row["bin"] is not None]
        self.intents = _histogram((row["intent"], row["n"]) for row in mine)
        self.tenths = _histogram((str(row["bin"]), row["n"]) for row in judged)
        self.models = {str(row["model"]) for row in judged}
        self.prompts = {str(row["prompt_version"]) for row in judged}


def _histogram(counted: Iterable[tuple[str, int]]) -> Counter[str]:
    found = Counter[str]()
    for name, count in counted:
        found[name] += count
    return found


def _beyond(these: set[str], those: set[str]) -> tuple[str, ...]:
    return tuple(sorted(these - those))


def _shift(now: Counter[str], before: Counter[str], bins: Sequence[str]) -> Shift:
    cases, cases_before = now.total(), before.total()
    index = stability(now, before, bins)
    if index is None or min(cases, cases_before) < ENOUGH:
        return Shift(cases, cases_before, index, None, "too_few")
    chance = stability_by_chance(cases, cases_before, len(bins))
    level = "changed" if index > max(CHANGED, chance) else "moved" if index > max(MOVED, chance) else "stable"
    return Shift(cases, cases_before, index, chance, level)
