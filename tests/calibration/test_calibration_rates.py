"""The numbers behind the report, against other ways to have them."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from statistics import stdev

import numpy as np
import pytest
from scipy.stats import binom, chi2

from atlas_pipeline.calibration.drift import INTENTS, TENTHS, drift
from atlas_pipeline.calibration.gate import gate
from atlas_pipeline.calibration.metrics import groups
from atlas_pipeline.calibration.rates import (
    brier,
    calibration_error,
    rate,
    stability,
    stability_by_chance,
    wilson,
)
from atlas_pipeline.calibration.reliability import reliability
from atlas_pipeline.model import Intent

# Rates
# -----


def test_wilsons_interval_holds_the_rate_and_stays_between_nothing_and_all() -> None:
    for trials in range(1, 60):
        for successes in range(trials + 1):
            interval, share = wilson(successes, trials), successes / trials
            assert interval is not None
            assert 0 <= interval[0] <= share + 1e-4
            assert share - 1e-4 <= interval[1] <= 1


def test_wilsons_interval_covers_the_truth_nineteen_times_in_twenty() -> None:
    """Averaged over true rates, as intervals of discrete cases have to be looked at."""
    covered = []
    for share in np.linspace(0.05, 0.95, 37):
        for trials in (10, 30, 100):
            chances = binom.pmf(range(trials + 1), trials, share)
            held = [low <= share <= high for low, high in (wilson(one, trials) or (0, 0) for one in range(trials + 1))]
            covered.append(float(np.dot(chances, held)))
    assert 0.94 < float(np.mean(covered)) < 0.965


def test_nothing_of_nothing_has_no_rate() -> None:
    found = rate(0, 0)
    assert (found.value, found.low, found.high) == (None, None, None)
    assert (rate(1, 3).value, rate(1, 3).low, rate(1, 3).high) == (0.3333, 0.0615, 0.7923)


# Reliability
# -----------


def as_rows(judged: list[tuple[float, bool]]) -> list[dict[str, object]]:
    """What the database would say of these decisions, one row each."""
    return [
        {
            "model": "m",
            "bin": min(int(confidence * 10) + 1, 10),
            "judged": 1,
            "correct": int(right),
            "confidence": Decimal(str(confidence)),
            "squares": (Decimal(str(confidence)) - int(right)) ** 2,
        }
        for confidence, right in judged
    ]


def test_calibration_error_and_brier_are_what_their_definitions_say() -> None:
    """Computed the long way, case by case."""
    chance = random.Random(3)  # noqa: S311  # the same each time
    judged = [(round(chance.random(), 3), chance.random() < 0.6) for _ in range(400)]
    found = reliability(as_rows(judged))
    tenths: dict[int, list[tuple[float, bool]]] = {}
    for confidence, right in judged:
        tenths.setdefault(min(int(confidence * 10), 9), []).append((confidence, right))
    error = sum(
        len(cases) / 400 * abs(sum(c for c, _ in cases) / len(cases) - sum(r for _, r in cases) / len(cases))
        for cases in tenths.values()
    )
    assert found.error == pytest.approx(error, abs=1e-4)
    assert found.brier == pytest.approx(sum((c - r) ** 2 for c, r in judged) / 400, abs=1e-4)
    assert [one.right.whole for one in found.bins] == [len(tenths.get(place, ())) for place in range(10)]


def test_certainty_that_is_always_right_has_no_error_and_certainty_that_is_always_wrong_has_all_of_it() -> None:
    right, wrong = reliability(as_rows([(1.0, True)] * 3)), reliability(as_rows([(1.0, False)] * 3))
    assert (right.error, right.brier, wrong.error, wrong.brier) == (0.0, 0.0, 1.0, 1.0)


def test_without_an_outcome_there_is_no_error() -> None:
    found = reliability([])
    assert (found.right.whole, found.error, found.brier) == (0, None, None)
    assert (calibration_error([]), brier(0, Decimal(0))) == (None, None)
    assert {one.mean_confidence for one in found.bins} == {None}


# Drift
# -----


def test_the_borders_of_chance_are_chi_squareds_quantiles() -> None:
    for bins in range(2, 11):
        assert stability_by_chance(1, 1, bins) == pytest.approx(2 * chi2.ppf(0.95, bins - 1), abs=2e-3)


def test_a_mix_that_did_not_change_stays_below_the_border_of_chance() -> None:
    """Nineteen times in twenty, give or take: a border at 0.25 alone would be crossed in most months of forty mails."""
    chance = np.random.default_rng(5)
    shares = [0.2, 0.2, 0.2, 0.2, 0.1, 0.1]
    over = 0
    for _ in range(600):
        now, before = chance.multinomial(60, shares), chance.multinomial(180, shares)
        index = stability(dict(zip(INTENTS, now, strict=True)), dict(zip(INTENTS, before, strict=True)), INTENTS)
        assert index is not None
        over += index > stability_by_chance(60, 180, 6)
    assert over / 600 < 0.08


def test_the_index_is_the_formula_of_the_literature() -> None:
    now, before = {"1": 30, "2": 70}, {"1": 50, "2": 50}
    shares = [(30.5 / 101, 50.5 / 101), (70.5 / 101, 50.5 / 101)]
    assert stability(now, before, ("1", "2")) == round(sum((a - b) * math.log(a / b) for a, b in shares), 4)
    assert stability(before, before, ("1", "2")) == 0.0
    assert stability({}, before, ("1", "2")) is stability(now, {}, ("1", "2")) is None


def mixed(current: bool, model: str = "m", prompt: str = "p", **intents: int) -> list[dict[str, object]]:
    return [
        {"current": current, "intent": intent, "bin": 9, "model": model, "prompt_version": prompt, "n": count}
        for intent, count in intents.items()
    ]


def test_a_first_month_has_nothing_to_drift_from() -> None:
    found = drift(mixed(True, run=100))
    assert (found.intents.level, found.intents.index, found.explained) == ("too_few", None, False)
    assert (found.new_models, found.gone_models) == ((), ())


def test_a_small_month_concludes_nothing() -> None:
    found = drift([*mixed(True, run=29), *mixed(False, noise=300)])
    assert (found.intents.level, found.intents.cases) == ("too_few", 29)


def test_another_mix_is_a_change_and_is_explained_where_the_prompt_changed() -> None:
    rows = [*mixed(True, prompt="p2", run=60, noise=140), *mixed(False, run=300, noise=100)]
    found = drift(rows)
    assert (found.intents.level, found.confidence.level) == ("changed", "stable")
    assert (found.explained, found.new_prompts, found.gone_prompts) == (True, ("p2",), ("p",))
    same = drift([*mixed(True, run=60, noise=140), *mixed(False, run=300, noise=100)])
    assert (same.intents.level, same.explained) == ("changed", False)


def test_a_rule_is_no_model_and_states_no_confidence() -> None:
    rule = [{**row, "bin": None} for row in mixed(True, model="rule/automatic", prompt="none", noise=50)]
    found = drift([*rule, *mixed(True, run=50), *mixed(False, run=100)])
    assert (found.confidence.cases, found.intents.cases) == (50, 100)
    assert found.new_models == ()


def test_every_intent_has_its_bin() -> None:
    assert sorted(INTENTS) == sorted(intent.value for intent in Intent)
    assert len(TENTHS) == 10


# Groups and the gate
# -------------------


def test_a_deviation_is_the_samples_and_needs_two_cases() -> None:
    values = [0.61, 0.72, 0.93, 0.55]
    exact = [Decimal(str(value)) for value in values]
    rows = [
        {"intent": "run", "volume": 4, "uncertain": 2, "confidence": sum(exact), "squares": sum(x * x for x in exact)},
        {"intent": "noise", "volume": 1, "uncertain": 0, "confidence": exact[0], "squares": exact[0] ** 2},
    ]
    noise, run = groups("intent", rows)
    assert (run.mean_confidence, run.deviation) == (round(sum(values) / 4, 4), round(stdev(values), 4))
    assert (noise.mean_confidence, noise.deviation) == (0.61, None)


@pytest.mark.parametrize(
    ("jobs", "kept", "earned"),
    [
        (0, 0, False),
        (1, 1, False),
        (29, 29, False),
        (30, 27, False),
        (30, 28, True),
        (1000, 900, False),
        (1000, 901, True),
    ],
)
def test_the_gate_asks_for_more_than_ninety_percent_over_at_least_thirty_jobs(
    jobs: int, kept: int, earned: bool
) -> None:
    assert gate([job_row(jobs, kept)]).earned is earned


def test_every_tenth_of_any_number_of_jobs_is_exactly_ninety_percent_in_floating_point_too() -> None:
    assert not any(gate([job_row(10 * tens, 9 * tens)]).earned for tens in range(3, 5000))


def job_row(jobs: int, kept: int) -> dict[str, object]:
    return {"tenant": "own", "jobs": jobs, "kept": kept, "undecided": 0}
