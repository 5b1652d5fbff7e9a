"""Proportions with their intervals, calibration errors, and the distance of two distributions. Pure, and exact where it can be.

Sources: Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927); Brier, "Verification of
forecasts expressed in terms of probability", Monthly Weather Review 78 (1950); Naeini, Cooper, Hauskrecht, "Obtaining well
calibrated probabilities using Bayesian binning", AAAI 2015 (expected calibration error); Siddiqi, "Credit Risk Scorecards" (2006)
and Yurdakul, "Statistical properties of population stability index", Western Michigan University (2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import log, sqrt

_Z = 1.959964  # the normal distribution's 97.5 % quantile: both tails together 5 %
# Added to every bin of both distributions: an empty bin would make their distance infinite.
_SMOOTHING = 0.5
# 95 % quantiles of chi squared, by degrees of freedom: six intents have 5, ten tenths of confidence 9.
_CHI_SQUARED = {1: 3.841, 2: 5.991, 3: 7.815, 4: 9.488, 5: 11.070, 6: 12.592, 7: 14.067, 8: 15.507, 9: 16.919}


@dataclass(frozen=True)
class Rate:
    """``part`` of ``whole``; ``value`` and Wilson's 95 % interval ``low`` to ``high``, all None over nothing."""

    part: int
    whole: int
    value: float | None
    low: float | None
    high: float | None


def rate(part: int, whole: int) -> Rate:
    """A proportion with its interval, rounded to four places. Nothing of nothing is neither a good nor a bad rate: None."""
    low, high = wilson(part, whole) or (None, None)
    return Rate(part, whole, rounded(part / whole) if whole else None, low, high)


def wilson(successes: int, trials: int, z: float = _Z) -> tuple[float, float] | None:
    """Wilson's score interval (1927), 95 % by default, rounded to four places; None without trials."""
    if not trials:
        return None
    share, square = successes / trials, z * z
    centre = (share + square / (2 * trials)) / (1 + square / trials)
    half = z * sqrt(share * (1 - share) / trials + square / (4 * trials * trials)) / (1 + square / trials)
    return round(max(0.0, centre - half), 4), round(min(1.0, centre + half), 4)


def calibration_error(bins: Sequence[tuple[int, int, Decimal]]) -> float | None:
    """Expected calibration error (Naeini 2015) of bins of (cases, right ones, sum of confidences); None without cases.

    The mean over all cases of how far their bin's mean confidence is from its share of right ones: 0 is perfect, 1 the worst.
    """
    cases = sum(count for count, _right, _sum in bins)
    gaps = sum((abs(total - right) for _count, right, total in bins), Decimal(0))
    return rounded(gaps / cases) if cases else None


def brier(cases: int, squares: Decimal) -> float | None:
    """Brier's score (1950): the mean of the squares of confidence minus outcome (1 right, 0 wrong); None without cases."""
    return rounded(squares / cases) if cases else None


def stability(now: Mapping[str, int], before: Mapping[str, int], bins: Sequence[str]) -> float | None:
    """Population stability index of two histograms over ``bins`` (natural logarithm); None where either has no case.

    0 is the same distribution. Half a case is added to each bin of both, so that an empty one has a logarithm.
    """
    cases, cases_before = sum(now.values()), sum(before.values())
    if not cases or not cases_before:
        return None
    total = 0.0
    for name in bins:
        share = (now.get(name, 0) + _SMOOTHING) / (cases + _SMOOTHING * len(bins))
        share_before = (before.get(name, 0) + _SMOOTHING) / (cases_before + _SMOOTHING * len(bins))
        total += (share - share_before) * log(share / share_before)
    return rounded(total)


def stability_by_chance(cases: int, cases_before: int, bins: int) -> float:
    """What the index stays below 19 times in 20 where nothing changed at all (Yurdakul 2018), for samples of these sizes.

    With few cases it is far above the usual 0.25: a fixed border alone would cry wolf in every small month.
    """
    return round(_CHI_SQUARED[bins - 1] * (1 / cases + 1 / cases_before), 4)


def rounded(value: float | Decimal | None) -> float | None:
    """Four places: what a report shows, and far above what the order of an addition can change."""
    return None if value is None else round(float(value), 4)
