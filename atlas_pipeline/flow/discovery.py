"""The door: one look at the mailbox, written into the ledger. No body is fetched and nothing is flagged here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from atlas_pipeline.errors import AccessRefused, AtlasError
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.mailbox.source import MailSource
from atlas_pipeline.store import audit, ledger, mailboxes

# New mails of one look; the sensor's tick has to end, and what is left is listed by the next.
MOST_LISTED = 5000
# What is left alone, for how long (seconds, the first time and at most). A provider that counts bytes locks the account
# for a day when it is asked on; many wrong passwords lock it too; after an outage we want to be back soon. A first failure
# is tried again at the next look.
_OVER_QUOTA, _REFUSED, _OUTAGE = (7200.0, 21_600.0), (30.0, 900.0), (30.0, 300.0)
# Read mail this much older than our last look was seen, or passed over on purpose, under the old numbering.
_OVERLAP = timedelta(days=1)


def discover(parts: Parts) -> list[str]:
    """List the mailbox and add what is new to the ledger; return the keys given now.

    A mailbox that failed lately is left alone for a while: then nothing is asked, and nothing returned. Raises what the source
    raises (coded), after an alarm that is repeated at most hourly.
    """
    try:
        source = parts.source()
    except AtlasError as error:
        with parts.db.transaction() as conn:
            audit.alert(conn, f"mailbox:{error.code}", error.code)
        raise
    with parts.db.transaction() as conn:
        before = mailboxes.pulse(conn, source.mailbox)
    if before is not None and before.resting_seconds > 0:
        return []
    try:
        with source:
            keys = _list(parts, source)
    except AtlasError as error:
        failed(parts, source.mailbox, error)
        raise
    with parts.db.transaction() as conn:
        mailboxes.read(conn, source.mailbox)
    return keys


def failed(parts: Parts, mailbox: str, error: AtlasError) -> None:
    """A look or a fetch went wrong: an alarm, and a time in which the server is left alone, longer with each failure in a row."""
    quota = error.code == "imap_over_quota"
    first, longest = _OVER_QUOTA if quota else _REFUSED if isinstance(error, AccessRefused) else _OUTAGE
    with parts.db.transaction() as conn:
        mailboxes.failed(
            conn, mailbox, error.code, first_seconds=first, longest_seconds=longest, free=0 if quota else 1
        )
        audit.alert(conn, f"mailbox:{error.code}", error.code)


def _list(parts: Parts, source: MailSource) -> list[str]:
    limit = parts.settings.max_message_bytes
    with parts.db.transaction() as conn:
        mark = ledger.high_water_mark(conn, source.mailbox)

    def known(uid_validity: int, uids: Sequence[str]) -> Collection[str]:
        with parts.db.transaction() as conn:
            return ledger.known_uids(conn, source.mailbox, uid_validity, uids)

    listing = source.list(above_uid=mark, known=known, limit=MOST_LISTED)
    with parts.db.transaction() as conn:
        renumbered = ledger.numbering(conn, source.mailbox) not in (None, listing.uid_validity)
    if renumbered:
        return _renumber(parts, source)
    with parts.db.transaction() as conn:
        keys = ledger.record_listing(conn, listing, max_bytes=limit)
        if keys:
            audit.record(conn, None, "mailbox_listed", actor="mailbox", new=len(keys), more=listing.more)
    return keys


def _renumber(parts: Parts, source: MailSource) -> list[str]:
    """The server numbers its mails anew (a rebuild, a migration): old UIDs may name other mails now, so everything is matched."""
    whole = source.list_all()
    with parts.db.transaction() as conn:
        last = mailboxes.last_read_at(conn, source.mailbox)
        found = ledger.renumber(conn, whole, since=None if last is None else last - _OVERLAP)
        if found is None:  # another look was faster
            return []
        keys = ledger.record_listing(conn, found.listing, max_bytes=parts.settings.max_message_bytes)
        audit.alert(
            conn,
            f"renumbered:{source.mailbox}:{whole.uid_validity}",
            "mailbox_renumbered",
            hours=24,
            matched=found.matched,
            missing=found.missing,
            new=len(keys),
            listed=len(whole.mails),
        )
    return keys
