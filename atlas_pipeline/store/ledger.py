"""The mailbox ledger: every mail ever listed, once. It is the authority for message keys.

A key is the UTC day of the server's INTERNALDATE and the ledger's own sequence, never anything out of a header.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atlas_pipeline.model import Listing
from atlas_pipeline.store.database import Connection

# Doubling from the first wait up to an hour: an outage costs a handful of runs, not one every thirty seconds.
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 30, 3600


@dataclass(frozen=True)
class LedgerRow:
    """One listed mail, as the intake needs it."""

    message_key: str
    seq: int
    mailbox: str
    uid_validity: int
    uid: str
    fetched: bool
    flagged: bool
    duplicate_of: str | None
    refused_code: str | None
    gone: bool


def high_water_mark(conn: Connection, mailbox: str, uid_validity: int | None = None) -> int | None:
    """The highest IMAP UID known of the mailbox in its current UIDVALIDITY; None at first sight."""
    row = conn.execute(
        "select m.uid_validity, greatest(m.first_mark, (select max(l.uid::bigint) from atlas.mailbox_ledger l "
        "where l.mailbox = m.mailbox and l.uid_validity = m.uid_validity and l.uid ~ '^[0-9]+$')) as mark "
        "from atlas.mailboxes m where m.mailbox = %s",
        (mailbox,),
    ).fetchone()
    if not row or (uid_validity is not None and row["uid_validity"] != uid_validity):
        return None
    mark: int | None = row["mark"]
    return mark


def record_listing(conn: Connection, listing: Listing, *, max_bytes: int) -> list[str]:
    """Add what is new, in the order of INTERNALDATE; return the keys given now. Idempotent.

    A mail over ``max_bytes`` gets its row with ``refused_code`` and is never fetched.
    """
    conn.execute(
        "insert into atlas.mailboxes (mailbox, uid_validity, first_mark) values (%s, %s, %s) on conflict (mailbox) do update "
        "set last_read_at = now(), uid_validity = excluded.uid_validity, first_mark = case when "
        "atlas.mailboxes.uid_validity = excluded.uid_validity then atlas.mailboxes.first_mark else excluded.first_mark end",
        (listing.mailbox, listing.uid_validity, None if listing.uid_next is None else listing.uid_next - 1),
    )
    known = {
        row["uid"]
        for row in conn.execute(
            "select uid from atlas.mailbox_ledger where mailbox = %s and uid_validity = %s and uid = any(%s)",
            (listing.mailbox, listing.uid_validity, [mail.uid for mail in listing.mails]),
        )
    }
    keys: list[str] = []
    # By length first: UIDs are numbers written as text, and many mails arrive within one second.
    for mail in sorted(listing.mails, key=lambda mail: (mail.internal_date, len(mail.uid), mail.uid)):
        if mail.uid in known:
            continue
        row = conn.execute(
            "with next as (select nextval(pg_get_serial_sequence('atlas.mailbox_ledger', 'seq')) as seq) "
            "insert into atlas.mailbox_ledger (mailbox, uid_validity, uid, seq, message_key, internal_date, size_bytes, refused_code) "
            "overriding system value select %(mailbox)s, %(validity)s, %(uid)s, seq, "
            "to_char(%(at)s at time zone 'UTC', 'YYYYMMDD') || '-' || lpad(seq::text, greatest(6, length(seq::text)), '0'), "
            "%(at)s, %(size)s, %(refused)s from next on conflict (mailbox, uid_validity, uid) do nothing returning message_key",
            {
                "mailbox": listing.mailbox,
                "validity": listing.uid_validity,
                "uid": mail.uid,
                "at": mail.internal_date,
                "size": mail.size,
                "refused": "message_too_large" if mail.size > max_bytes else None,
            },
        ).fetchone()
        if row:
            keys.append(row["message_key"])
    return keys


def due_keys(conn: Connection, limit: int) -> list[str]:
    """Keys whose intake is not finished, is not leased to a live run and may be tried now; oldest first."""
    rows = conn.execute(
        # Two halves, each by its own index: joined by an OR, the look would read the whole ledger three times a minute.
        "with unfinished as (select message_key from atlas.mailbox_ledger "
        "where fetched_at is null and gone_at is null and refused_code is null "
        "union select message_key from atlas.inbox where status = 'received') "
        "select l.message_key from unfinished join atlas.mailbox_ledger l using (message_key) "
        "where l.not_before <= now() and l.gone_at is null and l.refused_code is null and l.duplicate_of is null "
        "and not exists (select from atlas.inbox_claims c where c.message_key = l.message_key and c.until > now()) "
        "order by l.seq limit %s",
        (limit,),
    )
    return [row["message_key"] for row in rows]


def rows(conn: Connection, keys: Sequence[str]) -> list[LedgerRow]:
    """The ledger rows of these keys, in the ledger's order."""
    found = conn.execute(
        "select message_key, seq, mailbox, uid_validity, uid, fetched_at is not null as fetched, flagged_at is not null as flagged, "
        "duplicate_of, refused_code, gone_at is not null as gone from atlas.mailbox_ledger where message_key = any(%s) order by seq",
        (list(keys),),
    )
    return [LedgerRow(**row) for row in found]


def numbering(conn: Connection, mailbox: str) -> int | None:
    """The UIDVALIDITY under which the mailbox was last listed; None at first sight. A UID means nothing outside of it."""
    row = conn.execute("select uid_validity from atlas.mailboxes where mailbox = %s", (mailbox,)).fetchone()
    return None if row is None else int(row["uid_validity"])


def unflagged(conn: Connection, mailbox: str, uid_validity: int, limit: int = 1000) -> list[LedgerRow]:
    """Rows stored and not yet marked as read on the server: what a crash between commit and flag leaves."""
    found = conn.execute(
        "select message_key, seq, mailbox, uid_validity, uid, true as fetched, false as flagged, duplicate_of, refused_code, false as gone "
        "from atlas.mailbox_ledger where fetched_at is not null and flagged_at is null and gone_at is null and mailbox = %s "
        "and uid_validity = %s order by seq limit %s",
        (mailbox, uid_validity, limit),
    )
    return [LedgerRow(**row) for row in found]


def set_flagged(conn: Connection, keys: Sequence[str]) -> None:
    """The server has marked these as read."""
    conn.execute("update atlas.mailbox_ledger set flagged_at = now() where message_key = any(%s)", (list(keys),))


def set_gone(conn: Connection, key: str) -> None:
    """The mail was listed and is no longer there."""
    conn.execute("update atlas.mailbox_ledger set gone_at = now() where message_key = %s", (key,))


def wait(conn: Connection, key: str, code: str) -> None:
    """A transient failure: try again later, each time a little later."""
    conn.execute(
        "update atlas.mailbox_ledger set waits = waits + 1, wait_code = %s, "
        "not_before = now() + least(%s * power(2, least(waits, 12)), %s) * interval '1 second' where message_key = %s",
        (code, _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS, key),
    )


def settled(conn: Connection, key: str) -> None:
    """The intake of this key came to its end: the waiting is over."""
    conn.execute(
        "update atlas.mailbox_ledger set waits = 0, wait_code = null, not_before = now() "
        "where message_key = %s and (waits > 0 or wait_code is not null)",
        (key,),
    )


def last_read(conn: Connection) -> dict[str, float]:
    """Seconds since each mailbox was last read."""
    found = conn.execute("select mailbox, extract(epoch from now() - last_read_at)::float as age from atlas.mailboxes")
    return {row["mailbox"]: row["age"] for row in found}
