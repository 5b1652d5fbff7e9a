"""A few rows of a month, written as the pipeline writes them and then set back in time."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg

from atlas_pipeline.model import Decision, Intent, ListedMail, Listing, Tenant
from atlas_pipeline.store import audit, ledger, messages, tenants, verdicts, work
from tests.fixtures_flow import Row

Conn = psycopg.Connection[Row]
MID_MONTH = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def a_message(conn: Conn, number: int) -> str:
    mail = ListedMail(str(number), MID_MONTH, 10, seen=False)
    (key,) = ledger.record_listing(conn, Listing("box", 1, None, (mail,)), max_bytes=100)
    messages.store_raw(conn, [(key, b"raw")])
    return key


def classified(conn: Conn, key: str, intent: Intent, confidence: float, at: datetime = MID_MONTH) -> None:
    decision = Decision(
        intent, intent, confidence, "m", "r", (), uncertain=confidence < 0.7, prompt_version="1", tenant=None
    )
    verdicts.add_decision(conn, key, decision)
    with conn.transaction():  # the table is append-only: only the test may set a clock back
        conn.execute("set local session_replication_role = replica")
        conn.execute("update atlas.classifications set at = %s where message_key = %s", (at, key))


def audited(conn: Conn, key: str, action: str, at: datetime = MID_MONTH) -> None:
    audit.record(conn, key, action, actor="test")
    with conn.transaction():
        conn.execute("set local session_replication_role = replica")
        conn.execute("update atlas.audit_log set at = %s where message_key = %s and action = %s", (at, key, action))


def internal_jobs(
    conn: Conn, jobs: int, cancelled: int, *, internal: bool = True, table: str = "chantiers", at: datetime = MID_MONTH
) -> None:
    """So many jobs of the agency's own, of which some were cancelled."""
    tenants.upsert(conn, Tenant("own", "Own", active=True, internal=internal, domains=(), contacts=()))
    for number in range(jobs):
        key = a_message(conn, number)
        work.create(conn, key, table=table, title="t", tenant="own")
        work.decide(conn, key, "cancel" if number < cancelled else "accept", actor="lea")
        conn.execute(f"update atlas.{table} set created_at = %s where message_key = %s".encode(), (at, key))  # noqa: S608
