"""Recaps waiting to be sent. Each is claimed by one sender, and never sent again once its fate is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from atlas_pipeline.store import audit
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_json

_STALE_SECONDS = 600


@dataclass(frozen=True)
class Queued:
    """One row of the outbox, claimed by its reader."""

    id: int
    message_key: str | None
    round: int
    attempt: int
    kind: str
    message_id: str
    facts: Row
    tries: int
    age_seconds: float


def queue(
    conn: Connection, key: str, *, round_: int, attempt: int, kind: str, message_id: str, facts: dict[str, object]
) -> None:
    """Put one in; a second call for the same attempt and kind changes nothing."""
    conn.execute(
        "insert into atlas.notifications (message_key, round, attempt, kind, message_id, facts) values (%s, %s, %s, %s, %s, %s) "
        "on conflict (message_key, round, attempt, kind) do nothing",
        (key, round_, attempt, kind, message_id, Jsonb(clean_json(facts))),
    )


def queue_alert(conn: Connection, *, kind: str, message_id: str, facts: dict[str, object]) -> None:
    """Put in an ``alert`` or an ``all_clear``, which concern no message. Each call is one mail: the caller knows what is new."""
    conn.execute(
        "insert into atlas.notifications (round, attempt, kind, message_id, facts) values (0, 0, %s, %s, %s)",
        (kind, message_id, Jsonb(clean_json(facts))),
    )


def give_up_stale(conn: Connection) -> int:
    """A row that was being sent when its sender died may have left the house: it becomes ``uncertain``, for a human."""
    rows = conn.execute(
        "update atlas.notifications set state = 'uncertain', code = 'sender_died' where state = 'sending' "
        "and claimed_at < now() - %s * interval '1 second' returning id, message_key",
        (_STALE_SECONDS,),
    ).fetchall()
    for row in rows:
        audit.record(conn, row["message_key"], "recap_uncertain", actor="outbox", code="sender_died")
        audit.alert(conn, f"recap:{row['id']}", "sender_died", key=row["message_key"])
    return len(rows)


def claim(conn: Connection) -> Queued | None:
    """The next row that is due, now ours alone; None where nothing is due."""
    row = conn.execute(
        "update atlas.notifications set state = 'sending', claimed_at = now(), tries = tries + 1 where id = ("
        "select id from atlas.notifications where state = 'pending' and next_try_at <= now() order by id limit 1 for update skip locked) "
        "returning id, message_key, round, attempt, kind, message_id, facts, tries, "
        "extract(epoch from now() - created_at)::float as age_seconds"
    ).fetchone()
    return Queued(**row) if row else None


def sent(conn: Connection, row: Queued, recipients: Sequence[str], refused: Sequence[str]) -> None:
    """The server has taken it."""
    conn.execute(
        "update atlas.notifications set state = 'sent', sent_at = now(), code = null, recipients = %s where id = %s",
        (list(recipients), row.id),
    )
    audit.record(
        conn,
        row.message_key,
        "recap_sent",
        actor="outbox",
        kind=row.kind,
        recipients=len(recipients),
        refused=len(refused),
    )


def defer(conn: Connection, row: Queued, code: str, *, seconds: int) -> None:
    """Not taken, nothing left the house: again later."""
    conn.execute(
        "update atlas.notifications set state = 'pending', code = %s, next_try_at = now() + %s * interval '1 second' where id = %s",
        (code, seconds, row.id),
    )
    audit.record(conn, row.message_key, "recap_deferred", actor="outbox", kind=row.kind, code=code)


def give_up(conn: Connection, row: Queued, state: str, code: str) -> None:
    """``refused`` (permanent) or ``uncertain`` (may have left): never sent again by itself; raises an alarm."""
    conn.execute("update atlas.notifications set state = %s, code = %s where id = %s", (state, code, row.id))
    audit.record(conn, row.message_key, f"recap_{state}", actor="outbox", kind=row.kind, code=code)
    audit.alert(conn, f"recap:{row.id}", code, key=row.message_key)


def bounced(conn: Connection, message_id: str) -> Row | None:
    """A server returned this mail of ours: note it; its message key (None for an alarm) and kind, None where it is not ours."""
    return conn.execute(
        "update atlas.notifications set bounced_at = now() where message_id = %s returning message_key, kind",
        (message_id,),
    ).fetchone()


def counts(conn: Connection) -> dict[str, int]:
    """How many recaps stand in each state."""
    rows = conn.execute("select state, count(*) as n from atlas.notifications group by state order by state")
    return {row["state"]: row["n"] for row in rows}


def due(conn: Connection) -> bool:
    """Whether a recap is to be sent now, or one was being sent for too long."""
    row = conn.execute(
        "select exists (select from atlas.notifications where (state = 'pending' and next_try_at <= now()) "
        "or (state = 'sending' and claimed_at < now() - %s * interval '1 second')) as due",
        (_STALE_SECONDS,),
    ).fetchone()
    return bool(row and row["due"])
