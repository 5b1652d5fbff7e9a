"""The specification's metrics of one month, as pure functions of counts.

Rates whose denominator is zero are None: a month without cases has no rate, neither a good nor a bad one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

GATE_RATE, GATE_JOBS = 0.90, 30
_KIND_OF_INTENT = {
    "run": "runs",
    "chantier": "chantiers",
    "question": "questions",
    "negociation": "negociations",
    "conseil": "conseils",
}


@dataclass(frozen=True)
class IntentFigures:
    """One intent's month. ``deviation`` is the sample standard deviation, None below two cases."""

    intent: str
    volume: int
    mean_confidence: float | None
    deviation: float | None
    drafts: int
    cancelled: int
    success: float | None


@dataclass(frozen=True)
class Gate:
    """Whether the next phase is earned: success above 90 % over at least 30 internal jobs. ``interval`` is Wilson's, 95 %."""

    jobs: int
    kept: int
    rate: float | None
    interval: tuple[float, float] | None
    earned: bool


@dataclass(frozen=True)
class Metrics:
    """The report's numbers."""

    month: str
    classifications: int
    intents: tuple[IntentFigures, ...]
    uncertain: int
    uncertainty_rate: float | None
    failed: int
    blocked: int
    gate: Gate

    def as_json(self) -> dict[str, Any]:
        """Plain values, the same bytes for the same rows."""
        return asdict(self)


def compute(
    month: str,
    *,
    volumes: Sequence[Mapping[str, Any]],
    drafts: Mapping[str, tuple[int, int]],
    audits: Mapping[str, int],
    internal: tuple[int, int],
) -> Metrics:
    """Combine the month's counts. ``volumes`` has a row an intent; ``drafts`` maps a table to (generated, cancelled)."""
    by_intent = {row["intent"]: row for row in volumes}
    names = sorted(set(by_intent) | {intent for intent, kind in _KIND_OF_INTENT.items() if drafts.get(kind, (0, 0))[0]})
    intents = tuple(
        _intent(name, by_intent.get(name), drafts.get(_KIND_OF_INTENT.get(name, ""), (0, 0))) for name in names
    )
    total = sum(figures.volume for figures in intents)
    uncertain = sum(int(row["uncertain"]) for row in volumes)
    return Metrics(
        month=month,
        classifications=total,
        intents=intents,
        uncertain=uncertain,
        uncertainty_rate=rate(uncertain, total),
        failed=audits.get("intake_failed", 0),
        blocked=audits.get("blocked_unsafe", 0),
        gate=gate(*internal),
    )


def _intent(name: str, row: Mapping[str, Any] | None, drafts: tuple[int, int]) -> IntentFigures:
    generated, cancelled = drafts
    return IntentFigures(
        intent=name,
        volume=int(row["volume"]) if row else 0,
        mean_confidence=_rounded(row["mean"]) if row else None,
        deviation=_rounded(row["deviation"]) if row else None,
        drafts=generated,
        cancelled=cancelled,
        success=rate(generated - cancelled, generated),
    )


def gate(jobs: int, kept: int) -> Gate:
    """The point value decides, as the specification writes it; the interval is printed beside it."""
    value = rate(kept, jobs)
    earned = jobs >= GATE_JOBS and jobs > 0 and kept / jobs > GATE_RATE
    return Gate(jobs=jobs, kept=kept, rate=value, interval=wilson(kept, jobs), earned=earned)


def rate(part: int, whole: int) -> float | None:
    """A proportion rounded to four places, or None over nothing."""
    return _rounded(part / whole) if whole else None


def wilson(successes: int, trials: int, z: float = 1.959964) -> tuple[float, float] | None:
    """Wilson's score interval (Wilson 1927), 95 % by default; None without trials."""
    if not trials:
        return None
    share, square = successes / trials, z * z
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    half = z * sqrt(share * (1 - share) / trials + square / (4 * trials * trials)) / (1 + square / trials)
    return round(max(0.0, centre - half), 4), round(min(1.0, centre + half), 4)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 4)
