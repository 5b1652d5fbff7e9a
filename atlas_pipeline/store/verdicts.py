"""The append-only history of verdicts and decisions: scans, classifications, paid calls."""

from __future__ import annotations

from collections.abc import Collection

from atlas_pipeline.model import Decision, ScanResult
from atlas_pipeline.store.database import Connection
from atlas_pipeline.text import clean_text


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
) -> None:
    """One call of a provider, answered or not."""
    conn.execute(
        "insert into atlas.ai_calls (message_key, task, provider, model, code, tokens_in, tokens_out, milliseconds) "
        "values (%s, %s, %s, %s, %s, %s, %s, %s)",
        (key, task, provider, model, code, tokens_in, tokens_out, milliseconds),
    )


def add_draft(conn: Connection, key: str, *, author: str, body: str) -> None:
    """A reply draft for a human; nothing ever sends it."""
    conn.execute(
        "insert into atlas.reply_drafts (message_key, author, body) values (%s, %s, %s)",
        (key, author, clean_text(body)),
    )
