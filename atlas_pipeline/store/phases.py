"""Which phase the house is in, and what the gate decided month by month. Both are histories: nothing in them is changed."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from atlas_pipeline.store import audit
from atlas_pipeline.store.database import Connection, Row

# The specification's phases: confined to internal use, and open to clients.
INTERNAL, OPEN = 2, 3
_LOCK = "atlas.phases"


def decide(conn: Connection, month: str, *, earned: bool, evidence: dict[str, Any]) -> bool:
    """Write the gate's decision for a month unless its newest says the same; True where it is new.

    Phase 3 is left at once where the newest month's decision says that the gate is lost: an alarm is raised, and coming back takes an
    operator again. A report of an older month made anew writes its decision and changes no phase.
    """
    lock(conn)
    last = conn.execute(
        "select earned = %s and evidence = %s as same from atlas.phase_decisions where month = %s order by id desc limit 1",
        (earned, Jsonb(evidence), month),
    ).fetchone()
    if last is not None and last["same"]:
        return False
    conn.execute(
        "insert into atlas.phase_decisions (month, earned, evidence, actor) values (%s, %s, %s, 'calibration')",
        (month, earned, Jsonb(evidence)),
    )
    audit.record(conn, None, "gate_decided", actor="calibration", month=month, earned=earned)
    newest = newest_decision(conn)
    if newest is not None and not newest["earned"] and current(conn)["phase"] == OPEN:
        _enter(conn, INTERNAL, newest, "calibration", "phase_lost")
        audit.alert(conn, "phase", "phase_lost", month=newest["month"])
    return True


def newest_decision(conn: Connection) -> Row | None:
    """The newest month's last decision: ``id``, ``at``, ``month``, ``earned``, ``evidence``; None before the first report."""
    return conn.execute(
        "select id, at, month, earned, evidence from atlas.phase_decisions order by month desc, id desc limit 1"
    ).fetchone()


def decisions(conn: Connection, limit: int = 12) -> list[Row]:
    """The last decision of each month, the newest month first."""
    return conn.execute(
        "select distinct on (month) month, at, earned, evidence from atlas.phase_decisions order by month desc, id desc limit %s",
        (limit,),
    ).fetchall()


def current(conn: Connection) -> Row:
    """The phase the house is in: ``phase``, ``at`` and ``actor`` (None where it never left the first), ``month`` of its evidence."""
    row = conn.execute(
        "select p.phase, p.at, p.actor, d.month from atlas.phases p join atlas.phase_decisions d on d.id = p.decision_id "
        "order by p.id desc limit 1"
    ).fetchone()
    return row or {"phase": INTERNAL, "at": None, "actor": None, "month": None}


def promote(conn: Connection, decision: Row, *, actor: str) -> None:
    """Enter phase 3 on this decision, audited. The database refuses an actor that is no operator."""
    _enter(conn, OPEN, decision, actor, "phase_promoted")


def lock(conn: Connection) -> None:
    """Keep others from deciding or promoting until the transaction ends."""
    conn.execute("select pg_advisory_xact_lock(hashtext(%s))", (_LOCK,))


def _enter(conn: Connection, phase: int, decision: Row, actor: str, action: str) -> None:
    conn.execute(
        "insert into atlas.phases (phase, decision_id, actor) values (%s, %s, %s)", (phase, decision["id"], actor)
    )
    audit.record(conn, None, action, actor=actor, phase=phase, month=decision["month"])
