"""Agents started: who may be, who is, how it went, and the events while it runs."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Protocol

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import Jsonb

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import Contract, Intent, Profile, SpawnResult
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_json, clean_text

HOOK_ROLE = "atlas_agent"
AUDIT_ACTIONS = ("spawn_started", "spawn_completed", "spawn_failed")


class Event(Protocol):
    """What an event must offer to be stored."""

    @property
    def seq(self) -> int:
        """Gap-free from 1 within its spawn."""

    @property
    def type(self) -> str:
        """Type and subtype, dotted."""

    @property
    def tool(self) -> str | None:
        """Name of the tool, if one is involved."""

    @property
    def payload(self) -> Any:  # any JSON value
        """The event as printed."""


@dataclass(frozen=True)
class Candidate:
    """A classified message that may be given to an agent now."""

    message_key: str
    tenant: str | None
    intent: Intent


@dataclass(frozen=True)
class Spawn:
    """One start of an agent."""

    id: int
    message_key: str
    round: int
    attempt: int
    try_: int
    status: str
    code: str | None
    profile: Profile
    tenant: str | None
    agent: str
    pid: int | None
    pid_started: float | None
    branch: str | None
    base_commit: str | None
    commits: tuple[str, ...]
    contract: Contract | None
    cost_usd: float | None
    seconds: float | None
    heartbeat_age: float


def candidates(conn: Connection, *, intents: Sequence[str], quiet_seconds: int, limit: int) -> list[Candidate]:
    """Messages in ``classified`` with an allowed intent and no spawn audit within ``quiet_seconds``, oldest first."""
    rows = conn.execute(
        "select i.message_key, i.tenant, i.intent from atlas.inbox i join atlas.mailbox_ledger l using (message_key) "
        "where i.status = 'classified' and i.intent = any(%(intents)s) and not exists ("
        " select from atlas.audit_log a where a.message_key = i.message_key and a.action = any(%(actions)s) "
        " and a.at > now() - %(quiet)s * interval '1 second') order by l.seq limit %(limit)s",
        {"intents": list(intents), "actions": list(AUDIT_ACTIONS), "quiet": quiet_seconds, "limit": limit},
    )
    return [Candidate(row["message_key"], row["tenant"], Intent(row["intent"])) for row in rows]


def quiet(conn: Connection, key: str, quiet_seconds: int) -> bool:
    """Whether the message saw no spawn audit within ``quiet_seconds``."""
    row = conn.execute(
        "select not exists (select from atlas.audit_log where message_key = %s and action = any(%s) "
        "and at > now() - %s * interval '1 second') as quiet",
        (key, list(AUDIT_ACTIONS), quiet_seconds),
    ).fetchone()
    return bool(row and row["quiet"])


def live(conn: Connection) -> list[Row]:
    """Spawns claimed or running: key, tenant, pid, and seconds since the last heartbeat."""
    return conn.execute(
        "select id, message_key, tenant, pid, pid_started, attempt, extract(epoch from now() - heartbeat_at)::float as heartbeat_age "
        "from atlas.spawns where status in ('claimed', 'running') order by id"
    ).fetchall()


def claim(
    conn: Connection,
    key: str,
    *,
    round_: int,
    attempt: int,
    try_: int,
    profile: Profile,
    tenant: str | None,
    agent: str,
    model: str,
    run_id: str,
) -> int:
    """The row that says an agent is about to be started; its id. The unique key makes a second start impossible."""
    row = conn.execute(
        "insert into atlas.spawns (message_key, round, attempt, try, profile, tenant, agent, model, run_id) "
        "values (%s, %s, %s, %s, %s, %s, %s, %s, %s) returning id",
        (key, round_, attempt, try_, profile.value, tenant, agent, model, run_id),
    ).fetchone()
    assert row is not None  # noqa: S101  # insert … returning yields a row or raises
    return int(row["id"])


def store_briefing(conn: Connection, spawn_id: int, body: str) -> None:
    """What the agent is told about itself, kept once however often it is told."""
    digest = hashlib.sha256(clean_text(body).encode()).hexdigest()
    conn.execute(
        "insert into atlas.briefings (sha256, body) values (%s, %s) on conflict do nothing", (digest, clean_text(body))
    )
    conn.execute("update atlas.spawns set briefing_sha256 = %s where id = %s", (digest, spawn_id))


def tools_used(conn: Connection, spawn_id: int) -> list[str]:
    """Names of the tools that an agent has called."""
    rows = conn.execute(
        "select distinct tool_name from atlas.spawn_event_log where spawn_id = %s and tool_name is not null",
        (spawn_id,),
    )
    return [row["tool_name"] for row in rows]


def started(conn: Connection, spawn_id: int, pid: int, pid_started: float) -> None:
    """The agent's process exists. A start that somebody settled meanwhile stays as it is."""
    conn.execute(
        "update atlas.spawns set status = 'running', pid = %s, pid_started = %s, started_at = now(), heartbeat_at = now() "
        "where id = %s and status = 'claimed'",
        (pid, pid_started, spawn_id),
    )


def hook_coordinates(url: str) -> dict[str, Any]:
    """The parts of the hooks' URL. Raises NotConfigured ``agent_database_url_invalid``, ``agent_database_role_wrong``."""
    try:
        wanted = conninfo_to_dict(url)
    except ProgrammingError:
        raise NotConfigured("agent_database_url_invalid") from None
    if wanted.get("user") != HOOK_ROLE:
        raise NotConfigured("agent_database_role_wrong")
    return wanted


def hook_access(conn: Connection, spawn_id: int, url: str) -> dict[str, str]:
    """What the hooks of this start connect with, as libpq's variables and a token that is worth something while it runs.

    Raises what ``hook_coordinates`` raises.
    """
    wanted = hook_coordinates(url)
    token = secrets.token_urlsafe(32)
    digest = hashlib.sha256(token.encode()).digest()
    row = conn.execute(
        "update atlas.spawns set hook_token_sha256 = %s where id = %s returning message_key", (digest, spawn_id)
    ).fetchone()
    assert row is not None  # noqa: S101  # the caller made the row
    named = {
        "PGHOST": "host", "PGPORT": "port", "PGDATABASE": "dbname", "PGUSER": "user", "PGPASSWORD": "password",
        "PGSSLMODE": "sslmode", "PGSSLROOTCERT": "sslrootcert",
    }  # fmt: skip
    access = {name: str(wanted[part]) for name, part in named.items() if wanted.get(part) is not None}
    return {**access, "ATLAS_HOOK_TOKEN": token, "ATLAS_MESSAGE_KEY": row["message_key"]}


def set_branch(conn: Connection, spawn_id: int, branch: str, base_commit: str) -> None:
    """Where the agent works."""
    conn.execute("update atlas.spawns set branch = %s, base_commit = %s where id = %s", (branch, base_commit, spawn_id))


def heartbeat(conn: Connection, spawn_id: int) -> bool:
    """The owner lives; False where the start is no longer its own: somebody took it for dead and settled it."""
    updated = conn.execute(
        "update atlas.spawns set heartbeat_at = now() where id = %s and status in ('claimed', 'running')", (spawn_id,)
    )
    return updated.rowcount == 1


def add_events(conn: Connection, spawn_id: int, events: Sequence[Event]) -> None:
    """Persist a batch through the view, as the specification asks (COPY can't write through one)."""
    conn.execute(
        "insert into atlas.spawn_events (spawn_id, seq, at, event_type, tool_name, payload) "
        "select %s, seq, clock_timestamp(), kind, tool, payload from "
        "unnest(%s::int[], %s::text[], %s::text[], %s::jsonb[]) as e (seq, kind, tool, payload)",
        (
            spawn_id,
            [event.seq for event in events],
            [event.type for event in events],
            [event.tool for event in events],
            [Jsonb(clean_json(event.payload)) for event in events],
        ),
    )


def finish(conn: Connection, spawn_id: int, *, status: str, code: str, result: SpawnResult | None = None) -> bool:
    """How it ended: ``ok``, ``failed``, ``cancelled`` or ``lost``. The first word is the last: False where one was said already."""
    updated = conn.execute(
        "update atlas.spawns set status = %s, code = %s, ended_at = now() where id = %s and status in ('claimed', 'running')",
        (status, code, spawn_id),
    )
    if updated.rowcount != 1:
        return False
    if result is not None:
        facts = {name: value for name, value in asdict(result).items() if name not in {"ok", "code", "result_seen"}}
        assignments = ", ".join(f"{name} = %({name})s" for name in facts)
        conn.execute(f"update atlas.spawns set {assignments} where id = %(id)s", {**facts, "id": spawn_id})  # noqa: S608  # our own field names
    return True


def store_contract(conn: Connection, spawn_id: int, contract: Contract, commits: Sequence[str]) -> None:
    """The validated result file, and the commits that git counts (not those that the agent claims)."""
    facts = asdict(contract)
    conn.execute(
        "update atlas.spawns set contract = %s, commits = %s where id = %s",
        (Jsonb(clean_json(facts)), list(commits), spawn_id),
    )


def latest(conn: Connection, key: str, round_: int, attempt: int) -> Spawn | None:
    """The newest try of this attempt."""
    rows = _select(
        conn, "message_key = %s and round = %s and attempt = %s order by try desc limit 1", (key, round_, attempt)
    )
    return rows[0] if rows else None


def of_round(conn: Connection, key: str, round_: int) -> list[Spawn]:
    """All starts of this round, in order."""
    return _select(conn, "message_key = %s and round = %s order by attempt, try", (key, round_))


def unattended(conn: Connection, silent_seconds: float) -> list[str]:
    """Keys of messages in ``spawning`` for which no start is live, and of which the audit says nothing since ``silent_seconds``."""
    rows = conn.execute(
        "select i.message_key from atlas.inbox i where i.status = 'spawning' "
        "and i.status_at < now() - %(silent)s * interval '1 second' "
        "and not exists (select from atlas.spawns s where s.message_key = i.message_key and s.status in ('claimed', 'running')) "
        "and not exists (select from atlas.audit_log a where a.message_key = i.message_key "
        "and a.action <> 'alert' and a.at > now() - %(silent)s * interval '1 second') order by i.message_key",
        {"silent": silent_seconds},
    )
    return [row["message_key"] for row in rows]


def live_of(conn: Connection, key: str) -> list[Spawn]:
    """Starts of this message that are marked as claimed or running."""
    return _select(conn, "message_key = %s and status in ('claimed', 'running') order by id", (key,))


def spent_since(conn: Connection, start: datetime, *, unknown: float) -> dict[Profile, float]:
    """US dollars since a moment, by profile.

    A start that is at work, or that ended without saying its price after it had said something, counts as ``unknown``: all it may cost.
    """
    rows = conn.execute(
        "select profile, sum(coalesce(s.cost_usd::float, case when s.ended_at is null or exists "
        "(select from atlas.spawn_event_log e where e.spawn_id = s.id) then %s else 0 end)) as dollars "
        "from atlas.spawns s where s.ended_at is null or s.ended_at >= %s group by profile",
        (unknown, start),
    )
    return {Profile(row["profile"]): float(row["dollars"]) for row in rows}


def last_ended(conn: Connection) -> tuple[str, float] | None:
    """Code of the newest start that came to its own end, and how many seconds ago that was."""
    row = conn.execute(
        "select code, extract(epoch from now() - ended_at)::float as ago from atlas.spawns "
        "where ended_at is not null and status in ('ok', 'failed') order by ended_at desc limit 1"
    ).fetchone()
    return (str(row["code"]), float(row["ago"])) if row else None


def tries_used(conn: Connection, key: str, round_: int, attempt: int, *, uncounted: Collection[str]) -> int:
    """Starts within this attempt; those that ended with one of the ``uncounted`` codes are not held against the message."""
    row = conn.execute(
        "select count(*) as n from atlas.spawns where message_key = %s and round = %s and attempt = %s "
        "and (code is null or code <> all(%s))",
        (key, round_, attempt, list(uncounted)),
    ).fetchone()
    return int(row["n"]) if row else 0


def totals(conn: Connection, key: str, round_: int) -> tuple[float, float]:
    """Cost in US dollars and seconds of all starts of this round."""
    row = conn.execute(
        "select coalesce(sum(cost_usd), 0)::float as cost, coalesce(sum(seconds), 0)::float as seconds from atlas.spawns "
        "where message_key = %s and round = %s",
        (key, round_),
    ).fetchone()
    return (row["cost"], row["seconds"]) if row else (0.0, 0.0)


def _select(conn: Connection, where: str, values: tuple[Any, ...]) -> list[Spawn]:
    columns = (
        "id, message_key, round, attempt, try as try_, status, code, profile, tenant, agent, pid, pid_started, branch, base_commit, "
        "commits, contract, cost_usd::float, seconds, extract(epoch from now() - heartbeat_at)::float as heartbeat_age"
    )
    query = f"select {columns} from atlas.spawns where {where}"  # noqa: S608  # literals of this module
    return [_spawn(row) for row in conn.execute(query.encode(), values)]


def _spawn(row: Row) -> Spawn:
    facts = row["contract"]
    contract = None
    if facts is not None:
        intent = facts.get("intent")
        contract = Contract(
            **{
                **facts,
                "routes": tuple(facts["routes"]),
                "commits": tuple(facts["commits"]),
                "problems": tuple(facts["problems"]),
                "intent": Intent(intent) if intent else None,
            }
        )
    return Spawn(**{**row, "profile": Profile(row["profile"]), "commits": tuple(row["commits"]), "contract": contract})


def newest_id(conn: Connection, key: str) -> int | None:
    """The newest start of an agent for this message."""
    row = conn.execute("select max(id) as id from atlas.spawns where message_key = %s", (key,)).fetchone()
    return None if row is None or row["id"] is None else int(row["id"])


def events_after(conn: Connection, spawn_id: int, seq: int, limit: int = 500) -> tuple[list[Row], bool]:
    """The next events after ``seq`` (no payload), and whether the agent still runs."""
    state = conn.execute(
        "select status in ('claimed', 'running') as live from atlas.spawns where id = %s", (spawn_id,)
    ).fetchone()
    rows = conn.execute(
        "select seq, at, event_type, tool_name from atlas.spawn_events where spawn_id = %s and seq > %s order by seq limit %s",
        (spawn_id, seq, limit),
    ).fetchall()
    return rows, bool(state and state["live"])
