"""Messages: the bytes as received, then what was understood. Text from outside passes ``clean_text`` on its way in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from atlas_pipeline.model import Address, Forward, ParsedMail, Trust, TrustLevel
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_json, clean_text


def store_raw(conn: Connection, mails: Sequence[tuple[str, bytes]]) -> None:
    """Keep the bytes by key and open the tracking rows, before anything tries to understand them. Idempotent.

    The fingerprint is unknown yet; a placeholder that no mail can have keeps the uniqueness rule out of the way.
    """
    if not mails:
        return
    keys = [key for key, _raw in mails]
    with conn.cursor() as cursor:
        cursor.executemany(
            "insert into atlas.messages (message_key, raw, raw_sha256, fingerprint) values (%s, %b, %s, %s) on conflict do nothing",
            [(key, raw, hashlib.sha256(raw).hexdigest(), f"pending:{key}") for key, raw in mails],
        )
    conn.execute("insert into atlas.inbox (message_key) select unnest(%s::text[]) on conflict do nothing", (keys,))
    conn.execute("update atlas.mailbox_ledger set fetched_at = now() where message_key = any(%s)", (keys,))


def raw(conn: Connection, key: str) -> bytes | None:
    """The bytes received, or None where the key has no message of its own."""
    row = conn.execute("select raw from atlas.messages where message_key = %s", (key,), binary=True).fetchone()
    return None if row is None else bytes(row["raw"])


def stored_since(conn: Connection, since: datetime) -> list[str]:
    """The keys of what was stored since then, oldest first."""
    rows = conn.execute(
        "select message_key from atlas.messages where stored_at >= %s order by stored_at, message_key", (since,)
    )
    return [row["message_key"] for row in rows]


def originals_of(conn: Connection, mails: Sequence[tuple[str, ParsedMail]]) -> dict[str, str]:
    """For each key whose mail is known already under another key: that key."""
    rows = conn.execute(
        "select new.key, m.message_key from unnest(%s::text[], %s::text[], %s::text[]) as new (key, message_id, fingerprint) "
        "join atlas.messages m on m.fingerprint = new.fingerprint and m.message_key <> new.key "
        "and m.message_id is not distinct from new.message_id",
        (
            [key for key, _mail in mails],
            [_clean(mail.message_id) for _key, mail in mails],
            [mail.fingerprint for _key, mail in mails],
        ),
    )
    return {row["key"]: row["message_key"] for row in rows}


def mark_duplicate(conn: Connection, key: str, original: str) -> None:
    """The second delivery of a mail: its ledger row says so; it keeps no message and no tracking row."""
    conn.execute("update atlas.mailbox_ledger set duplicate_of = %s where message_key = %s", (original, key))
    conn.execute("delete from atlas.messages where message_key = %s", (key,))


@dataclass(frozen=True)
class Understanding:
    """What was understood of one stored mail; ``requester``: who asks, and whether it is only claimed; ``thread``: its conversation."""

    key: str
    mail: ParsedMail
    trust: Trust
    requester: tuple[Address, bool]
    thread: str | None = None


def store_understanding(conn: Connection, found: Sequence[Understanding]) -> None:
    """Write what was understood. Raises psycopg's UniqueViolation where another key took the same mail meanwhile."""
    if not found:
        return
    rows = [_columns(one) for one in found]
    assignments = ", ".join(f"{name} = %({name})s" for name in rows[0] if name != "key")
    with conn.cursor() as cursor:
        cursor.executemany(
            f"update atlas.messages set understood_at = now(), {assignments} where message_key = %(key)s",  # noqa: S608  # our own column names
            rows,
        )
        cursor.execute("delete from atlas.attachments where message_key = any(%s)", ([one.key for one in found],))
        cursor.executemany(
            "insert into atlas.attachments (message_key, part_index, name, declared_type, sniffed_type, size_bytes, sha256, inline) "
            "values (%s, %s, %s, %s, %s, %s, %s, %s)",
            [
                (
                    one.key,
                    part.index,
                    _clean(part.name),
                    part.declared_type,
                    part.sniffed_type,
                    part.size,
                    part.sha256,
                    part.inline,
                )
                for one in found
                for part in one.mail.parts
            ],
        )


def _columns(found: Understanding) -> dict[str, Any]:
    mail, (person, claimed) = found.mail, found.requester
    return {
        "key": found.key,
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
        "trust_level": found.trust.level.value,
        "trust_reason": found.trust.reason,
        "requester_name": _clean(person.name),
        "requester_address": _clean(person.address),
        "requester_claimed": claimed,
        "remarks": list(mail.remarks),
        "thread_key": _clean(found.thread),
    }


def earlier_in_thread(conn: Connection, key: str, *, hours: int) -> int:
    """How many mails of this one's conversation were stored in the hours before it; 0 where it belongs to none."""
    row = conn.execute(
        "select count(*) as n from atlas.messages m join atlas.messages other using (thread_key) where m.message_key = %s "
        "and other.message_key < m.message_key and other.stored_at > m.stored_at - %s * interval '1 hour'",
        (key, hours),
    ).fetchone()
    return int(row["n"]) if row else 0


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
    for name in ("sender", "forwarder"):
        facts[name] = Address(**(facts.get(name) or {}))
    return Forward(**facts)


def trust_of(row: Row) -> Trust:
    """The stored judgement of who wrote."""
    return Trust(TrustLevel(row["trust_level"]), row["trust_reason"] or "")


def _clean(value: str | None) -> str | None:
    return None if value is None else clean_text(value)
