"""The append-only history of verdicts and decisions: scans, classifications, paid calls."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from psycopg import sql

from atlas_pipeline.model import Decision, ScanResult
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_text

# Codes of calls that nobody was paid for.
_UNPAID = (
    "provider_unreachable",
    "provider_overloaded",
    "provider_rate_limited",
    "provider_access_refused",
    "provider_url_or_model_unknown",
)


def add_scan(
    conn: Connection, key: str, part_index: int | None, sha256: str, result: ScanResult, *, engine: str
) -> None:
    """One verdict; ``part_index`` None is the raw mail as a whole. A part's newest verdict also stands on its row."""
    conn.execute(
        "insert into atlas.scans (message_key, part_index, sha256, verdict, signature, code, engine, milliseconds) "
        "values (%s, %s, %s, %s, %s, %s, %s, %s)",
        (key, part_index, sha256, result.verdict.value, result.signature, result.code, engine, result.milliseconds),
    )
    if part_index is not None:
        conn.execute(
            "update atlas.attachments set verdict = %s, signature = %s where message_key = %s and part_index = %s",
            (result.verdict.value, result.signature, key, part_index),
        )


def failed_scans(conn: Connection, hashes: Collection[str], *, code_prefix: str, at_least: int) -> set[str]:
    """Those of the hashes whose bytes brought about an error that often within a day."""
    rows = conn.execute(
        "select sha256 from atlas.scans where sha256 = any(%s) and verdict = 'error' and starts_with(code, %s) "
        "and at > now() - interval '1 day' group by sha256 having count(*) >= %s",
        (list(hashes), code_prefix, at_least),
    )
    return {row["sha256"] for row in rows}


def last_scan(conn: Connection, key: str) -> set[str]:
    """The newest verdict of each part of a message and of the whole, as a set of their values; empty where none was scanned."""
    rows = conn.execute(
        "select distinct on (part_index) verdict from atlas.scans where message_key = %s order by part_index, id desc",
        (key,),
    )
    return {row["verdict"] for row in rows}


def add_decision(conn: Connection, key: str, decision: Decision) -> None:
    """One decision of the classifier, kept beside all earlier ones of the message."""
    conn.execute(
        "insert into atlas.classifications (message_key, intent, classifier_intent, confidence, uncertain, model, prompt_version, "
        "guards, tenant) values (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            key,
            decision.intent.value,
            decision.classifier_intent.value,
            decision.confidence,
            decision.uncertain,
            decision.model,
            decision.prompt_version,
            list(decision.guards),
            decision.tenant,
        ),
    )


def add_ai_call(
    conn: Connection,
    key: str | None,
    *,
    task: str,
    provider: str,
    model: str,
    code: str,
    tokens_in: int | None,
    tokens_out: int | None,
    milliseconds: int,
    euros: float | None,
) -> None:
    """One call of a provider, answered or not; ``euros`` where its price is known."""
    conn.execute(
        "insert into atlas.ai_calls (message_key, task, provider, model, code, tokens_in, tokens_out, milliseconds, euros) "
        "values (%s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (key, task, provider, model, code, tokens_in, tokens_out, milliseconds, euros),
    )


def spent_since(conn: Connection, start: datetime) -> tuple[int, float]:
    """Paid calls since a moment, those of replays too, and their price in euros as far as it is known."""
    calls, euros = _spent(conn, sql.SQL("code <> all(%s) and at >= %s"), (list(_UNPAID), start))
    replayed, their_euros = spent_on_replays(conn, start)
    return calls + replayed, euros + their_euros


def spent_on_replays(conn: Connection, start: datetime) -> tuple[int, float]:
    """The same of replays alone."""
    row = conn.execute(
        "select count(*) as calls, coalesce(sum(euros), 0) as euros from atlas.replay_calls "
        "where provider <> 'local' and code <> all(%s) and at >= %s",
        (list(_UNPAID), start),
    ).fetchone()
    return (int(row["calls"]), float(row["euros"])) if row else (0, 0.0)


def spent_on(conn: Connection, key: str) -> tuple[int, float]:
    """Answers paid for one message, since an operator last put it back: that order is worth another budget.

    A call without an answer is an outage, and no reason to set the message aside.
    """
    which = sql.SQL(
        "(code = 'ok' or tokens_out is not null) and message_key = %s and at > coalesce((select max(at) from atlas.audit_log "
        "where message_key = %s and action = 'reprocess'), '-infinity')"
    )
    return _spent(conn, which, (key, key))


def _spent(conn: Connection, which: sql.SQL, values: tuple[object, ...]) -> tuple[int, float]:
    query = sql.SQL(
        "select count(*) as calls, coalesce(sum(euros), 0) as euros from atlas.ai_calls where provider <> 'local' and "
    )
    row = conn.execute(query + which, values).fetchone()
    return (int(row["calls"]), float(row["euros"])) if row else (0, 0.0)


def add_correction(conn: Connection, key: str, intent: str, *, actor: str) -> None:
    """What a person says the message asks for."""
    conn.execute("insert into atlas.corrections (message_key, intent, actor) values (%s, %s, %s)", (key, intent, actor))


def latest_corrections(conn: Connection, limit: int) -> list[Row]:
    """``id``, ``message_key``, ``intent`` and ``raw`` of the newest correction of each message, the newest first."""
    return conn.execute(
        "select * from (select distinct on (c.message_key) c.id, c.message_key, c.intent, m.raw "
        "from atlas.corrections c join atlas.messages m using (message_key) order by c.message_key, c.id desc) newest "
        "order by id desc limit %s",
        (limit,),
    ).fetchall()


def correction_vectors(conn: Connection, model: str, ids: list[int]) -> dict[int, list[float]]:
    """The vectors of these corrections that this model has made already."""
    rows = conn.execute(
        "select correction_id, vector from atlas.correction_vectors where model = %s and correction_id = any(%s)",
        (model, ids),
    ).fetchall()
    return {row["correction_id"]: list(row["vector"]) for row in rows}


def store_correction_vector(conn: Connection, correction_id: int, model: str, vector: list[float]) -> None:
    """Keep one; another process may have been first."""
    conn.execute(
        "insert into atlas.correction_vectors (correction_id, model, vector) values (%s, %s, %s) on conflict do nothing",
        (correction_id, model, vector),
    )


def add_draft(conn: Connection, key: str, *, author: str, body: str) -> None:
    """A reply draft for a human; nothing ever sends it. The message's live question, if it has one, takes it up."""
    row = conn.execute(
        "insert into atlas.reply_drafts (message_key, author, body) values (%s, %s, %s) returning id",
        (key, author, clean_text(body)),
    ).fetchone()
    if row is not None:
        conn.execute("update atlas.questions set draft_id = %s where live_key = %s", (row["id"], key))
