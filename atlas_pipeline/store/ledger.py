"""The mailbox ledger: every mail ever listed, once. It is the authority for message keys.

A key is the UTC day of the server's INTERNALDATE and the ledger's own sequence, never anything out of a header.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from atlas_pipeline.model import ListedMail, Listing
from atlas_pipeline.store.database import Connection, Row

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
    size_bytes: int
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


def known_uids(conn: Connection, mailbox: str, uid_validity: int, uids: Sequence[str]) -> set[str]:
    """Which of these UIDs have a row."""
    found = conn.execute(
        "select uid from atlas.mailbox_ledger where mailbox = %s and uid_validity = %s and uid = any(%s)",
        (mailbox, uid_validity, list(uids)),
    )
    return {row["uid"] for row in found}


def record_listing(conn: Connection, listing: Listing, *, max_bytes: int) -> list[str]:
    """Add what is new, in the order of INTERNALDATE; return the keys given now. Idempotent.

    A mail over ``max_bytes`` gets its row with ``refused_code`` and is never fetched.
    """
    conn.execute(
        "insert into atlas.mailboxes (mailbox, uid_validity, first_mark) values (%s, %s, %s) on conflict (mailbox) do update "
        "set uid_validity = excluded.uid_validity, first_mark = case when "
        "atlas.mailboxes.uid_validity = excluded.uid_validity then atlas.mailboxes.first_mark else excluded.first_mark end",
        (listing.mailbox, listing.uid_validity, None if listing.uid_next is None else listing.uid_next - 1),
    )
    known = known_uids(conn, listing.mailbox, listing.uid_validity, [mail.uid for mail in listing.mails])
    # By length first: UIDs are numbers written as text, and many mails arrive within one second.
    new = sorted(
        (mail for mail in listing.mails if mail.uid not in known),
        key=lambda mail: (mail.internal_date, len(mail.uid), mail.uid),
    )
    if not new:
        return []
    # One statement for all: ten thousand mails of a first look would take a statement each otherwise.
    rows = conn.execute(
        "with listed as (select * from unnest(%(uids)s::text[], %(dates)s::timestamptz[], %(sizes)s::bigint[]) with ordinality "
        "as mail (uid, at, size, place) order by place), "
        "numbered as materialized (select nextval(pg_get_serial_sequence('atlas.mailbox_ledger', 'seq')) as seq, listed.* from listed) "
        "insert into atlas.mailbox_ledger (mailbox, uid_validity, uid, seq, message_key, internal_date, size_bytes, refused_code) "
        "overriding system value select %(mailbox)s, %(validity)s, uid, seq, "
        "to_char(at at time zone 'UTC', 'YYYYMMDD') || '-' || lpad(seq::text, greatest(6, length(seq::text)), '0'), "
        "at, size, case when size > %(limit)s then 'message_too_large' end from numbered order by seq "
        "on conflict (mailbox, uid_validity, uid) do nothing returning message_key",
        {
            "mailbox": listing.mailbox,
            "validity": listing.uid_validity,
            "uids": [mail.uid for mail in new],
            "dates": [mail.internal_date for mail in new],
            "sizes": [mail.size for mail in new],
            "limit": max_bytes,
        },
    )
    return [row["message_key"] for row in rows]


@dataclass(frozen=True)
class Renumbering:
    """What became of a mailbox's mails under a new UIDVALIDITY."""

    listing: Listing
    matched: int
    missing: int


def renumber(conn: Connection, whole: Listing, *, since: datetime | None) -> Renumbering | None:
    """Give known mails their UIDs under a new numbering; None where the numbering is no new one (or new to us altogether).

    ``whole`` is every mail of the folder. A mail is known again by Message-ID and size, and where one side has no Message-ID by
    INTERNALDATE and size; equal ones are paired in order. Returned is the listing of what is left and has to be taken in: the unread, and
    what came at or after ``since`` and was read by somebody before we saw it. Rows that the server no longer shows are gone.
    """
    row = conn.execute(
        "select uid_validity from atlas.mailboxes where mailbox = %s for update", (whole.mailbox,)
    ).fetchone()
    if row is None or row["uid_validity"] == whole.uid_validity:
        return None
    known = conn.execute(
        "select l.message_key, l.internal_date, l.size_bytes, coalesce(m.message_id, o.message_id) as message_id "
        "from atlas.mailbox_ledger l left join atlas.messages m on m.message_key = l.message_key and m.understood_at is not null "
        "left join atlas.messages o on o.message_key = l.duplicate_of "
        "where l.mailbox = %s and l.uid_validity = %s and l.uid not like '%%~%%' order by l.seq",
        (whole.mailbox, row["uid_validity"]),
    ).fetchall()
    pairs, left = _paired(known, whole.mails)
    # The old names are put out of the way first: a server may come back to a numbering that it had before.
    conn.execute(
        "update atlas.mailbox_ledger set uid = uid || '~' || seq, gone_at = case when fetched_at is null and duplicate_of is null "
        "and refused_code is null and not message_key = any(%(kept)s) then now() else gone_at end "
        "where mailbox = %(mailbox)s and uid_validity = %(validity)s and uid not like '%%~%%'",
        {"mailbox": whole.mailbox, "validity": row["uid_validity"], "kept": list(pairs)},
    )
    conn.execute(
        "update atlas.mailbox_ledger l set uid = new.uid, uid_validity = %s, gone_at = null "
        "from unnest(%s::text[], %s::text[]) as new (message_key, uid) where l.message_key = new.message_key",
        (whole.uid_validity, list(pairs), list(pairs.values())),
    )
    taken = tuple(mail for mail in left if not mail.seen or (since is not None and mail.internal_date >= since))
    return Renumbering(replace(whole, mails=taken), matched=len(pairs), missing=len(known) - len(pairs))


def _paired(known: Sequence[Row], mails: Sequence[ListedMail]) -> tuple[dict[str, str], list[ListedMail]]:
    """Message key to new UID for what is known, and the mails that are not.

    A Message-ID alone is not enough: two mails may share one. What is not paired here is fetched, and known by its content then.
    """
    pairs: dict[str, str] = {}
    by_id: dict[object, deque[Row]] = {}
    by_arrival: dict[object, deque[Row]] = {}
    for row in known:
        if row["message_id"]:
            by_id.setdefault((row["message_id"], row["size_bytes"]), deque()).append(row)
    left: list[ListedMail] = []
    for mail in mails:
        fits = by_id.get((mail.message_id, mail.size)) if mail.message_id else None
        if fits:
            pairs[fits.popleft()["message_key"]] = mail.uid
        else:
            left.append(mail)
    for row in known:
        if row["message_key"] not in pairs:
            by_arrival.setdefault((row["internal_date"], row["size_bytes"]), deque()).append(row)
    unknown: list[ListedMail] = []
    for mail in left:
        fits = by_arrival.get((mail.internal_date, mail.size))
        # Two mails that both have a Message-ID, and not the same one, are two mails.
        if fits and not (mail.message_id and fits[0]["message_id"]):
            pairs[fits.popleft()["message_key"]] = mail.uid
        else:
            unknown.append(mail)
    return pairs, unknown


def due_keys(conn: Connection, limit: int) -> list[str]:
    """Keys whose intake is not finished, is not leased to a live run and may be tried now; oldest first."""
    rows = conn.execute(
        # Two halves, each by its own index: joined by an OR, the look would read the whole ledger three times a minute.
        # What is still on a server that has to be left alone for a while is not due.
        "with unfinished as (select message_key from atlas.mailbox_ledger w "
        "where fetched_at is null and gone_at is null and refused_code is null "
        "and not exists (select from atlas.mailbox_pulse p where p.mailbox = w.mailbox and p.retry_at > now()) "
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
        "select message_key, seq, mailbox, uid_validity, uid, size_bytes, fetched_at is not null as fetched, flagged_at is not null as flagged, "
        "duplicate_of, refused_code, gone_at is not null as gone from atlas.mailbox_ledger where message_key = any(%s) order by seq",
        (list(keys),),
    )
    return [LedgerRow(**row) for row in found]


def key_of(conn: Connection, seq: int) -> str | None:
    """The message with this place in the ledger."""
    row = conn.execute("select message_key from atlas.mailbox_ledger where seq = %s", (seq,)).fetchone()
    return row["message_key"] if row else None


def numbering(conn: Connection, mailbox: str) -> int | None:
    """The UIDVALIDITY under which the mailbox was last listed; None at first sight. A UID means nothing outside of it."""
    row = conn.execute("select uid_validity from atlas.mailboxes where mailbox = %s", (mailbox,)).fetchone()
    return None if row is None else int(row["uid_validity"])


def unflagged(conn: Connection, mailbox: str, uid_validity: int, limit: int = 1000) -> list[LedgerRow]:
    """Rows stored and not yet marked as read on the server: what a crash between commit and flag leaves."""
    found = conn.execute(
        "select message_key, seq, mailbox, uid_validity, uid, size_bytes, true as fetched, false as flagged, duplicate_of, refused_code, "
        "false as gone from atlas.mailbox_ledger where fetched_at is not null and flagged_at is null and gone_at is null and mailbox = %s "
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
