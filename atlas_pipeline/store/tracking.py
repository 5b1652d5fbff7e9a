"""The status of a message, and the only code that writes one.

``move`` is a compare-and-set: it names the status it expects and is refused on any other. It writes the audit line in the
same transaction, so that a status never changes without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_type_hints

from psycopg import sql

from atlas_pipeline.errors import Refused
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.store import audit
from atlas_pipeline.store.database import Connection, Row

# Which status may follow which. The comments name what is not obvious from the picture in the design.
TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.RECEIVED: frozenset({Status.CLASSIFIED, Status.BLOCKED, Status.FAILED}),
    Status.CLASSIFIED: frozenset({Status.SPAWNING, Status.CLOSED, Status.ESCALATED, Status.BLOCKED, Status.RECEIVED}),
    Status.SPAWNING: frozenset({Status.ACTIONED, Status.QA_FAILED, Status.ESCALATED, Status.CLASSIFIED}),
    # qa_failed → classified: an operator's fresh round; otherwise the next attempt spawns straight from here
    Status.QA_FAILED: frozenset(
        {Status.SPAWNING, Status.ESCALATED, Status.CLASSIFIED, Status.RECEIVED, Status.BLOCKED}
    ),
    Status.ACTIONED: frozenset({Status.CLASSIFIED, Status.RECEIVED, Status.BLOCKED}),
    Status.ESCALATED: frozenset({Status.CLASSIFIED, Status.RECEIVED, Status.BLOCKED}),
    Status.CLOSED: frozenset({Status.CLASSIFIED, Status.RECEIVED, Status.BLOCKED}),
    Status.BLOCKED: frozenset({Status.RECEIVED}),
    Status.FAILED: frozenset({Status.RECEIVED, Status.BLOCKED}),
}


@dataclass(frozen=True)
class Tracking:
    """The tracking row."""

    message_key: str
    seq: int
    status: Status
    reason_code: str | None
    intent: Intent | None
    final_intent: Intent | None
    confidence: float | None
    model: str | None
    reasoning: str | None
    tenant: str | None
    tenant_method: str | None
    work_kind: str | None
    work_id: int | None
    round: int
    attempt: int
    scan_override: bool
    spawn_requested_at: datetime | None


_COLUMNS = sql.SQL(", ").join(sql.Identifier(name) for name in get_type_hints(Tracking))


def get(conn: Connection, key: str) -> Tracking | None:
    """The tracking row, or None: a duplicate has none."""
    rows = _select(conn, sql.SQL("i.message_key = %s"), (key,))
    return rows[0] if rows else None


def require(conn: Connection, key: str) -> Tracking:
    """The tracking row. Raises Refused("message_unknown")."""
    row = get(conn, key)
    if row is None:
        raise Refused("message_unknown", key=key)
    return row


def with_status(conn: Connection, statuses: Iterable[Status]) -> list[Tracking]:
    """All rows in one of these statuses, oldest first."""
    return _select(conn, sql.SQL("i.status = any(%s)"), ([status.value for status in statuses],))


def move(
    conn: Connection,
    key: str,
    *,
    expected: Iterable[Status],
    to: Status,
    action: str,
    actor: str,
    reason_code: str | None = None,
    columns: dict[str, Any] | None = None,
    **detail: audit.Fact,
) -> None:
    """Change the status from one of ``expected`` to ``to`` and audit it as ``action``.

    Raises Refused("status_changed") where the row is no longer in an expected status (another actor was first), and
    Refused("transition_unknown") where the picture has no such arrow.
    """
    allowed = [status for status in expected if to in TRANSITIONS[status]]
    if not allowed:
        raise Refused("transition_unknown", to=to.value)
    changes = {"status": to.value, "reason_code": reason_code, **(columns or {})}
    assignments = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in changes
    )
    row = conn.execute(
        sql.SQL(
            "update atlas.inbox set status_at = now(), {} where message_key = %(_key)s and status = any(%(_from)s) returning status"
        ).format(assignments),
        {**changes, "_key": key, "_from": [status.value for status in allowed]},
    ).fetchone()
    if row is None:
        raise Refused("status_changed", to=to.value)
    audit.record(conn, key, action, actor=actor, **{**detail, **({"code": reason_code} if reason_code else {})})


def request_spawn(conn: Connection, key: str) -> None:
    """Ask for an agent now: the next look of the unfinished sensor starts it."""
    conn.execute("update atlas.inbox set spawn_requested_at = now() where message_key = %s", (key,))


def counts(conn: Connection) -> dict[str, int]:
    """How many messages stand in each status."""
    rows = conn.execute("select status, count(*) as n from atlas.inbox group by status order by status")
    return {row["status"]: row["n"] for row in rows}


def _select(conn: Connection, where: sql.SQL, values: tuple[Any, ...]) -> list[Tracking]:
    query = sql.SQL(
        "select {} from atlas.inbox i join atlas.mailbox_ledger l using (message_key) where {} order by l.seq"
    )
    rows: list[Row] = conn.execute(query.format(_COLUMNS, where), values).fetchall()
    return [_tracking(row) for row in rows]


def _tracking(row: Row) -> Tracking:
    intent, final = row["intent"], row["final_intent"]
    return Tracking(
        **{
            **row,
            "status": Status(row["status"]),
            "intent": Intent(intent) if intent else None,
            "final_intent": Intent(final) if final else None,
        }
    )
