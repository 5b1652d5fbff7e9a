"""Replays: stored mails judged again beside the truth. Nothing of a message itself is written here, and nothing elsewhere reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from atlas_pipeline.model import Decision
from atlas_pipeline.store.database import Connection, Row, dedicated

REPLAY_CLASS = 4713


def begin(
    conn: Connection, month: str, sha256: str, *, prompt_version: str, floor: float, uncertainty: float, actor: str
) -> int:
    """The replay of this month under this configuration (its hash); one that was begun before goes on."""
    conn.execute(
        "insert into atlas.replays (month, sha256, prompt_version, floor, uncertainty, actor) values (%s, %s, %s, %s, %s, %s) "
        "on conflict (month, sha256) do nothing",
        (month, sha256, prompt_version, floor, uncertainty, actor),
    )
    row = conn.execute("select id from atlas.replays where month = %s and sha256 = %s", (month, sha256)).fetchone()
    assert row is not None  # noqa: S101  # inserted above, or there before; rows are never deleted
    return int(row["id"])


@contextmanager
def alone(url: str, replay_id: int) -> Iterator[bool]:
    """Hold the replay while the block runs; yields False where another process is at it."""
    with dedicated(url) as connection:
        row = connection.execute("select pg_try_advisory_lock(%s, %s) as taken", (REPLAY_CLASS, replay_id)).fetchone()
        yield bool(row and row["taken"])


def left(conn: Connection, replay_id: int, start: datetime, end: datetime) -> list[Row]:
    """``id`` and ``message_key`` of what is still to be judged again, the oldest first.

    Of each message the newest decision of the month. A message that is blocked by now is not opened again.
    """
    return conn.execute(
        "select id, message_key from (select distinct on (c.message_key) c.id, c.message_key from atlas.classifications c "
        "where c.at >= %(start)s and c.at < %(end)s order by c.message_key, c.at desc, c.id desc) newest "
        "join atlas.inbox i using (message_key) where i.status <> 'blocked' and not exists ("
        " select from atlas.replay_decisions r where r.replay_id = %(replay)s and r.classification_id = newest.id) order by id",
        {"replay": replay_id, "start": start, "end": end},
    ).fetchall()


def add(conn: Connection, replay_id: int, classification_id: int, decision: Decision | None, code: str = "ok") -> None:
    """What came of one mail; ``decision`` None with the code why."""
    conn.execute(
        "insert into atlas.replay_decisions (replay_id, classification_id, code, intent, classifier_intent, confidence, uncertain, "
        "model, prompt_version, guards, tenant) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing",
        (
            replay_id,
            classification_id,
            code,
            decision and decision.intent.value,
            decision and decision.classifier_intent.value,
            decision and decision.confidence,
            decision and decision.uncertain,
            decision and decision.model,
            decision and decision.prompt_version,
            list(decision.guards) if decision else [],
            decision and decision.tenant,
        ),
    )


def add_call(
    conn: Connection,
    replay_id: int,
    *,
    provider: str,
    model: str,
    code: str,
    tokens_in: int | None,
    tokens_out: int | None,
    milliseconds: int,
    euros: float | None,
) -> None:
    """One call of a provider: it counts for the day's budget, and for no message's."""
    conn.execute(
        "insert into atlas.replay_calls (replay_id, provider, model, code, tokens_in, tokens_out, milliseconds, euros) "
        "values (%s, %s, %s, %s, %s, %s, %s, %s)",
        (replay_id, provider, model, code, tokens_in, tokens_out, milliseconds, euros),
    )


def failures(conn: Connection, replay_id: int) -> dict[str, int]:
    """Mails without an answer, by code."""
    rows = conn.execute(
        "select code, count(*) as n from atlas.replay_decisions where replay_id = %s and code <> 'ok' group by 1 order by 1",
        (replay_id,),
    )
    return {row["code"]: row["n"] for row in rows}


def pairs(conn: Connection, replay_id: int) -> list[Row]:
    """Each answered decision beside the month's own: ``id``, key, intents and confidences of both (``was_…``), and its record's kind."""
    return conn.execute(
        "select c.id, c.message_key, c.intent as was, c.confidence as was_confidence, r.intent, r.confidence, "
        "w.status as job, coalesce(t.internal, false) as internal from atlas.replay_decisions r "
        "join atlas.classifications c on c.id = r.classification_id "
        "left join atlas.chantiers w on w.live_key = c.message_key left join atlas.tenants t on t.slug = w.tenant "
        "where r.replay_id = %s and r.code = 'ok' order by c.id",
        (replay_id,),
    ).fetchall()


def cost(conn: Connection, replay_id: int) -> tuple[int, float]:
    """Calls made so far, and their price in euros as far as it is known."""
    row = conn.execute(
        "select count(*) as calls, coalesce(sum(euros), 0) as euros from atlas.replay_calls where replay_id = %s",
        (replay_id,),
    ).fetchone()
    return (int(row["calls"]), float(row["euros"])) if row else (0, 0.0)
