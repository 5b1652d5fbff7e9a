"""What the CLI and the health check list: across aggregates, read only, bounded."""

from __future__ import annotations

from typing import Any

from atlas_pipeline.store import outbox, tracking
from atlas_pipeline.store.database import Connection, Row


def health(conn: Connection) -> dict[str, int]:
    """What a human should look at, by kind; all zero in a healthy house."""
    row = conn.execute(
        "select (select count(*) from atlas.inbox where status = 'received' and received_at < now() - interval '1 hour') as received_for_an_hour, "
        "(select count(*) from atlas.inbox where status = 'failed') as failed, "
        "(select count(*) from atlas.mailbox_ledger where fetched_at is null and gone_at is null and refused_code is null "
        " and listed_at < now() - interval '1 hour') as listed_for_an_hour, "
        "(select count(*) from atlas.notifications where state in ('uncertain', 'refused')) as recaps_not_sent"
    ).fetchone()
    return dict(row) if row else {}


def messages(conn: Connection, *, status: str | None, limit: int) -> list[Row]:
    """The newest messages: facts about them, no content but the subject."""
    return conn.execute(
        "select i.message_key, i.status, i.reason_code, i.intent, i.confidence, i.model, i.tenant, i.attempt, m.subject, "
        "m.trust_level, i.received_at "
        "from atlas.inbox i join atlas.messages m using (message_key) join atlas.mailbox_ledger l using (message_key) "
        "where %(status)s::text is null or i.status = %(status)s order by l.seq desc limit %(limit)s",
        {"status": status, "limit": limit},
    ).fetchall()


def summary(conn: Connection) -> dict[str, Any]:
    """The whole house in numbers."""
    spawned = conn.execute("select status, count(*) as n from atlas.spawns group by status order by status")
    reports = conn.execute("select status, count(*) as n from atlas.qa_reports group by status order by status")
    ledger = conn.execute(
        "select count(*) as listed, count(duplicate_of) as duplicates, count(gone_at) as gone, count(refused_code) as refused, "
        "count(*) filter (where fetched_at is null and gone_at is null and refused_code is null) as waiting from atlas.mailbox_ledger"
    ).fetchone()
    return {
        "ledger": dict(ledger) if ledger else {},
        "messages": tracking.counts(conn),
        "spawns": {row["status"]: row["n"] for row in spawned},
        "qa": {row["status"]: row["n"] for row in reports},
        "recaps": outbox.counts(conn),
    }


def authenticated(conn: Connection, last: int = 50) -> tuple[int, int]:
    """How many of the last mails had a proven sender: (authenticated, looked at)."""
    row = conn.execute(
        "select count(*) filter (where trust_level <> 'other') as proven, count(*) as n from "
        "(select trust_level from atlas.messages where understood_at is not null order by message_key desc limit %s) as newest",
        (last,),
    ).fetchone()
    return (row["proven"], row["n"]) if row else (0, 0)


def story(conn: Connection, key: str) -> dict[str, Any]:
    """Everything known of one message except its content."""
    message = conn.execute(
        "select l.message_key, l.mailbox, l.internal_date, l.size_bytes, l.duplicate_of, l.refused_code, l.wait_code, m.trust_level, m.trust_reason, "
        "m.automatic, m.requester_claimed, m.remarks, i.status, i.reason_code, i.intent, i.final_intent, i.confidence, i.model, i.tenant, "
        "i.work_kind, i.work_id, i.round, i.attempt from atlas.mailbox_ledger l left join atlas.messages m using (message_key) "
        "left join atlas.inbox i using (message_key) where l.message_key = %s",
        (key,),
    ).fetchone()
    if message is None:
        return {}
    return {
        "message": message,
        "attachments": _rows(
            conn,
            "select part_index, sniffed_type, size_bytes, verdict, signature from atlas.attachments where message_key = %s order by 1",
            key,
        ),
        "spawns": _rows(
            conn,
            "select id, round, attempt, try, status, code, profile, agent, branch, commits, seconds, cost_usd::float, events from atlas.spawns "
            "where message_key = %s order by id",
            key,
        ),
        "deployments": _rows(
            conn,
            "select round, attempt, status, code, seconds, commit from atlas.deployments where message_key = %s order by id",
            key,
        ),
        "qa": _rows(
            conn,
            "select r.round, r.attempt, r.status, c.route, c.level, c.ok, c.http_status, c.errors, c.screenshot from atlas.qa_reports r "
            "join atlas.qa_checks c on c.report_id = r.id where r.message_key = %s order by r.id, c.position",
            key,
        ),
        "recaps": _rows(
            conn,
            "select id, round, attempt, kind, state, code, tries, sent_at, asked_again_at, bounced_at, refused_recipients "
            "from atlas.notifications where message_key = %s order by id",
            key,
        ),
        "audit": _rows(
            conn, "select at, action, actor, detail from atlas.audit_log where message_key = %s order by id", key
        ),
    }


def decisions(conn: Connection, key: str) -> list[Row]:
    """Every decision of the classifier on a message and every correction of one, oldest first."""
    return conn.execute(
        "select at, 'decision' as what, intent, classifier_intent, confidence, uncertain, model, prompt_version, guards, tenant "
        "from atlas.classifications where message_key = %(key)s union all "
        "select at, 'correction', intent, null, null, null, actor, null, null, null from atlas.corrections where message_key = %(key)s order by 1",
        {"key": key},
    ).fetchall()


def events(conn: Connection, key: str) -> list[Row]:
    """The timeline of a message's agents: when, of which start, what kind of event, which tool. No payload."""
    return conn.execute(
        "select e.at, s.round, s.attempt, s.try, e.seq, e.event_type, e.tool_name from atlas.spawn_event_log e "
        "join atlas.spawns s on s.id = e.spawn_id where s.message_key = %s order by e.spawn_id, e.seq",
        (key,),
    ).fetchall()


def content(conn: Connection, key: str) -> Row:
    """Subject and text of a mail, for a person who asked for them; empty where there is no such mail."""
    row = conn.execute("select subject, body_text from atlas.messages where message_key = %s", (key,)).fetchone()
    return row or {}


def _rows(conn: Connection, query: str, key: str) -> list[Row]:
    return conn.execute(query.encode(), (key,)).fetchall()
