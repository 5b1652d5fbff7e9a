"""Work records: one live a message, exclusive across the five tables, superseded and never deleted."""

from __future__ import annotations

from psycopg import sql

from atlas_pipeline.errors import Refused
from atlas_pipeline.store import audit
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_text

TABLES = ("runs", "chantiers", "questions", "negociations", "conseils")
_DECIDED = {"accept": "accepted", "cancel": "cancelled"}


def create(conn: Connection, key: str, *, table: str, title: str, tenant: str | None) -> int:
    """The live record of this message in ``table``, made unless it exists; traced back to the tracking row. Returns its id."""
    target = sql.Identifier("atlas", _known(table))
    conn.execute("update atlas.inbox set work_kind = %s where message_key = %s", (table, key))
    conn.execute(
        sql.SQL(
            "insert into {} (message_key, title, tenant) values (%s, %s, %s) on conflict (live_key) do nothing"
        ).format(target),
        (key, clean_text(title), tenant),
    )
    row = conn.execute(sql.SQL("select id from {} where live_key = %s").format(target), (key,)).fetchone()
    if row is None:
        raise Refused("work_record_missing", table=table)
    conn.execute("update atlas.inbox set work_id = %s where message_key = %s", (row["id"], key))
    if table == "questions":  # a reply may have been prepared before, as when the message is taken in again
        conn.execute(
            "update atlas.questions set draft_id = coalesce(draft_id, "
            "(select max(id) from atlas.reply_drafts where message_key = %s)) where id = %s",
            (key, row["id"]),
        )
    return int(row["id"])


def live(conn: Connection, key: str, table: str) -> Row | None:
    """The live record of a message in ``table``: ``id``, ``title``, ``tenant``, ``status``."""
    return conn.execute(
        sql.SQL("select id, title, tenant, status from {} where live_key = %s").format(
            sql.Identifier("atlas", _known(table))
        ),
        (key,),
    ).fetchone()


def supersede(conn: Connection, key: str) -> None:
    """The live record, whichever table it is in, is kept, marked, and out of the metrics."""
    for table in TABLES:
        conn.execute(
            sql.SQL("update {} set superseded_at = now() where live_key = %s").format(sql.Identifier("atlas", table)),
            (key,),
        )
    conn.execute("update atlas.inbox set work_kind = null, work_id = null where message_key = %s", (key,))


def decide(conn: Connection, key: str, verb: str, *, actor: str) -> str:
    """An operator accepts or cancels the draft; returns the table. Raises Refused("no_work_record")."""
    status = _DECIDED[verb]
    row = conn.execute("select work_kind, work_id from atlas.inbox where message_key = %s", (key,)).fetchone()
    if not row or not row["work_kind"]:
        raise Refused("no_work_record", key=key)
    conn.execute(
        sql.SQL("update {} set status = %s, decided_at = now(), decided_by = %s where id = %s").format(
            sql.Identifier("atlas", _known(row["work_kind"]))
        ),
        (status, actor, row["work_id"]),
    )
    audit.record(conn, key, f"work_{status}", actor=actor, kind=row["work_kind"])
    return str(row["work_kind"])


def _known(table: str) -> str:
    if table not in TABLES:
        raise Refused("work_table_unknown")
    return table
