"""Money and models of agents: pure rules."""

from __future__ import annotations

import pytest

from atlas_pipeline.model import Profile
from atlas_pipeline.spawn.means import PAUSE_SECONDS, Budget, Means, shortage, shortage_of

BUDGET = Budget(spawn=5.0, day=20.0, drafts=10.0, euros_per_dollar=0.5)


def test_the_agents_own_limit_is_in_dollars() -> None:
    assert BUDGET.spawn_dollars == 10.0


@pytest.mark.parametrize(("dollars", "code"), [(0.0, None), (30.0, None), (30.1, "spawn_budget_of_day_spent")])
def test_a_start_must_fit_into_the_day_as_a_whole(dollars: float, code: str | None) -> None:
    assert shortage(Means(dollars=dollars), BUDGET) == code


@pytest.mark.parametrize("profile", Profile)
def test_drafts_have_a_budget_of_their_own(profile: Profile) -> None:
    spent = Means(dollars=11.0, drafts_dollars=11.0)
    wanted = "spawn_budget_of_drafts_spent" if profile is Profile.DRAFT else None
    assert shortage_of(profile, spent, BUDGET) == wanted


@pytest.mark.parametrize(
    ("seconds", "ordered", "code"),
    [(0.0, False, "agent_not_logged_in"), (PAUSE_SECONDS, False, None), (0.0, True, None)],
)
def test_a_model_that_could_not_be_had_is_left_alone_for_a_while_unless_somebody_asks(
    seconds: float, ordered: bool, code: str | None
) -> None:
    assert shortage(Means(no_model="not_logged_in", no_model_seconds=seconds), BUDGET, ordered=ordered) == code
