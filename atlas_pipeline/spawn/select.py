"""Who may be given to an agent now. Pure functions over rows; reading the rows is the store's, starting is the caller's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from atlas_pipeline.model import Intent, Status

SPAWN_INTENTS = (Intent.RUN, Intent.CHANTIER, Intent.QUESTION, Intent.NEGOCIATION)


@dataclass(frozen=True)
class Limits:
    """How much may run: agents a cycle, alive at once (queued runs counted), and one a tenant."""

    enabled: bool
    per_cycle: int
    live: int


class Waiting(Protocol):
    """A candidate, as far as the choice looks at it."""

    @property
    def message_key(self) -> str:
        """The message."""

    @property
    def tenant(self) -> str | None:
        """Whose site it touches."""


W = TypeVar("W", bound=Waiting)


@dataclass(frozen=True)
class Live:
    """An agent at work, or a run queued to start one."""

    message_key: str
    tenant: str | None


def choose(candidates: Sequence[W], live: Iterable[Live], limits: Limits) -> list[W]:
    """The candidates to start in this cycle, in their order: none above a limit, none whose tenant is busy."""
    if not limits.enabled:
        return []
    running = list(live)
    busy = Counter(agent.tenant for agent in running if agent.tenant)
    keys = {agent.message_key for agent in running}
    room = min(limits.per_cycle, limits.live - len(keys))
    chosen: list[W] = []
    for candidate in candidates:
        if len(chosen) >= room:
            break
        if candidate.message_key in keys or (candidate.tenant and busy[candidate.tenant]):
            continue
        chosen.append(candidate)
        if candidate.tenant:
            busy[candidate.tenant] += 1
    return chosen


def due_attempt(status: Status, attempt: int) -> int:
    """The attempt that a message stands before: the next one after a failed QA, otherwise the one it is in."""
    return attempt + 1 if status is Status.QA_FAILED else max(1, attempt)


def refusal(
    *,
    status: Status,
    intent: Intent | None,
    standing_attempt: int,
    asked_attempt: int,
    quiet: bool,
    requested: bool,
    others: Sequence[Live],
    tenant: str | None,
    limits: Limits,
) -> str | None:
    """Why no agent may be started for this message now (a code), or None. ``others`` are live agents of other messages.

    A run from the UI, a backfill or a second schedule tick all pass here: what the tables don't ask for isn't started.
    """
    if not limits.enabled:
        return "spawn_disabled"
    if intent not in SPAWN_INTENTS:
        return "intent_not_spawned"
    if status not in (Status.CLASSIFIED, Status.QA_FAILED):
        return f"status_{status.value}"
    if asked_attempt != due_attempt(status, standing_attempt):
        return "attempt_not_due"
    if status is Status.CLASSIFIED and not quiet and not requested:
        return "spawned_recently"
    if len({agent.message_key for agent in others}) >= limits.live:
        return "too_many_live"
    if tenant is not None and any(agent.tenant == tenant for agent in others):
        return "tenant_busy"
    return None
