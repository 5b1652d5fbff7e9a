"""Messages: the bytes as received, then what was understood. Text from outside passes ``clean_text`` on its way in."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from atlas_pipeline.model import Address, Forward, ParsedMail, Trust, TrustLevel
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_json, clean_text


def store_raw(conn: Connection, key: str, raw: bytes) -> None:
    """Keep the bytes and open the tracking row, before anything tries to understand them. Idempotent.

    The fingerprint is unknown yet; a placeholder that no mail can have keeps the uniqueness rule out of the way.
    """
    conn.execute(
        "insert into atlas.messages (message_key, raw, raw_sha256, fingerprint) values (%s, %s, %s, %s) on conflict do nothing",
        (key, raw, hashlib.sha256(raw).hexdigest(), f"pending:{key}"),
    )
    conn.execute("insert into atlas.inbox (message_key) values (%s) on conflict do nothing", (key,))
    conn.execute("update atlas.mailbox_ledger set fetched_at = now() where message_key = %s", (key,))


def raw(conn: Connection, key: str) -> bytes | None:
    """The bytes received, or None where the key has no message of its own."""
    row = conn.execute("select raw from atlas.messages where message_key = %s", (key,)).fetchone()
    return None if row is None else bytes(row["raw"])


def understood(conn: Connection, key: str) -> bool:
    """Whether the mail has been parsed and stored."""
    row = conn.execute("select understood_at from atlas.messages where message_key = %s", (key,)).fetchone()
    return bool(row and row["understood_at"])


def original_of(conn: Connection, key: str, mail: ParsedMail) -> str | None:
    """The key under which this same mail is known already, or None."""
    row = conn.execute(
        "select message_key from atlas.messages where message_id is not distinct from %s and fingerprint = %s and message_key <> %s",
        (_clean(mail.message_id), mail.fingerprint, key),
    ).fetchone()
    return row["message_key"] if row else None


def mark_duplicate(conn: Connection, key: str, original: str) -> None:
    """The second delivery of a mail: its ledger row says so; it keeps no message and no tracking row."""
    conn.execute("update atlas.mailbox_ledger set duplicate_of = %s where message_key = %s", (original, key))
    conn.execute("delete from atlas.messages where message_key = %s", (key,))


def store_understanding(
    conn: Connection, key: str, mail: ParsedMail, trust: Trust, requester: tuple[Address, bool]
) -> None:
    """Write what was understood. Raises psycopg's UniqueViolation where another key took the same mail meanwhile."""
    person, claimed = requester
    values: dict[str, Any] = {
        "key": key,
        "message_id": _clean(mail.message_id),
        "fingerprint": mail.fingerprint,
        "from_name": _clean(mail.sender.name),
        "from_address": _clean(mail.sender.address),
        "recipients": Jsonb(clean_json([asdict(address) for address in mail.recipients])),
        "subject": _clean(mail.subject),
        "sent_at": mail.date,
        "body_text": clean_text(mail.body_text),
        "body_html": _clean(mail.body_html),
        "headers": Jsonb(clean_json(mail.headers)),
        "forward": Jsonb(clean_json(asdict(mail.forward))),
        "automatic": mail.automatic,
        "trust_level": trust.level.value,
        "trust_reason": trust.reason,
        "requester_name": _clean(person.name),
        "requester_address": _clean(person.address),
        "requester_claimed": claimed,
        "remarks": list(mail.remarks),
    }
    columns = [name for name in values if name != "key"]
    assignments = ", ".join(f"{name} = %({name})s" for name in columns)
    conn.execute(
        f"update atlas.messages set understood_at = now(), {assignments} where message_key = %(key)s",  # noqa: S608  # our own column names
        values,
    )
    conn.execute("delete from atlas.attachments where message_key = %s", (key,))
    for part in mail.parts:
        conn.execute(
            "insert into atlas.attachments (message_key, part_index, name, declared_type, sniffed_type, size_bytes, sha256, inline) "
            "values (%s, %s, %s, %s, %s, %s, %s, %s)",
            (
                key,
                part.index,
                _clean(part.name),
                part.declared_type,
                part.sniffed_type,
                part.size,
                part.sha256,
                part.inline,
            ),
        )


def load(conn: Connection, key: str) -> Row | None:
    """Everything understood of a message except its bytes."""
    return conn.execute(
        "select message_key, message_id, from_name, from_address, subject, sent_at, body_text, forward, automatic, trust_level, "
        "trust_reason, requester_name, requester_address, requester_claimed, remarks, stored_at, "
        "(select count(*) from atlas.attachments a where a.message_key = m.message_key) as attachments "
        "from atlas.messages m where message_key = %s",
        (key,),
    ).fetchone()


def forward_of(row: Row) -> Forward:
    """The forward block of a stored message."""
    facts: dict[str, Any] = dict(row["forward"])
    facts["sender"] = Address(**(facts.get("sender") or {}))
    return Forward(**facts)


def trust_of(row: Row) -> Trust:
    """The stored judgement of who wrote."""
    return Trust(TrustLevel(row["trust_level"]), row["trust_reason"] or "")


def is_own_message_id(conn: Connection, message_id: str) -> bool:
    """Whether a Message-ID is one that our own outbox gave."""
    row = conn.execute("select 1 as found from atlas.notifications where message_id = %s", (message_id,)).fetchone()
    return row is not None


def received_between(conn: Connection, start: datetime, end: datetime) -> int:
    """How many messages were stored in this span."""
    row = conn.execute(
        "select count(*) as n from atlas.messages where stored_at >= %s and stored_at < %s", (start, end)
    ).fetchone()
    return int(row["n"]) if row else 0


def _clean(value: str | None) -> str | None:
    return None if value is None else clean_text(value)
