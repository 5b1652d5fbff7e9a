"""Stored bytes become what is understood of them: one mail, or the batch that was just fetched, while its bytes are at hand."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parseaddr

import psycopg

from atlas_pipeline.errors import PoisonMessage, place_of
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.threads import thread_of
from atlas_pipeline.flow.watchdog import bounded
from atlas_pipeline.mailbox import trust
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import ParsedMail, Tenant, Trust
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import audit, claims, messages, outbox, tenants
from atlas_pipeline.store.database import Connection

log = logging.getLogger(__name__)

# Mails that servers write about mails; the ids that ours have stand in the returned header.
_REPORTS = ("report", "null_return_path")
_OWN_ID = re.compile(rb"<(?:recap|alert|all_clear)\.[A-Za-z0-9.-]{1,80}@atlas\.[A-Za-z0-9.-]{1,200}>")
_REPORT_BYTES, _MOST_RETURNED = 65_536, 5
# What the database says of a batch because of one of its mails; that mail is found by taking each alone.
_ONE_OF_THEM = (psycopg.IntegrityError, psycopg.DataError, psycopg.errors.ProgramLimitExceeded)


@dataclass(frozen=True)
class Understood:
    """``original`` is the key under which the same mail was known before, where it was."""

    mail: ParsedMail
    trust: Trust
    original: str | None


def understand(parts: Parts, key: str) -> Understood:
    """Parse the stored bytes of one message and write what was understood. Raises PoisonMessage("message_missing")."""
    with parts.db.transaction() as conn:
        raw = messages.raw(conn, key)
        everyone = tenants.all_tenants(conn)
    if raw is None:
        raise PoisonMessage("message_missing")
    with bounded(parts.settings.understanding_timeout_seconds):
        found = [_understanding(key, raw, parts.settings, everyone)]
    with parts.db.transaction() as conn:
        try:
            with conn.transaction():
                originals = _store(conn, found)
        except psycopg.errors.UniqueViolation:  # another run stored the same mail meanwhile
            originals = _store(conn, found)
    return Understood(found[0].mail, found[0].trust, originals.get(key))


def understand_batch(parts: Parts, mails: Sequence[tuple[str, bytes]], *, run_id: str) -> dict[str, Understood]:
    """The same for mails whose bytes are at hand, in one transaction.

    What is missing in the answer is to be taken alone: the mail itself, or another one of the batch, was too much.
    """
    keys = [key for key, _raw in mails]
    with parts.db.transaction() as conn:
        claims.begin_together(conn, keys, run_id=run_id, stage="understanding")
        everyone = tenants.all_tenants(conn)
    found = []
    # One limit for all: setting it starts a thread. Should they be slow together, each has the time to itself on the next try.
    with bounded(parts.settings.understanding_timeout_seconds):
        for key, raw in mails:
            try:
                found.append(_understanding(key, raw, parts.settings, everyone))
            except Exception as error:  # noqa: BLE001  # alone it is reported; here it must not stop the others
                log.warning("%s is left to be taken alone: %s at %s", key, type(error).__name__, place_of(error))
    originals: dict[str, str] = {}
    with parts.db.transaction() as conn:
        try:
            with conn.transaction():
                originals = _store(conn, found)
        except _ONE_OF_THEM as error:
            log.warning("%d mails are to be taken one by one: %s", len(found), error.sqlstate)
            found = []
        claims.end_together(conn, keys, run_id=run_id)
    return {one.key: Understood(one.mail, one.trust, originals.get(one.key)) for one in found}


def read_mail(raw: bytes, settings: Settings, everyone: Sequence[Tenant]) -> tuple[ParsedMail, Trust]:
    """Parse bytes and judge their sender, as the settings say who is who."""
    mail = parse(raw, own_message_id_domain=own_message_id_domain(settings.mail_from))
    judged = trust.judge(
        mail,
        founder_addresses=settings.founder_addresses,
        team_domains=settings.team_domains,
        tenants=everyone,
        authserv_ids=settings.authserv_ids,
    )
    return mail, judged


def own_message_id_domain(mail_from: str | None) -> str | None:
    """The domain under which our own mails get their Message-IDs."""
    address = parseaddr(mail_from or "")[1]
    return f"atlas.{address.rsplit('@', 1)[1].lower()}" if "@" in address else None


def _understanding(key: str, raw: bytes, settings: Settings, everyone: Sequence[Tenant]) -> messages.Understanding:
    mail, judged = read_mail(raw, settings, everyone)
    thread = thread_of(mail, own_domain=own_message_id_domain(settings.mail_from))
    return messages.Understanding(key, mail, judged, trust.requester(mail), thread)


def _store(conn: Connection, found: Sequence[messages.Understanding]) -> dict[str, str]:
    """Write all, the duplicates as such; the originals of those. Of equal mails within ``found`` the first is the original."""
    originals = messages.originals_of(conn, [(one.key, one.mail) for one in found])
    first: dict[tuple[str | None, str], str] = {}
    for one in found:
        if one.key not in originals:
            known = first.setdefault((one.mail.message_id, one.mail.fingerprint), one.key)
            if known != one.key:
                originals[one.key] = known
    new = [one for one in found if one.key not in originals]
    messages.store_understanding(conn, new)
    for key, original in originals.items():
        messages.mark_duplicate(conn, key, original)
        audit.record(conn, key, "duplicate", actor="intake", duplicate_of=original)
    audit.record_each(
        conn,
        [
            (
                one.key,
                {"parts": len(one.mail.parts), "remarks": list(one.mail.remarks), "trust": one.trust.level.value},
            )
            for one in new
        ],
        "received",
        actor="intake",
    )
    for one in new:
        if one.trust.reason == "sender_forged_founder":
            audit.record(conn, one.key, "sender_unauthenticated", actor="intake")
        _note_bounce(conn, one.key, one.mail)
    return originals


def _note_bounce(conn: Connection, key: str, mail: ParsedMail) -> None:
    """A delivery report that returns a mail of ours is told to that mail's message: the team did not read the recap."""
    if mail.automatic not in _REPORTS:
        return
    returned = (part.content[:_REPORT_BYTES] for part in mail.parts)
    named = {found.decode() for content in returned for found in _OWN_ID.findall(content)}
    for message_id in sorted(named)[:_MOST_RETURNED]:
        bounced = outbox.bounced(conn, message_id)
        if bounced is not None:
            about = bounced["message_key"]
            audit.record(conn, about, "recap_bounced", actor="intake", kind=bounced["kind"], report=key)
            audit.alert(conn, f"bounced:{message_id}", "recap_bounced", key=about, report=key)
