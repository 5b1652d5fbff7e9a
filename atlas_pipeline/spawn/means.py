"""Whether an agent can be had and paid for: its model answers, and today's money is not spent. Pure; the rows are the caller's."""

from __future__ import annotations

from dataclasses import dataclass

from atlas_pipeline.model import Profile

# A login that expired or a limit of use stops every run alike: one look in so many seconds finds out whether it is over.
PAUSE_SECONDS = 900.0


@dataclass(frozen=True)
class Budget:
    """Euros: one start, a day, and a day of drafts, which anybody's mail can cause. The price list is in dollars."""

    spawn: float
    day: float
    drafts: float
    euros_per_dollar: float

    @property
    def spawn_dollars(self) -> float:
        """The most that one start may cost, as the agent's own flag wants it."""
        return self.spawn / self.euros_per_dollar


@dataclass(frozen=True)
class Means:
    """What was spent today (dollars, those at work counted in full), and how the last run ended whose model could not be had.

    ``no_model`` is its code and ``no_model_seconds`` how long ago it was; None where a later run found its model.
    """

    dollars: float = 0.0
    drafts_dollars: float = 0.0
    no_model: str | None = None
    no_model_seconds: float = 0.0


def shortage(means: Means, budget: Budget, *, ordered: bool = False) -> str | None:
    """Why no agent at all may start now (a code), or None. ``ordered``: somebody asked for it, and is a look worth having."""
    if (means.dollars * budget.euros_per_dollar) + budget.spawn > budget.day:
        return "spawn_budget_of_day_spent"
    if means.no_model is not None and means.no_model_seconds < PAUSE_SECONDS and not ordered:
        return f"agent_{means.no_model}"
    return None


def shortage_of(profile: Profile, means: Means, budget: Budget, *, ordered: bool = False) -> str | None:
    """The same for one profile: drafts have a budget of their own."""
    if profile is Profile.DRAFT and (means.drafts_dollars * budget.euros_per_dollar) + budget.spawn > budget.drafts:
        return "spawn_budget_of_drafts_spent"
    return shortage(means, budget, ordered=ordered)
