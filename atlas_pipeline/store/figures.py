"""What calibration counts: a month's rows, aggregated by the database. Always recomputed, never incremented.

Sums of confidences are numeric, not floating: they come out the same in whatever order, and by however many workers, they are added.
Decisions are counted of a source: a month's own, or a replay's beside its month's. Rules (``rule/…``) are no models.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from atlas_pipeline.store.database import Connection, Row, dedicated, translated
from atlas_pipeline.store.work import TABLES

REPORT_CLASS = 4714

_COLUMNS = (
    "id, at, message_key, intent, classifier_intent, confidence, uncertain, model, prompt_version, guards, tenant"
)


@dataclass(frozen=True)
class Decisions:
    """A source of decisions: a query with the columns of ``classifications``, and its values."""

    query: sql.SQL
    values: dict[str, object]


@contextmanager
def alone(url: str, month: str) -> Iterator[None]:
    """Hold the month's report while the block runs, waiting for another that is at it. Raises DatabaseUnavailable.

    Of two at once, the one that read first could write last, and leave an older report and an older decision as the newest.
    """
    with dedicated(url) as connection:
        try:
            connection.execute("select pg_advisory_lock(%s, hashtext(%s))", (REPORT_CLASS, month))
        except psycopg.Error as error:
            raise translated(error) from None
        yield


def as_of_one_moment(conn: Connection) -> None:
    """Let the transaction read all of it as of one moment, and sort a month in memory (an aggregate of it is not spilt to disk)."""
    conn.execute("set transaction isolation level repeatable read, read only")
    conn.execute("set local work_mem = '32MB'")


def of_month(start: datetime, end: datetime) -> Decisions:
    """Every decision of the span; ``end`` is not in it."""
    return Decisions(
        sql.SQL(f"select {_COLUMNS} from atlas.classifications where at >= %(start)s and at < %(end)s"),  # noqa: S608
        {"start": start, "end": end},
    )


def of_replay(replay_id: int, *, replayed: bool) -> Decisions:
    """The decisions that a replay has an answer beside: the answers, or else the month's own."""
    columns = "intent, classifier_intent, confidence, uncertain, model, prompt_version, guards, tenant"
    side = ", ".join(f"{'r' if replayed else 'c'}.{name}" for name in columns.split(", "))
    return Decisions(
        sql.SQL(
            f"select c.id, c.at, c.message_key, {side} from atlas.replay_decisions r "  # noqa: S608
            "join atlas.classifications c on c.id = r.classification_id where r.replay_id = %(replay)s and r.code = 'ok'"
        ),
        {"replay": replay_id},
    )


def volumes(conn: Connection, source: Decisions) -> list[Row]:
    """Decisions by intent, tenant, model and prompt: how many, the sums of confidence and of its squares, uncertain ones."""
    return _rows(
        conn,
        source,
        "select intent, tenant, model, prompt_version, count(*) as volume, sum(confidence::numeric) as confidence, "
        "sum(confidence::numeric * confidence::numeric) as squares, count(*) filter (where uncertain) as uncertain "
        "from decisions group by 1, 2, 3, 4 order by 1, 2, 3, 4",
    )


def messages(conn: Connection, source: Decisions) -> int:
    """How many messages the decisions are about."""
    return int(_rows(conn, source, "select count(distinct message_key) as n from decisions")[0]["n"])


def guards(conn: Connection, source: Decisions) -> list[Row]:
    """How often each guard fired."""
    return _rows(
        conn,
        source,
        "select guard, count(*) as n from decisions, unnest(guards) as guard where guards <> '{}' group by 1 order by 1",
    )


def overridden(conn: Connection, source: Decisions) -> list[Row]:
    """Decisions in which guards made another intent of the model's: ``classifier_intent``, ``intent``, ``n``."""
    return _rows(
        conn,
        source,
        "select classifier_intent, intent, count(*) as n from decisions where intent <> classifier_intent group by 1, 2 order by 1, 2",
    )


# What people said of decisions, each of the one that stood when it was said. ``truth`` is the right intent, ``refused`` a wrong one.
# A work record is made with its decision, so the month's records are those of the month's decisions; superseded ones are out.
_JUDGEMENTS = f"""
    corrected as (
        select distinct on (d.id) d.id, k.intent as truth from atlas.corrections k
        join own d on d.message_key = k.message_key and d.at <= k.at
        where k.at >= %(start)s and not exists (
            select from atlas.classifications later where later.message_key = k.message_key and later.at <= k.at
            and (later.at, later.id) > (d.at, d.id))
        order by d.id, k.id desc),
    recorded as ({
    " union all ".join(
        f"select message_key, status, decided_at from atlas.{table} where superseded_at is null and status <> 'draft' "
        "and created_at >= %(start)s and created_at < %(end)s"
        for table in TABLES
    )
}),
    decided as (
        select distinct on (r.message_key) d.id, d.intent, r.status from recorded r
        join own d on d.message_key = r.message_key and d.at <= r.decided_at
        order by r.message_key, d.at desc, d.id desc),
    judgements as (
        select id, coalesce(c.truth, case when d.status <> 'cancelled' then d.intent end) as truth,
               case when c.truth is null and d.status = 'cancelled' then d.intent end as refused
        from corrected c full join decided d using (id))
"""  # noqa: S608  # names of our own tables


def outcomes(conn: Connection, source: Decisions, start: datetime, end: datetime) -> list[Row]:
    """Judged decisions by model and tenth of confidence (``bin``, 1 to 10).

    ``judged``, ``correct``, and the sums of ``confidence`` and of the ``squares`` of confidence less outcome. What a judgement says
    of the month's own decision is held against the source's: a refused intent says nothing of another one.
    """
    return _rows(
        conn,
        source,
        "select model, bin, count(*) as judged, count(*) filter (where good) as correct, sum(confidence) as confidence, "
        "sum((confidence - good::int) * (confidence - good::int)) as squares from ("
        " select d.model, least(width_bucket(d.confidence, 0, 1, 10), 10) as bin, d.confidence::numeric as confidence, "
        " case when j.truth is not null then d.classifier_intent = j.truth "
        "  when d.classifier_intent = j.refused then false end as good "
        " from judgements j join decisions d using (id) where d.model not like 'rule/%%') judged "
        "where good is not null group by 1, 2 order by 1, 2",
        start,
        end,
    )


def judgements(conn: Connection, source: Decisions, start: datetime, end: datetime) -> list[Row]:
    """Each judged decision of the source: ``id``, ``truth``, ``refused``."""
    return _rows(
        conn,
        source,
        "select j.id, j.truth, j.refused from judgements j join decisions using (id) order by 1",
        start,
        end,
    )


def confusion(conn: Connection, source: Decisions, start: datetime, end: datetime) -> list[Row]:
    """What decisions said and what was meant, by ``source``: an operator's correction, or the contract of the agent that read on."""
    return _rows(
        conn,
        source,
        "select 'operator' as source, d.intent as said, c.truth as meant, count(*) as n from corrected c join decisions d using (id) "
        "group by 1, 2, 3 union all "
        "select 'agent', d.intent, i.final_intent, count(*) from decisions d "
        "join atlas.inbox i on i.message_key = d.message_key and i.final_intent <> i.intent and i.final_intent <> d.intent "
        # With its limit this is looked up for each of the few; as an anti-join every month's decisions were read.
        "left join lateral (select later.id from atlas.classifications later where later.message_key = d.message_key "
        " and later.id > d.id limit 1) later on true where later.id is null "
        "group by 1, 2, 3 order by 1 desc, 2, 3",
        start,
        end,
    )


def mixes(conn: Connection, before: datetime, start: datetime, end: datetime) -> list[Row]:
    """The mix of decisions in the span and in the time before it (from ``before``), for drift; ``bin`` is None for a rule's."""
    return conn.execute(
        "select at >= %s as current, intent, case when model not like 'rule/%%' then least(width_bucket(confidence, 0, 1, 10), 10) end as bin, "
        "model, prompt_version, count(*) as n from atlas.classifications where at >= %s and at < %s group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5",
        (start, before, end),
    ).fetchall()


def drafts(conn: Connection, start: datetime, end: datetime) -> list[Row]:
    """Live work records created in the span, by ``kind`` (their table) and ``tenant``: ``drafts`` generated, of which ``cancelled``."""
    query = " union all ".join(
        f"select '{table}' as kind, tenant, count(*) as drafts, count(*) filter (where status = 'cancelled') as cancelled "  # noqa: S608
        f"from atlas.{table} where superseded_at is null and created_at >= %(start)s and created_at < %(end)s group by 2"
        for table in TABLES
    )
    return conn.execute(f"{query} order by 1, 2".encode(), {"start": start, "end": end}).fetchall()


def internal_jobs(conn: Connection, end: datetime) -> list[Row]:
    """Live chantiers of internal tenants made before ``end``, by ``tenant``: ``jobs``, of which not cancelled, of which not decided."""
    return conn.execute(
        "select c.tenant, count(*) as jobs, count(*) filter (where c.status <> 'cancelled') as kept, "
        "count(*) filter (where c.status = 'draft') as undecided from atlas.chantiers c "
        "join atlas.tenants t on t.slug = c.tenant where t.internal and c.superseded_at is null and c.created_at < %s "
        "group by 1 order by 1",
        (end,),
    ).fetchall()


def audit_counts(conn: Connection, start: datetime, end: datetime, actions: list[str]) -> dict[str, int]:
    """How often each of these actions was audited in the span; what never was is not in it."""
    rows = conn.execute(
        "select action, count(*) as n from atlas.audit_log where action = any(%s) and at >= %s and at < %s group by 1 order by 1",
        (actions, start, end),
    )
    return {row["action"]: row["n"] for row in rows}


def calls(conn: Connection, start: datetime, end: datetime) -> list[Row]:
    """Calls of models in the span, by task and model, with their tokens, price and duration (milliseconds)."""
    return conn.execute(
        "select task, model, count(*) as calls, count(*) filter (where code <> 'ok') as failed, coalesce(sum(tokens_in), 0) as tokens_in, "
        "coalesce(sum(tokens_out), 0) as tokens_out, coalesce(sum(euros), 0) as euros, "
        "percentile_cont(0.5) within group (order by milliseconds) as median, "
        "percentile_cont(0.95) within group (order by milliseconds) as p95 "
        "from atlas.ai_calls where at >= %s and at < %s group by 1, 2 order by 1, 2",
        (start, end),
    ).fetchall()


def spawns(conn: Connection, start: datetime, end: datetime) -> Row:
    """Agents started in the span: how many, how many have ended and how many of them well, cost, tokens, seconds."""
    return _one(
        conn,
        "select count(*) as started, count(*) filter (where status not in ('claimed', 'running')) as ended, "
        "count(*) filter (where status = 'ok') as ok, coalesce(sum(cost_usd), 0) as cost_usd, coalesce(sum(tokens_in), 0) as tokens_in, "
        "coalesce(sum(tokens_out), 0) as tokens_out, coalesce(sum(tokens_cache_read), 0) as tokens_cache_read, "
        "percentile_cont(0.5) within group (order by seconds) as median, "
        "percentile_cont(0.95) within group (order by seconds) as p95 "
        "from atlas.spawns where claimed_at >= %s and claimed_at < %s",
        start,
        end,
    )


def attempts(conn: Connection, start: datetime, end: datetime) -> list[Row]:
    """Chantiers whose action ended in the span: ``attempt`` at which it succeeded, or None where a human was called; ``n``."""
    return conn.execute(
        "select case when a.action = 'actioned' then (a.detail->>'attempt')::int end as attempt, count(*) as n from atlas.audit_log a "
        "join atlas.inbox i on i.message_key = a.message_key and coalesce(i.final_intent, i.intent) = 'chantier' "
        "where a.action in ('actioned', 'escalated') and a.at >= %s and a.at < %s group by 1 order by 1",
        (start, end),
    ).fetchall()


def recaps(conn: Connection, start: datetime, end: datetime) -> Row:
    """First recaps of messages sent in the span, and the seconds since the mail was first listed."""
    return _one(
        conn,
        "select count(*) as sent, percentile_cont(0.5) within group (order by seconds) as median, "
        "percentile_cont(0.95) within group (order by seconds) as p95 from ("
        # Looked up for each of the month's recaps; joined as tables, both were read as a whole.
        " select extract(epoch from n.sent_at - l.listed_at)::float as seconds from atlas.notifications n "
        " join lateral (select listed_at from atlas.mailbox_ledger where message_key = n.message_key limit 1) l on true "
        " where n.kind = 'recap' and n.state = 'sent' and n.sent_at >= %s and n.sent_at < %s and n.id = ("
        "  select min(first.id) from atlas.notifications first where first.message_key = n.message_key and first.kind = 'recap')) times",
        start,
        end,
    )


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


def _rows(
    conn: Connection, source: Decisions, query: str, start: datetime | None = None, end: datetime | None = None
) -> list[Row]:
    """Run a query over ``decisions``; with a span, over what was said of the span's own decisions too."""
    head = sql.SQL("with decisions as (") + source.query + sql.SQL(")")
    values = dict(source.values)
    if start is not None:
        head += sql.SQL(
            f", own as materialized (select id, at, message_key, intent from atlas.classifications "  # noqa: S608
            f"where at >= %(start)s and at < %(end)s), {_JUDGEMENTS}"
        )
        values |= {"start": start, "end": end}
    return conn.execute(head + sql.SQL(" ") + sql.SQL(query), values).fetchall()


def _one(conn: Connection, query: str, *values: object) -> Row:
    row = conn.execute(query.encode(), values).fetchone()
    assert row is not None  # noqa: S101  # an aggregate without groups always has one row
    return row
