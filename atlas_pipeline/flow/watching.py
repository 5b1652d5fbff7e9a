"""What was left behind: messages due, actions to resume, agents without an owner. Reads, decides, and puts rows right."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from atlas_pipeline.errors import NotConfigured, Refused
from atlas_pipeline.flow.briefing import profile_of
from atlas_pipeline.flow.means import budget_of, means_of
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.recapping import queue_recap
from atlas_pipeline.flow.spawning import limits_of, owner_beats, put_back, settle_lost
from atlas_pipeline.model import Profile, Status
from atlas_pipeline.spawn.means import shortage, shortage_of
from atlas_pipeline.spawn.processes import is_alive
from atlas_pipeline.spawn.select import SPAWN_INTENTS, Live, choose, due_attempt
from atlas_pipeline.store import audit, claims, ledger, locks, spawns, tracking
from atlas_pipeline.store.database import Connection
from atlas_pipeline.store.locks import message_lock
from atlas_pipeline.store.tracking import Tracking

INTAKE_LIMIT = 200
# Many more than one cycle starts: those that must wait for tomorrow's money hide nobody behind them.
CANDIDATES = 500
SILENT_SECONDS = 600.0
# Statuses in which an action has something left to do.
UNFINISHED = (Status.SPAWNING, Status.QA_FAILED, Status.CLASSIFIED)


@dataclass(frozen=True)
class ActionDue:
    """An action run to ask for."""

    message_key: str
    tenant: str | None
    round: int
    attempt: int


def intake_due(parts: Parts, live_run_ids: Collection[str]) -> list[str]:
    """Keys whose intake is due. Leases of runs that no longer live are ended first."""
    with parts.db.transaction() as conn:
        claims.expire_dead(conn, sorted(live_run_ids))
        return ledger.due_keys(conn, INTAKE_LIMIT)


def spawns_due(parts: Parts, queued: Sequence[Live]) -> list[ActionDue]:
    """The spawn cycle: candidates within the limits; ``queued`` are action runs that Dagster has not finished."""
    settings = parts.settings
    with parts.db.transaction() as conn:
        found = spawns.candidates(
            conn,
            intents=[intent.value for intent in SPAWN_INTENTS],
            quiet_seconds=settings.spawn_quiet_seconds,
            limit=CANDIDATES,
        )
        trouble = _agent_trouble(parts, conn)
        if found and trouble:
            audit.alert(conn, f"spawn:{trouble}", trouble, waiting=len(found))
        waiting = [tracking.require(conn, candidate.message_key) for candidate in found]
        live = [*queued, *(Live(row["message_key"], row["tenant"]) for row in spawns.live(conn))]
        chosen = choose(_affordable(parts, conn, waiting), live, limits_of(parts))
        return [_due(state) for state in chosen]


def follow_ups(parts: Parts, queued: Sequence[Live]) -> list[ActionDue]:
    """What has no live run and must go on: a next attempt, an operator's order, an action that a crash cut off.

    The limits hold here too; what finds no room is asked for at the next look.
    """
    with parts.db.transaction() as conn:
        rows = tracking.with_status(conn, UNFINISHED)
        busy = {live.message_key for live in queued}
        live = spawns.live(conn)
        beating = {row["message_key"] for row in live if owner_beats(row["heartbeat_age"])}
        waiting = [
            row
            for row in rows
            if row.message_key not in busy
            and (
                row.status is Status.QA_FAILED
                or (row.status is Status.CLASSIFIED and row.spawn_requested_at is not None)
                or (row.status is Status.SPAWNING and row.message_key not in beating)
            )
        ]
        resumed = [row for row in waiting if row.status is Status.SPAWNING]
        fresh = choose(
            _affordable(parts, conn, [row for row in waiting if row.status is not Status.SPAWNING]),
            [*queued, *(Live(row["message_key"], row["tenant"]) for row in live)],
            limits_of(parts),
        )
        return [_due(row) for row in (*resumed, *fresh)]


def give_up(parts: Parts, due: ActionDue) -> None:
    """Runs were asked for again and again and none came to an end: a human must look."""
    with parts.db.transaction() as conn:
        state = tracking.require(conn, due.message_key)
        if state.status not in UNFINISHED:
            return
        tracking.move(
            conn,
            due.message_key,
            expected=[state.status],
            to=Status.ESCALATED,
            action="escalated",
            actor="unfinished",
            reason_code="runs_exhausted",
            attempt=due.attempt,
        )
        audit.alert(conn, f"escalated:{due.message_key}", "runs_exhausted", key=due.message_key)
        queue_recap(parts, conn, due.message_key, "runs_exhausted")


def _agent_trouble(parts: Parts, conn: Connection) -> str | None:
    """Why there is no agent (a code), or None. Without one no run is asked for: messages wait in ``classified``."""
    try:
        parts.agent_bin  # noqa: B018  # asked for its refusal
    except NotConfigured as error:
        return error.code
    return shortage(means_of(conn, parts.settings), budget_of(parts.settings))


def _affordable(parts: Parts, conn: Connection, states: Sequence[Tracking]) -> list[Tracking]:
    """Those for which there is an agent and money now; the profile is looked at where the drafts' own budget is spent."""
    means, budget = means_of(conn, parts.settings), budget_of(parts.settings)
    try:
        parts.agent_bin  # noqa: B018  # asked for its refusal
    except NotConfigured:
        return []
    no_drafts = shortage_of(Profile.DRAFT, means, budget, ordered=True) is not None
    return [
        state
        for state in states
        if shortage(means, budget, ordered=state.spawn_requested_at is not None) is None
        and not (no_drafts and profile_of(conn, state) is Profile.DRAFT)
    ]


def require_agent(parts: Parts) -> None:
    """Raises Refused(``kill_switch``) or NotConfigured, where no agent could be started at all."""
    if not parts.settings.spawn_enabled:
        raise Refused("kill_switch", variable="ATLAS_SPAWN_ENABLED")
    parts.agent_bin  # noqa: B018  # asked for its refusal


def _due(state: tracking.Tracking) -> ActionDue:
    return ActionDue(state.message_key, state.tenant, state.round, due_attempt(state.status, state.attempt))


def request_due(parts: Parts, *, actor: str) -> list[str]:
    """Run one spawn cycle now: mark its candidates as asked for; the unfinished sensor starts them."""
    chosen = spawns_due(parts, [])
    with parts.db.transaction() as conn:
        chosen = [due for due in chosen if tracking.require(conn, due.message_key).spawn_requested_at is None]
        for due in chosen:
            tracking.request_spawn(conn, due.message_key)
            audit.record(conn, due.message_key, "spawn_requested", actor=actor, round=due.round)
    return [due.message_key for due in chosen]


def guard_locks(parts: Parts) -> dict[str, int]:
    """The lock guard: what shows no sign of life for ten minutes is put where it can go on; each raises one alarm.

    An agent whose owner is gone is reaped, a lock whose session is frozen or cut off is ended (its owner, should it wake,
    finds the start settled and stops), a message in ``spawning`` without a start goes back among the candidates. A healthy
    session beats every ten seconds, however long it takes, and never alarms.
    """
    ended = _end_frozen_locks(parts)
    with parts.db.transaction() as conn:
        live = spawns.live(conn)
    reaped = zombies = 0
    for row in live:
        owner_gone = row["pid"] is not None and not is_alive(row["pid"], row["pid_started"])
        if owner_beats(row["heartbeat_age"]) or (not owner_gone and row["heartbeat_age"] < SILENT_SECONDS):
            continue
        key = row["message_key"]
        with parts.db.transaction() as conn:
            state = tracking.require(conn, key)
        with message_lock(parts.database_url, state.seq) as taken:
            if taken:
                reaped += settle_lost(parts, key)
            else:
                zombies += 1
            _alarm(parts, f"{row['id']}", "spawn_owner_died" if taken else "zombie_lock", key, row["heartbeat_age"])
    return {
        "live": len(live),
        "reaped": reaped,
        "zombies": zombies,
        "ended": ended,
        "unattended": _attend(parts),
    }


def _end_frozen_locks(parts: Parts) -> int:
    with parts.db.transaction() as conn:
        frozen = [holder for holder in locks.holders(conn) if holder.silent_seconds > SILENT_SECONDS]
    ended = 0
    for holder in frozen:
        with parts.db.transaction() as conn:
            key = ledger.key_of(conn, holder.seq)
            ended += locks.end_session(conn, holder)
        _alarm(parts, f"{holder.seq}", "lock_ended", key, holder.silent_seconds)
    return ended


def _attend(parts: Parts) -> int:
    """Messages in ``spawning`` that nobody works on. After a start that ended ok what follows is due, and is only told."""
    with parts.db.transaction() as conn:
        keys = spawns.unattended(conn, SILENT_SECONDS)
    attended = 0
    for key in keys:
        with parts.db.transaction() as conn:
            state = tracking.require(conn, key)
        with message_lock(parts.database_url, state.seq) as taken:
            if not taken:
                continue  # a deployment, or checks, at work
            with parts.db.transaction() as conn:
                if key not in spawns.unattended(conn, SILENT_SECONDS):
                    continue
                state = tracking.require(conn, key)
                latest = spawns.latest(conn, key, state.round, state.attempt)
                waits = latest is not None and latest.status == "ok"
                if not waits:
                    put_back(parts, conn, state, "no_agent_live", retry_now=True)
        attended += 1
        _alarm(parts, f"{state.seq}", "release_unattended" if waits else "spawning_without_agent", key, SILENT_SECONDS)
    return attended


def _alarm(parts: Parts, about: str, code: str, key: str | None, silent_seconds: float) -> None:
    with parts.db.transaction() as conn:
        audit.alert(conn, f"lock:{about}:{code}", code, key=key, hours=24, silent_seconds=round(silent_seconds))
