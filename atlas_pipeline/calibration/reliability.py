"""Reliability: what the classifier said of its own certainty, against what people then decided.

A decision is judged by the order that was given while it stood, that is, before the message was classified anew:

    atlas correct KEY INTENT   the model was right where it had concluded that intent itself
    atlas accept KEY           the decision's intent was right
    atlas cancel KEY           the decision's intent was wrong; what would have been right is not known

A correction outweighs the other two. The confidence is the model's in its own conclusion, so that is what is judged, not what the
guards made of it; where a guard's intent was cancelled, nothing is known of the model's. Drafts that nobody decided are no outcome,
and rules (``rule/…``) state no confidence. An outcome counts for the month of the decision, however late it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from atlas_pipeline.calibration.rates import Rate, brier, calibration_error, rate, rounded

BINS = 10


@dataclass(frozen=True)
class Bin:
    """Judged decisions whose confidence lies from ``low`` up to ``high`` (the last one's included)."""

    low: float
    high: float
    mean_confidence: float | None
    right: Rate


@dataclass(frozen=True)
class Reliability:
    """All judged decisions of the month. ``error`` is the expected calibration error over ten bins of equal width."""

    right: Rate
    error: float | None
    brier: float | None
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class Confusion:
    """So many decisions said ``said`` and meant ``meant``, by an ``operator`` (`atlas correct`) or the ``agent``'s contract."""

    source: str
    said: str
    meant: str
    count: int


def reliability(rows: Sequence[Mapping[str, Any]]) -> Reliability:
    """Put rows of ``bin`` (1 to 10), ``judged``, ``correct``, ``confidence`` (sum) and ``squares`` (sum) together."""
    sums = [(0, 0, Decimal(0))] * BINS
    squares = Decimal(0)
    for row in rows:
        judged, right, total = sums[row["bin"] - 1]
        sums[row["bin"] - 1] = (judged + row["judged"], right + row["correct"], total + row["confidence"])
        squares += row["squares"]
    judged, right = sum(one[0] for one in sums), sum(one[1] for one in sums)
    return Reliability(
        right=rate(right, judged),
        error=calibration_error(sums),
        brier=brier(judged, squares),
        bins=tuple(
            Bin(place / BINS, (place + 1) / BINS, rounded(total / count) if count else None, rate(correct, count))
            for place, (count, correct, total) in enumerate(sums)
        ),
    )
