"""What scanning a stored mail needs besides the scanner: how fresh its signatures are, the record of verdicts, scanning again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from atlas_pipeline.errors import Refused, ScannerUnavailable
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.understanding import own_message_id_domain
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import ParsedMail, Status, Verdict
from atlas_pipeline.scan.client import ScannerVersion
from atlas_pipeline.scan.mail import MailVerdict, scan_parsed
from atlas_pipeline.store import audit, messages, tracking, verdicts
from atlas_pipeline.store.database import Connection


@dataclass(frozen=True)
class Engine:
    """The scanner and its signatures; ``age_days`` None: none of ClamAV's own; ``objection``: why they are no protection."""

    version: ScannerVersion
    age_days: float | None
    objection: str | None

    def __str__(self) -> str:
        """Return it as verdicts name it: ``clamd/1.4.6/27840/0.6 days``, or ``private`` for signatures of one's own."""
        of = "private" if self.age_days is None else f"{self.version.signatures}/{self.age_days:.1f} days"
        return f"clamd/{self.version.engine}/{of}"


def asked(parts: Parts) -> Engine:
    """Ask the scanner what it is.

    Raises ScannerUnavailable; ``scanner_signatures_old`` and ``scanner_signatures_missing`` where ATLAS_SCAN_REQUIRE_FRESH asks
    for fresh ones.
    """
    version = parts.scanner.version()
    now = datetime.now()  # noqa: DTZ005  # clamd writes local time
    age = version.age_days(now)
    objection = version.objection(now, max_days=parts.settings.scan_signatures_max_days)
    if objection is not None and parts.settings.scan_require_fresh:
        raise ScannerUnavailable(objection, age_days=round(age or 0, 1))
    return Engine(version, age, objection)


def engine(parts: Parts) -> str:
    """Which engine with which signatures gives the verdict. One that can't say is named so, and its verdict stands.

    Raises ScannerUnavailable where ATLAS_SCAN_REQUIRE_FRESH is set: as ``asked``.
    """
    try:
        return str(asked(parts))
    except ScannerUnavailable:
        if parts.settings.scan_require_fresh:
            raise
        return "clamd/unknown"


def store(conn: Connection, key: str, mail: ParsedMail, raw_sha256: str, verdict: MailVerdict, by: str) -> None:
    """Write the verdict on the whole and on each part."""
    verdicts.add_scan(conn, key, None, raw_sha256, verdict.raw, engine=by)
    hashes = {part.index: part.sha256 for part in mail.parts}
    for index, result in verdict.parts:
        verdicts.add_scan(conn, key, index, hashes[index], result, engine=by)


@dataclass(frozen=True)
class Rescanned:
    """One stored mail, scanned again. ``was``: the worst verdict before; ``raised``: it became infected by this scan."""

    key: str
    was: Verdict | None
    now: Verdict
    raised: bool


def rescan(parts: Parts, since: datetime) -> Iterator[Rescanned]:
    """Scan again what was stored since then, oldest first; a mail that became infected is blocked, with an alarm.

    One that an agent works on is not taken out of its hands: the alarm says so. A scanner in trouble is ``Verdict.ERROR``.
    Raises what ``engine`` raises.
    """
    by = engine(parts)
    with parts.db.transaction() as conn:
        keys = messages.stored_since(conn, since)
    domain = own_message_id_domain(parts.settings.mail_from)
    for key in keys:
        with parts.db.transaction() as conn:
            raw = messages.raw(conn, key)
            before = {Verdict(value) for value in verdicts.last_scan(conn, key)}
        if raw is None:  # a duplicate by now
            continue
        mail = parse(raw, own_message_id_domain=domain)
        verdict = scan_parsed(raw, mail, parts.scanner)
        raised = verdict.overall is Verdict.INFECTED and Verdict.INFECTED not in before
        with parts.db.transaction() as conn:
            store(conn, key, mail, hashlib.sha256(raw).hexdigest(), verdict, by)
            audit.record(conn, key, "rescanned", actor="scan", verdict=verdict.overall.value)
            if raised:
                _raise(conn, key)
        was = next((one for one in (Verdict.INFECTED, Verdict.UNSCANNABLE, Verdict.ERROR) if one in before), None)
        yield Rescanned(key, was or (Verdict.CLEAN if before else None), verdict.overall, raised)


def _raise(conn: Connection, key: str) -> None:
    state = tracking.require(conn, key)
    try:
        tracking.move(
            conn,
            key,
            expected=tuple(Status),
            to=Status.BLOCKED,
            action="blocked_unsafe",
            actor="scan",
            reason_code="became_infected",
            was=state.status.value,
        )
    except Refused:  # blocked already, or in an agent's hands
        audit.record(conn, key, "became_infected", actor="scan", status=state.status.value)
    audit.alert(conn, f"infected:{key}", "became_infected", key=key, status=state.status.value)
