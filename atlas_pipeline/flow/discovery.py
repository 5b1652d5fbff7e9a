"""The door: one look at the mailbox, written into the ledger. No body is fetched and nothing is flagged here."""

from __future__ import annotations

from atlas_pipeline.errors import AtlasError
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.store import audit, ledger


def discover(parts: Parts) -> list[str]:
    """List the mailbox and add what is new to the ledger; return the keys given now.

    Raises what the source raises (coded), after an alarm that is repeated at most hourly.
    """
    try:
        with parts.source() as source:
            with parts.db.transaction() as conn:
                mark = ledger.high_water_mark(conn, source.mailbox)
            listing = source.list(above_uid=mark)
            with parts.db.transaction() as conn:
                known = ledger.high_water_mark(conn, source.mailbox, listing.uid_validity)
            if mark is not None and known is None:
                # The server renumbered the mailbox: the old mark means nothing, so look again as if for the first time.
                listing = source.list(above_uid=None)
    except AtlasError as error:
        with parts.db.transaction() as conn:
            audit.alert(conn, f"mailbox:{error.code}", error.code)
        raise
    with parts.db.transaction() as conn:
        keys = ledger.record_listing(conn, listing, max_bytes=parts.settings.max_message_bytes)
        if keys:
            audit.record(conn, None, "mailbox_listed", actor="mailbox", new=len(keys), listed=len(listing.mails))
    return keys
