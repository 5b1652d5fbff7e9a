"""What agents may cost and have cost today, read from the settings and the tables; the rules are in ``spawn.means``."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from atlas_pipeline.model import Profile
from atlas_pipeline.settings import Settings
from atlas_pipeline.spawn.means import Budget, Means, shortage
from atlas_pipeline.spawn.outcome import NO_MODEL
from atlas_pipeline.store import spawns
from atlas_pipeline.store.database import Connection


def budget_of(settings: Settings) -> Budget:
    """The limits of the settings."""
    return Budget(
        spawn=settings.spawn_budget_euros,
        day=settings.spawn_day_budget_euros,
        drafts=settings.draft_day_budget_euros,
        euros_per_dollar=settings.euros_per_dollar,
    )


def means_of(conn: Connection, settings: Settings) -> Means:
    """What was spent since midnight, and whether the agent's model could be had at the last try."""
    spent = spawns.spent_since(conn, start_of_day(settings.time_zone), unknown=budget_of(settings).spawn_dollars)
    ended = spawns.last_ended(conn)
    code, seconds = ended if ended is not None and ended[0] in NO_MODEL else (None, 0.0)
    return Means(sum(spent.values()), spent.get(Profile.DRAFT, 0.0), code, seconds)


def standing(conn: Connection, settings: Settings) -> tuple[str | None, float]:
    """Why no agent could be started now (a code), or None; and the euros spent today."""
    means, budget = means_of(conn, settings), budget_of(settings)
    return shortage(means, budget), means.dollars * budget.euros_per_dollar


def start_of_day(time_zone: str) -> datetime:
    """The midnight before now, in the house's time zone."""
    return datetime.now(ZoneInfo(time_zone)).replace(hour=0, minute=0, second=0, microsecond=0)
