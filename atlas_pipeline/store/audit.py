"""The append-only audit log, and alerts. Details are codes, numbers and enums; never content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg.types.json import Jsonb

from atlas_pipeline.store.database import Connection, Row

Fact = str | int | float | bool | list[str] | None


def record(conn: Connection, key: str | None, action: str, *, actor: str, **detail: Fact) -> None:
    """Write one line; ``key`` is the message key, or None for what concerns no message."""
    conn.execute(
        "insert into atlas.audit_log (message_key, action, actor, detail) values (%s, %s, %s, %s)",
        (key, action, actor, Jsonb(detail)),
    )


def record_each(conn: Connection, lines: Sequence[tuple[str, Mapping[str, Fact]]], action: str, *, actor: str) -> None:
    """Write one line a message key, all of one action."""
    with conn.cursor() as cursor:
        cursor.executemany(
            "insert into atlas.audit_log (message_key, action, actor, detail) values (%s, %s, %s, %s)",
            [(key, action, actor, Jsonb(dict(detail))) for key, detail in lines],
        )


def alert(
    conn: Connection, dedupe_key: str, code: str, *, key: str | None = None, hours: float = 1, **detail: Fact
) -> bool:
    """Raise an alarm unless the same ``dedupe_key`` was raised within ``hours``; True when it is a new one. Audited."""
    # The lock makes two processes that see the same fault raise one alarm.
    conn.execute("select pg_advisory_xact_lock(hashtext(%s))", (dedupe_key,))
    row = conn.execute(
        "insert into atlas.alerts (dedupe_key, code, message_key, detail) select %(dedupe)s, %(code)s, %(key)s, %(detail)s "
        "where not exists (select from atlas.alerts where dedupe_key = %(dedupe)s and at > now() - %(hours)s * interval '1 hour') "
        "returning id",
        {"dedupe": dedupe_key, "code": code, "key": key, "detail": Jsonb(detail), "hours": hours},
    ).fetchone()
    if row:
        record(conn, key, "alert", actor="atlas", code=code, **detail)
    return row is not None


def history(conn: Connection, key: str) -> list[Row]:
    """All lines of a message, oldest first."""
    return conn.execute(
        "select at, action, actor, detail from atlas.audit_log where message_key = %s order by id", (key,)
    ).fetchall()


def recent_alerts(conn: Connection, limit: int = 10) -> list[Row]:
    """The newest alarms."""
    return conn.execute(
        "select at, code, message_key, detail from atlas.alerts order by id desc limit %s", (limit,)
    ).fetchall()
