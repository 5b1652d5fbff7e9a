"""Whether the mailbox is still read. A poller that dies silently is noticed by nobody but the client who waits.

The team gets one mail when it has been silent for ten minutes and one when it is read again, however long it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from atlas_pipeline.errors import AtlasError
from atlas_pipeline.flow import recapping
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.store import audit, mailboxes

SILENCE_SECONDS = 600.0
# The pulse is looked at every two minutes. After a longer gap the house was off, and what is silent is the house.
GAP_SECONDS = 300.0


@dataclass(frozen=True)
class Told:
    """The pulse, and what the team was told now: ``mailbox_silent``, ``mailbox_read_again``, or nothing."""

    silent_seconds: float = 0.0
    failures: int = 0
    code: str | None = None
    told: Literal["mailbox_silent", "mailbox_read_again"] | None = None


def due(parts: Parts) -> bool:
    """Look at the pulse; whether there is something to tell. False where no mailbox is configured."""
    mailbox = _configured(parts)
    if mailbox is None:
        return False
    with parts.db.transaction() as conn:
        mailboxes.watch(conn, mailbox, gap_seconds=GAP_SECONDS)
        found = mailboxes.pulse(conn, mailbox)
    return found is not None and found.reported != (found.silent_seconds > SILENCE_SECONDS)


def tell(parts: Parts) -> Told:
    """Queue the alert or the all-clear that is due, once, and send what the outbox holds."""
    mailbox = _configured(parts)
    if mailbox is None:
        return Told()
    told: Literal["mailbox_silent", "mailbox_read_again"] | None = None
    with parts.db.transaction() as conn:
        mailboxes.watch(conn, mailbox, gap_seconds=GAP_SECONDS)
        found = mailboxes.pulse(conn, mailbox)
        if found is None:
            return Told()
        facts: dict[str, audit.Fact] = {"mailbox": mailbox, "minutes": round(found.silent_seconds / 60)}
        if mailboxes.silence_begins(conn, mailbox, SILENCE_SECONDS):
            told = "mailbox_silent"
            facts["code"] = found.code or "not_looked_at"
            audit.alert(conn, f"silent:{mailbox}", told, hours=0, minutes=facts["minutes"])
            recapping.queue_alert(parts, conn, "alert", told, facts)
        elif (seconds := mailboxes.silence_ends(conn, mailbox, SILENCE_SECONDS)) is not None:
            told = "mailbox_read_again"
            facts["minutes"] = round(seconds / 60)
            audit.record(conn, None, told, actor="heartbeat", minutes=facts["minutes"])
            recapping.queue_alert(parts, conn, "all_clear", told, facts)
    if told:
        recapping.deliver_due(parts)
    return Told(found.silent_seconds, found.failures, found.code, told)


def _configured(parts: Parts) -> str | None:
    try:
        return parts.source().mailbox
    except AtlasError:
        return None  # absent or misspelt: `atlas doctor` and the sensor say so
