"""One agent for one message: the rules once more, the row that says so, the agent, and what it left behind.

What happens here stands under the message's advisory lock from the first look to the last write.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from atlas_pipeline.errors import AtlasError, DatabaseUnavailable, PermanentError
from atlas_pipeline.flow import teaching
from atlas_pipeline.flow.briefing import Briefing, brief
from atlas_pipeline.flow.means import budget_of, means_of
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.recapping import queue_recap
from atlas_pipeline.flow.stage import Outcome, StageDone, StageFailed
from atlas_pipeline.model import Contract, Profile, SpawnResult, Status
from atlas_pipeline.spawn import worktree
from atlas_pipeline.spawn.contract import read_contract
from atlas_pipeline.spawn.events import AgentEvent
from atlas_pipeline.spawn.means import shortage_of
from atlas_pipeline.spawn.outcome import BUDGET_SPENT, NO_MODEL
from atlas_pipeline.spawn.processes import stop_spawn
from atlas_pipeline.spawn.select import Limits, Live, refusal
from atlas_pipeline.spawn.session import AgentSpec, result_path, run_agent
from atlas_pipeline.store import audit, registry, spawns, tenants, tracking
from atlas_pipeline.store.database import Connection
from atlas_pipeline.store.locks import message_lock

STAGE = "spawn_result"
HEARTBEAT_SECONDS = 10.0
# A run worker that died leaves its row beating no more; a live one beats every ten seconds.
OWNERLESS_SECONDS = 45.0
# How long an agent goes on while PostgreSQL restarts under it; longer, and the run ends with the agent stopped.
DATABASE_PATIENCE_SECONDS = 60.0

T = TypeVar("T")
Report = StageDone | StageFailed
WasCancelled = Callable[[], bool]


@dataclass(frozen=True)
class Started:
    """An agent about to run: its row is written."""

    spawn_id: int
    try_: int
    briefing: Briefing
    folder: Path


def limits_of(parts: Parts) -> Limits:
    """The limits of the settings."""
    settings = parts.settings
    return Limits(enabled=settings.spawn_enabled, per_cycle=settings.spawn_max_per_cycle, live=settings.spawn_max_live)


def spawn(parts: Parts, key: str, attempt: int, *, run_id: str, was_cancelled: WasCancelled) -> Report:
    """Start an agent for this message and attempt if the tables ask for one, and wait for its end.

    A refusal is a report, not an error. ``was_cancelled`` is asked when the run is interrupted: True is an operator's
    cancel (the row is escalated), False a shutdown (it goes on when the house is up again). The interrupt passes through.
    """
    with parts.db.transaction() as conn:
        state = tracking.get(conn, key)
    if state is None:
        return StageDone(STAGE, key, Outcome.REFUSED, {"code": "no_tracking_row"})
    with message_lock(parts.database_url, state.seq) as taken:
        if not taken:
            with parts.db.transaction() as conn:
                audit.record(conn, key, "spawn_skipped_lock_held", actor="spawn", attempt=attempt)
            return StageDone(STAGE, key, Outcome.REFUSED, {"code": "lock_held"})
        if _already_ok(parts, key, attempt):
            return StageDone(STAGE, key, Outcome.UNCHANGED)
        if _beating(parts, key):
            # Its owner lost the lock, to a restart of the server, and not its agent.
            with parts.db.transaction() as conn:
                audit.record(conn, key, "spawn_skipped_lock_held", actor="spawn", attempt=attempt, code="owner_lives")
            return StageDone(STAGE, key, Outcome.REFUSED, {"code": "owner_lives"})
        settle_lost(parts, key)
        try:
            started = _claim(parts, key, attempt, run_id)
        except PermanentError as error:
            # No agent program, no such persona, a row that changed meanwhile: a human or the next look must mend it.
            with parts.db.transaction() as conn:
                audit.record(conn, key, "spawn_waiting", actor="spawn", code=error.code)
                audit.alert(conn, f"spawn:{error.code}", error.code)
            return StageDone(STAGE, key, Outcome.WAITING, {"code": error.code})
        if isinstance(started, StageDone):
            return started
        return _run(parts, key, attempt, started, was_cancelled)


def rehearse(parts: Parts, key: str, attempt: int = 1) -> tuple[Briefing, str, str]:
    """What an agent would be told about this message, and by whom it would be taken: nothing is started, and nothing noted but what the
    embedding of its text cost.

    The briefing, the system prompt and the user prompt. Raises what ``brief`` raises.
    """
    with parts.db.transaction() as conn:
        briefing = brief(conn, tracking.require(conn, key), attempt, language=parts.settings.language)
    briefing = replace(briefing, lessons=_lessons(parts, briefing))
    result = result_path(parts.settings.home_dir / "spawns" / "rehearsal")
    user = briefing.user_prompt(attempt=attempt, result_path=result, previous_commits=(), marker=secrets.token_hex(16))
    return briefing, briefing.system_prompt(result_path=result), user


def owner_beats(heartbeat_age: float) -> bool:
    """Whether a start heard from ``heartbeat_age`` seconds ago has a living owner, as far as that tells."""
    return heartbeat_age < OWNERLESS_SECONDS


def marker_of(parts: Parts, spawn_id: int) -> str:
    """What the processes of a spawn are found by; another house on this machine has a spawn of the same number."""
    return f"{parts.settings.house_id}-{spawn_id}"


def _already_ok(parts: Parts, key: str, attempt: int) -> bool:
    """An agent that ended ok is never started again: what comes after it is resumed instead."""
    with parts.db.transaction() as conn:
        state = tracking.require(conn, key)
        latest = spawns.latest(conn, key, state.round, attempt)
    return state.status is Status.SPAWNING and state.attempt == attempt and latest is not None and latest.status == "ok"


def _beating(parts: Parts, key: str) -> bool:
    with parts.db.transaction() as conn:
        return any(owner_beats(start.heartbeat_age) for start in spawns.live_of(conn, key))


def settle_lost(parts: Parts, key: str) -> bool:
    """With the message's lock in hand: an agent still marked live has no living owner. Reap it and put the row back.

    True where there was one. Its commits stay on the branch.
    """
    with parts.db.transaction() as conn:
        orphans = spawns.live_of(conn, key)
    for orphan in orphans:
        reaped = stop_spawn(marker_of(parts, orphan.id), orphan.pid, orphan.pid_started)
        with parts.db.transaction() as conn:
            if not spawns.finish(conn, orphan.id, status="lost", code="owner_died"):
                continue
            state = tracking.require(conn, key)
            # A message that was escalated over the head of its agent stays so; the agent's row must not count as live for ever.
            if (state.status, state.round, state.attempt) == (Status.SPAWNING, orphan.round, orphan.attempt):
                put_back(parts, conn, state, "owner_died", retry_now=True, reaped=reaped)
    return bool(orphans)


def _claim(parts: Parts, key: str, attempt: int, run_id: str) -> Started | StageDone:
    """Apply the rules and write the rows that say an agent starts, in one transaction."""
    agent_bin = parts.agent_bin
    with parts.db.transaction() as conn:
        # One claim at a time in the whole house, so that two runs can't both see the last free place.
        conn.execute("select pg_advisory_xact_lock(hashtext('atlas.spawns'))")
        state = tracking.require(conn, key)
        latest = spawns.latest(conn, key, state.round, attempt)
        others = [Live(row["message_key"], row["tenant"]) for row in spawns.live(conn) if row["message_key"] != key]
        code = refusal(
            status=state.status,
            intent=state.intent,
            standing_attempt=state.attempt,
            asked_attempt=attempt,
            quiet=spawns.quiet(conn, key, parts.settings.spawn_quiet_seconds),
            requested=state.spawn_requested_at is not None,
            others=others,
            tenant=state.tenant,
            limits=limits_of(parts),
        )
        if code is None and attempt > parts.settings.max_attempts:
            code = "attempts_exhausted"
        if code is not None:
            audit.record(conn, key, "spawn_refused", actor="spawn", code=code, attempt=attempt)
            return StageDone(STAGE, key, Outcome.REFUSED, {"code": code})
        try_ = latest.try_ + 1 if latest else 1
        briefing = brief(conn, state, attempt, language=parts.settings.language)
        short = shortage_of(
            briefing.profile,
            means_of(conn, parts.settings),
            budget_of(parts.settings),
            ordered=state.spawn_requested_at is not None,
        )
        if short is not None:
            audit.record(conn, key, "spawn_waiting", actor="spawn", code=short)
            audit.alert(conn, f"spawn:{short}", short)
            return StageDone(STAGE, key, Outcome.WAITING, {"code": short})
        spawn_id = spawns.claim(
            conn,
            key,
            round_=state.round,
            attempt=attempt,
            try_=try_,
            profile=briefing.profile,
            tenant=state.tenant,
            agent=briefing.agent,
            model=parts.settings.agent_model,
            run_id=run_id,
        )
        tracking.move(
            conn,
            key,
            expected=[Status.CLASSIFIED, Status.QA_FAILED],
            to=Status.SPAWNING,
            action="spawn_started",
            actor="spawn",
            columns={"attempt": attempt, "spawn_requested_at": None},
            spawn=spawn_id,
            attempt=attempt,
            try_=try_,
            profile=briefing.profile.value,
            agent=briefing.agent,
            designated=briefing.reason,
            program=agent_bin.name,
        )
    return Started(spawn_id, try_, briefing, parts.settings.home_dir / "spawns" / str(spawn_id))


def _run(parts: Parts, key: str, attempt: int, started: Started, was_cancelled: WasCancelled) -> Report:
    briefing = started.briefing
    tree: worktree.Worktree | None = None
    result: SpawnResult | None = None
    try:
        started.folder.mkdir(parents=True, exist_ok=True)
        if briefing.repository and briefing.profile is not Profile.DRAFT:
            tree = worktree.prepare(
                Path(briefing.repository), briefing.branch, key, parts.settings.home_dir / "worktrees"
            )
            with parts.db.transaction() as conn:
                spawns.set_branch(conn, started.spawn_id, tree.branch, tree.base_commit)
        result = _agent(parts, attempt, started, tree)
        contract, commits = _evidence(parts, started, tree)
    except AtlasError as error:
        return _settle_failure(parts, key, started, error.code, result, None)
    except BaseException:
        _settle_interrupt(parts, key, started, cancelled=was_cancelled())
        raise
    if result.ok:
        return _settle_ok(parts, key, started, result, contract, commits)
    return _settle_failure(parts, key, started, result.code, result, (contract, commits))


def _agent(parts: Parts, attempt: int, started: Started, tree: worktree.Worktree | None) -> SpawnResult:
    settings, briefing = parts.settings, started.briefing
    briefing = replace(briefing, lessons=_lessons(parts, briefing))
    _note_lessons(parts, briefing)
    cwd = tree.path if tree else started.folder / "empty"
    cwd.mkdir(parents=True, exist_ok=True)
    result_file = result_path(started.folder)
    hooks: dict[str, str] = {}
    if settings.agent_database_url is not None and briefing.profile is not Profile.DRAFT:
        with parts.db.transaction() as conn:
            hooks = spawns.hook_access(conn, started.spawn_id, settings.agent_database_url.get_secret_value())
    previous: Sequence[str] = worktree.commits(tree) if tree and attempt > 1 else ()
    spec = AgentSpec(
        spawn_id=marker_of(parts, started.spawn_id),
        agent_bin=parts.agent_bin,
        cwd=cwd,
        prompt=briefing.user_prompt(
            attempt=attempt, result_path=result_file, previous_commits=previous, marker=secrets.token_hex(16)
        ),
        system_prompt=briefing.system_prompt(result_path=result_file),
        model=settings.agent_model,
        work_dir=started.folder,
        profile=briefing.profile,
        timeout_seconds=settings.spawn_timeout_seconds,
        start_timeout_seconds=settings.spawn_start_timeout_seconds,
        idle_timeout_seconds=settings.spawn_idle_timeout_seconds,
        budget_dollars=budget_of(settings).spawn_dollars,
        hooks=hooks,
    )
    with parts.db.transaction() as conn:
        spawns.store_briefing(conn, started.spawn_id, spec.system_prompt)
    keeper = _Keeper(parts, started.spawn_id)
    return run_agent(spec, keeper.events, keeper.beat, keeper.started)


def _lessons(parts: Parts, briefing: Briefing) -> teaching.Lessons:
    """What this agent learnt about such messages.

    A draft may answer somebody who only claims to be the client's: it is told nothing that was learnt at the client's.
    """
    about = f"{briefing.message['subject'] or ''}\n{briefing.message['body_text'] or ''}"
    tenant = briefing.tenant if briefing.profile is not Profile.DRAFT else None
    return teaching.lessons(parts, briefing.agent, tenant, about, key=briefing.state.message_key)


def _note_lessons(parts: Parts, briefing: Briefing) -> None:
    """That only words could be searched is audited with the reason."""
    found = briefing.lessons
    if found.code is not None:
        with parts.db.transaction() as conn:
            audit.record(
                conn,
                briefing.state.message_key,
                "lessons_by_words",
                actor="spawn",
                code=found.code,
                found=len(found.texts),
            )


class _Keeper:
    """Writes down what an agent does while it does it. A database that restarts is waited for, within limits."""

    def __init__(self, parts: Parts, spawn_id: int) -> None:
        self._parts, self._spawn_id, self._last_beat = parts, spawn_id, time.monotonic()

    def started(self, pid: int, pid_started: float) -> None:
        self._patiently(lambda conn: spawns.started(conn, self._spawn_id, pid, pid_started))

    def events(self, events: Sequence[AgentEvent]) -> None:
        self._patiently(lambda conn: spawns.add_events(conn, self._spawn_id, events))

    def beat(self) -> bool:
        if time.monotonic() - self._last_beat >= HEARTBEAT_SECONDS:
            ours = self._patiently(lambda conn: spawns.heartbeat(conn, self._spawn_id))
            self._last_beat = time.monotonic()
            return not ours
        return False

    def _patiently(self, write: Callable[[Connection], T]) -> T:
        deadline = time.monotonic() + DATABASE_PATIENCE_SECONDS
        while True:
            try:
                with self._parts.db.transaction() as conn:
                    return write(conn)
            except DatabaseUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)


def _evidence(parts: Parts, started: Started, tree: worktree.Worktree | None) -> tuple[Contract, list[str]]:
    """The result file and the commits that git counts; a change outside the zones is a problem of the contract."""
    commits = list(worktree.commits(tree)) if tree else []
    with parts.db.transaction() as conn:
        slugs = {tenant.slug for tenant in tenants.all_tenants(conn)}
    contract = read_contract(
        result_path(started.folder),
        tenants=slugs,
        tenant=started.briefing.tenant,
        classified=started.briefing.intent,
        commits_in_git=commits,
    )
    if tree and worktree.outside_zones(worktree.changed_paths(tree), started.briefing.zones):
        contract = replace(contract, problems=(*contract.problems, "commit_outside_zones"))
    if tree and commits and started.briefing.profile is not Profile.WRITE:
        contract = replace(contract, problems=(*contract.problems, "commit_without_right"))
    return contract, commits


def _settle_ok(
    parts: Parts, key: str, started: Started, result: SpawnResult, contract: Contract, commits: list[str]
) -> Report:
    with parts.db.transaction() as conn:
        if not spawns.finish(conn, started.spawn_id, status="ok", code=result.code, result=result):
            return _overtaken(conn, key, started)
        spawns.store_contract(conn, started.spawn_id, contract, commits)
        registry.count_spawn(conn, started.briefing.agent, failed=False)
        _experience(conn, key, started, "spawn_completed")
        audit.record(
            conn,
            key,
            "spawn_completed",
            actor="spawn",
            spawn=started.spawn_id,
            contract=contract.status,
            commits=len(commits),
            problems=list(contract.problems),
        )
    return StageDone(STAGE, key, Outcome.DONE, _facts(result, commits, contract))


_POINTS = {"spawn_completed": 10, "spawn_failed": 1}


def _experience(conn: Connection, key: str, started: Started, event: str) -> None:
    """What the agent has of this start in the registry's satellites."""
    briefing = started.briefing
    registry.note_activity(conn, briefing.agent, event, key)
    registry.learn_from(
        conn,
        briefing.agent,
        key=key,
        event=event,
        points=_POINTS[event],
        skill=f"intent:{briefing.intent.value}",
        tools=spawns.tools_used(conn, started.spawn_id),
    )


def _settle_failure(
    parts: Parts,
    key: str,
    started: Started,
    code: str,
    result: SpawnResult | None,
    salvage: tuple[Contract, list[str]] | None,
) -> Report:
    with parts.db.transaction() as conn:
        if not spawns.finish(conn, started.spawn_id, status="failed", code=code, result=result):
            return _overtaken(conn, key, started)
        if salvage is not None:
            spawns.store_contract(conn, started.spawn_id, *salvage)
        registry.count_spawn(conn, started.briefing.agent, failed=True)
        _experience(conn, key, started, "spawn_failed")
        if code in NO_MODEL:
            audit.alert(conn, f"spawn:agent_{code}", f"agent_{code}")
        put_back(parts, conn, tracking.require(conn, key), code, retry_now=False)
    return StageFailed(STAGE, key, code)


def _settle_interrupt(parts: Parts, key: str, started: Started, *, cancelled: bool) -> None:
    status, code = ("cancelled", "cancelled_by_hand") if cancelled else ("lost", "interrupted")
    with parts.db.transaction() as conn:
        if not spawns.finish(conn, started.spawn_id, status=status, code=code):
            _overtaken(conn, key, started)
        elif cancelled:
            tracking.move(
                conn,
                key,
                expected=[Status.SPAWNING],
                to=Status.ESCALATED,
                action="spawn_failed",
                actor="spawn",
                reason_code=code,
            )
            queue_recap(parts, conn, key, code)
        else:
            put_back(parts, conn, tracking.require(conn, key), code, retry_now=True)


def _overtaken(conn: Connection, key: str, started: Started) -> StageFailed:
    """We were taken for dead: the start was settled without us, and what comes after it is another's."""
    audit.record(conn, key, "spawn_overtaken", actor="spawn", spawn=started.spawn_id)
    return StageFailed(STAGE, key, "spawn_overtaken")


def put_back(
    parts: Parts, conn: Connection, state: tracking.Tracking, code: str, *, retry_now: bool, reaped: int = 0
) -> None:
    """After a spawn that did not end ok: back among the candidates, or to a human once the tries, or its money, are used up.

    A run whose model could not be had is no try of the message's: it waits for as long as that takes.
    """
    key = state.message_key
    tries = spawns.tries_used(conn, key, state.round, state.attempt, uncounted=NO_MODEL)
    over = "spawn_tries_exhausted" if tries >= parts.settings.max_tries and code not in NO_MODEL else None
    if code == BUDGET_SPENT:
        over = "spawn_budget_spent"
    if over is not None:
        tracking.move(
            conn,
            key,
            expected=[Status.SPAWNING],
            to=Status.ESCALATED,
            action="spawn_failed",
            actor="spawn",
            reason_code=over,
            last=code,
        )
        audit.alert(conn, f"escalated:{key}", over, key=key)
        queue_recap(parts, conn, key, over)
        return
    tracking.move(
        conn,
        key,
        expected=[Status.SPAWNING],
        to=Status.CLASSIFIED,
        action="spawn_failed",
        actor="spawn",
        reason_code=code,
        reaped=reaped,
    )
    if retry_now:
        tracking.request_spawn(conn, key)


def _facts(result: SpawnResult, commits: Sequence[str], contract: Contract) -> dict[str, str | int | float | bool]:
    return {
        "code": result.code,
        "seconds": round(result.seconds, 1),
        "events": result.events,
        "cost_usd": result.cost_usd or 0.0,
        "commits": len(commits),
        "contract": contract.status,
        "routes": len(contract.routes),
    }
