"""Recaps waiting to be sent. Each is claimed by one sender, and never sent again once its fate is unknown.

A claim is the row in ``sending`` and the number of its try: a sender that comes back after its row was taken from it (it
was thought dead) settles nothing, what it says is audited as ``recap_late``. What is ``uncertain`` or ``refused`` is a
person's to decide, by ``confirm`` and ``ask_again``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from atlas_pipeline.errors import Refused
from atlas_pipeline.store import audit
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_json

_STALE_SECONDS = 600
SENDER_DIED = "sender_died"


_LISTED = (
    "select id, message_key, round, attempt, kind, state, code, tries, claimed_at, sent_at, bounced_at, asked_again_at, "
    "refused_recipients, message_id from atlas.notifications"
)


@dataclass(frozen=True)
class Queued:
    """One row of the outbox, claimed by its reader; ``age_seconds`` since it was queued or a person asked for it again."""

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
        "update atlas.notifications set state = 'uncertain', code = %s where state = 'sending' "
        "and claimed_at < now() - %s * interval '1 second' returning id, message_key",
        (SENDER_DIED, _STALE_SECONDS),
    ).fetchall()
    for row in rows:
        audit.record(conn, row["message_key"], "recap_uncertain", actor="outbox", code=SENDER_DIED)
        audit.alert(conn, f"recap:{row['id']}", SENDER_DIED, key=row["message_key"])
    return len(rows)


def claim(conn: Connection) -> Queued | None:
    """The next row that is due, now ours alone; None where nothing is due."""
    row = conn.execute(
        "update atlas.notifications set state = 'sending', claimed_at = now(), tries = tries + 1 where id = ("
        "select id from atlas.notifications where state = 'pending' and next_try_at <= now() order by id limit 1 for update skip locked) "
        "returning id, message_key, round, attempt, kind, message_id, facts, tries, "
        "extract(epoch from now() - coalesce(asked_again_at, created_at))::float as age_seconds"
    ).fetchone()
    return Queued(**row) if row else None


def sent(conn: Connection, row: Queued, recipients: Sequence[str], refused: Sequence[tuple[str, int]]) -> bool:
    """The server has taken it for ``recipients`` and not for ``refused`` (address, SMTP code); False where it is too late.

    It also ends the doubt about a row that was given up as its sender's and that nobody has decided since: it is a fact.
    """
    taken = conn.execute(
        "update atlas.notifications set state = 'sent', sent_at = now(), code = null, recipients = %(to)s, refused_recipients = %(not)s "
        "where id = %(id)s and tries = %(try)s and (state = 'sending' or (state = 'uncertain' and code = %(died)s))",
        {
            "to": list(recipients),
            "not": [f"{address} {code}" for address, code in refused],
            "id": row.id,
            "try": row.tries,
            "died": SENDER_DIED,
        },
    )
    if not taken.rowcount:
        return _too_late(conn, row, "sent", None)
    audit.record(
        conn,
        row.message_key,
        "recap_sent",
        actor="outbox",
        kind=row.kind,
        recipients=len(recipients),
        refused=len(refused),
    )
    if refused:
        # Somebody of the team is told nothing any more: the setting is wrong every time, so one alarm a day is enough.
        audit.alert(conn, "recap_partly_refused", "recap_partly_refused", hours=24, recipients=len(refused))
    return True


def defer(conn: Connection, row: Queued, code: str, *, seconds: int) -> bool:
    """Not taken, nothing left the house: again in so many seconds. False, and nothing changed, where it is too late."""
    put_back = conn.execute(
        "update atlas.notifications set state = 'pending', code = %s, next_try_at = now() + %s * interval '1 second' "
        "where id = %s and tries = %s and state = 'sending'",
        (code, seconds, row.id, row.tries),
    )
    if not put_back.rowcount:
        return _too_late(conn, row, "deferred", code)
    audit.record(conn, row.message_key, "recap_deferred", actor="outbox", kind=row.kind, code=code)
    return True


def give_up(conn: Connection, row: Queued, state: str, code: str) -> bool:
    """``refused`` (permanent) or ``uncertain`` (may have left): never sent again by itself; raises an alarm.

    False, and nothing changed, where it is too late.
    """
    given_up = conn.execute(
        "update atlas.notifications set state = %s, code = %s where id = %s and tries = %s and state = 'sending'",
        (state, code, row.id, row.tries),
    )
    if not given_up.rowcount:
        return _too_late(conn, row, state, code)
    audit.record(conn, row.message_key, f"recap_{state}", actor="outbox", kind=row.kind, code=code)
    audit.alert(conn, f"recap:{row.id}", code, key=row.message_key)
    return True


def _too_late(conn: Connection, row: Queued, outcome: str, code: str | None) -> bool:
    audit.record(conn, row.message_key, "recap_late", actor="outbox", kind=row.kind, outcome=outcome, code=code)
    return False


def confirm(conn: Connection, number: int, *, actor: str) -> None:
    """A person says that an ``uncertain`` mail came: it counts as sent when it was claimed.

    Raises Refused ``recap_unknown``, and ``recap_not_open`` for a row in any other state.
    """
    row = _decided(conn, number, ("uncertain",))
    conn.execute(
        "update atlas.notifications set state = 'sent', sent_at = coalesce(claimed_at, now()), code = null where id = %s",
        (number,),
    )
    audit.record(conn, row["message_key"], "recap_confirmed", actor=actor, kind=row["kind"], was=row["code"])


def ask_again(conn: Connection, number: int, *, actor: str) -> None:
    """A person says that an ``uncertain`` mail did not come, or that what had it ``refused`` is mended: due now.

    It goes out under the same Message-ID. Raises Refused as ``confirm``.
    """
    row = _decided(conn, number, ("uncertain", "refused"))
    conn.execute(
        "update atlas.notifications set state = 'pending', next_try_at = now(), asked_again_at = now(), code = null where id = %s",
        (number,),
    )
    audit.record(conn, row["message_key"], "recap_asked_again", actor=actor, kind=row["kind"], was=row["code"])


def _decided(conn: Connection, number: int, states: Sequence[str]) -> Row:
    row = conn.execute(
        "select message_key, kind, state, code from atlas.notifications where id = %s for update", (number,)
    ).fetchone()
    if row is None:
        raise Refused("recap_unknown", recap=number)
    if row["state"] not in states:
        raise Refused("recap_not_open", recap=number, state=row["state"])
    return row


def of_message(conn: Connection, key: str) -> list[Row]:
    """A message's rows, newest first: number, state, code, and what else ``for_people`` gives."""
    return conn.execute(f"{_LISTED} where message_key = %s order by id desc".encode(), (key,)).fetchall()


def numbered(conn: Connection, number: int) -> list[Row]:
    """The row with this number, as ``of_message`` gives it, or nothing."""
    return conn.execute(f"{_LISTED} where id = %s".encode(), (number,)).fetchall()


def for_people(conn: Connection, limit: int = 20) -> list[Row]:
    """Rows that a person should look at, newest first: uncertain, refused, or not taken for some recipient."""
    return conn.execute(
        f"{_LISTED} where state in ('uncertain', 'refused') or refused_recipients <> '{{}}' order by id desc limit %s".encode(),
        (limit,),
    ).fetchall()


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
