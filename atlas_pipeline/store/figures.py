"""What calibration counts: a month's rows, aggregated by the database. Always recomputed, never incremented."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.store.work import TABLES


def volume_by_intent(conn: Connection, start: datetime, end: datetime) -> list[Row]:
    """Classifications of the span by intent: count, mean and (sample) standard deviation of confidence, uncertain ones."""
    return conn.execute(
        "select intent, count(*) as volume, avg(confidence)::float as mean, stddev_samp(confidence)::float as deviation, "
        "count(*) filter (where uncertain) as uncertain from atlas.classifications where at >= %s and at < %s group by intent order by intent",
        (start, end),
    ).fetchall()


def drafts_by_kind(conn: Connection, start: datetime, end: datetime) -> dict[str, tuple[int, int]]:
    """Live work records created in the span, by table: (drafts generated, of which cancelled)."""
    query = " union all ".join(
        f"select '{table}' as kind, count(*) as drafts, count(*) filter (where status = 'cancelled') as cancelled from atlas.{table} "  # noqa: S608
        "where superseded_at is null and created_at >= %(start)s and created_at < %(end)s"
        for table in TABLES
    )
    rows = conn.execute(query.encode(), {"start": start, "end": end})
    return {row["kind"]: (row["drafts"], row["cancelled"]) for row in rows}


def internal_jobs(conn: Connection, end: datetime) -> tuple[int, int]:
    """Live chantiers of internal tenants made before ``end``: (jobs, of which not cancelled).

    The specification's proxy: a draft that nobody has cancelled counts as kept, decided or not.
    """
    row = conn.execute(
        "select count(*) as jobs, count(*) filter (where c.status <> 'cancelled') as kept from atlas.chantiers c "
        "join atlas.tenants t on t.slug = c.tenant where t.internal and c.superseded_at is null and c.created_at < %s",
        (end,),
    ).fetchone()
    return (row["jobs"], row["kept"]) if row else (0, 0)


def audit_counts(conn: Connection, start: datetime, end: datetime) -> dict[str, int]:
    """How often each action was audited in the span."""
    rows = conn.execute(
        "select action, count(*) as n from atlas.audit_log where at >= %s and at < %s group by action order by action",
        (start, end),
    )
    return {row["action"]: row["n"] for row in rows}


def store_report(conn: Connection, month: str, metrics: dict[str, Any], rendered: str) -> None:
    """Keep the month's report; a month computed again replaces it."""
    conn.execute(
        "insert into atlas.calibration_reports (month, metrics, rendered) values (%s, %s, %s) on conflict (month) "
        "do update set metrics = excluded.metrics, rendered = excluded.rendered, computed_at = now()",
        (month, Jsonb(metrics), rendered),
    )


def report(conn: Connection, month: str) -> Row | None:
    """The stored report of a month."""
    return conn.execute(
        "select month, computed_at, metrics, rendered from atlas.calibration_reports where month = %s", (month,)
    ).fetchone()
