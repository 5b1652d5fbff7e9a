"""Bodies come in: each once, kept as received and committed, and only then marked as read on the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from atlas_pipeline.errors import AtlasError, DatabaseUnavailable
from atlas_pipeline.flow import discovery
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.mailbox.source import MailSource
from atlas_pipeline.store import audit, ledger, mailboxes, messages

# Mails committed together. They are marked as read at the end of the range: commands that wait for an answer are what a slow
# line costs, and what a crash leaves unmarked the next range marks.
BATCH_MAILS, BATCH_BYTES = 50, 16_000_000


Batch = list[tuple[str, bytes | None]]
Kept = Sequence[tuple[str, bytes]]


def fetch(parts: Parts, keys: Sequence[str], on_kept: Callable[[Kept], None] = lambda _mails: None) -> dict[str, str]:
    """Bring in the bodies that are not stored yet; return the keys that failed with their codes. Raises DatabaseUnavailable.

    ``on_kept`` gets each batch of keys and bytes once it is committed, while the bytes are at hand.
    """
    with parts.db.transaction() as conn:
        wanted = [
            row
            for row in ledger.rows(conn, keys)
            if not row.fetched and not row.gone and row.refused_code is None and row.duplicate_of is None
        ]
    if not wanted:
        return {}
    # Listed in another mailbox, or under a numbering that is over: a UID would name another mail by now.
    failed = {row.message_key: "mailbox_changed" for row in wanted}
    try:
        source = parts.source()
    except AtlasError as error:
        with parts.db.transaction() as conn:
            audit.alert(conn, f"mailbox:{error.code}", error.code)
        return dict.fromkeys(failed, error.code)
    with parts.db.transaction() as conn:
        pulse = mailboxes.pulse(conn, source.mailbox)
    if pulse is not None and pulse.resting_seconds > 0:
        return dict.fromkeys(failed, pulse.code or "mailbox_resting")
    try:
        with source:
            with parts.db.transaction() as conn:
                validity = ledger.numbering(conn, source.mailbox)
            here = [row for row in wanted if (row.mailbox, row.uid_validity) == (source.mailbox, validity)]
            asked = {row.uid: row.message_key for row in here}
            sizes = {row.uid: row.size_bytes for row in here}
            failed |= dict.fromkeys(asked.values(), "fetch_incomplete")
            cut: list[AtlasError] = []
            for batch in _batches(source.fetch(sizes, uid_validity=validity), cut):
                kept = [(asked[uid], raw) for uid, raw in batch if uid in asked]
                _keep(parts, kept)
                for key, _raw in kept:
                    failed.pop(key, None)
                on_kept([(key, raw) for key, raw in kept if raw is not None])
            if cut:
                raise cut[0]
            _flag(parts, source, validity)
    except DatabaseUnavailable:  # no fault of the mailbox
        raise
    except AtlasError as error:
        discovery.failed(parts, source.mailbox, error)
        failed = dict.fromkeys(failed, error.code)
    return failed


def _batches(mails: Iterator[tuple[str, bytes | None]], cut: list[AtlasError]) -> Iterator[Batch]:
    """Group what arrives. An error goes into ``cut``, and what came before it is the last batch: that much is kept."""
    batch: Batch = []
    size = 0
    try:
        for uid, raw in mails:
            batch.append((uid, raw))
            size += len(raw or b"")
            if len(batch) >= BATCH_MAILS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
    except AtlasError as error:
        cut.append(error)
    if batch:
        yield batch


def _keep(parts: Parts, mails: Sequence[tuple[str, bytes | None]]) -> None:
    with parts.db.transaction() as conn:
        messages.store_raw(conn, [(key, raw) for key, raw in mails if raw is not None])
        for key, raw in mails:
            if raw is None:
                ledger.set_gone(conn, key)
                audit.record(conn, key, "mail_gone", actor="intake")


def _flag(parts: Parts, source: MailSource, validity: int | None) -> None:
    """Mark as read what is committed, this run's and what a crash left: only ever after the commit."""
    if validity is None:
        return
    with parts.db.transaction() as conn:
        rows = ledger.unflagged(conn, source.mailbox, validity)
    if rows:
        source.mark_seen([row.uid for row in rows], uid_validity=validity)
        with parts.db.transaction() as conn:
            ledger.set_flagged(conn, [row.message_key for row in rows])
