"""One range of messages, from the ledger to a decision: fetch, understand, scan, read pictures, classify.

Each message is worked on inside a try of its own: one that fails is noted, and the others go on. What a step does to one
message stands in ``inbox_steps``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from atlas_pipeline.errors import AtlasError, InvalidAnswer, PoisonMessage, Refused, place_of
from atlas_pipeline.flow import inbox_steps, operator
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import INBOX_STAGES, Outcome, StageDone, StageFailed
from atlas_pipeline.mailbox.source import MailSource
from atlas_pipeline.model import Status
from atlas_pipeline.store import audit, claims, ledger, messages, tracking

log = logging.getLogger(__name__)

MAX_STARTS = 2
_FLAG_BATCH = 50
# SQLSTATE classes that are about the values given: data exceptions, and limits of rows and indexes.
_DATA_REFUSED = ("22", "54")

Report = StageDone | StageFailed


def run(parts: Parts, keys: Sequence[str], *, run_id: str, redo: bool = False) -> Iterator[Report]:
    """Bring every key of the range to its end; yield one report a stage a message, in the range's order.

    Keys leased to another run are passed over, keys that the tables say are done are left alone unless ``redo``. Raises
    DatabaseUnavailable alone: everything else is a report.
    """
    if redo:
        _reopen(parts, keys)
    with parts.db.transaction() as conn:
        leased = claims.lease(conn, keys, run_id=run_id, seconds=parts.settings.claim_seconds)
    mine = set(leased)
    fetch_failed = _fetch(parts, leased)
    for key in keys:
        if key not in mine:
            yield from _same(key, Outcome.WAITING)
        elif key in fetch_failed:
            yield from _not_fetched(parts, key, fetch_failed[key], run_id=run_id)
        else:
            yield from _one(parts, key, run_id=run_id)


def _reopen(parts: Parts, keys: Sequence[str]) -> None:
    for key in keys:
        try:
            operator.reprocess(parts.db, key, actor="redo", force=False)
        except Refused as refusal:
            log.info("redo left %s alone: %s", key, refusal.code)


def _fetch(parts: Parts, keys: Sequence[str]) -> dict[str, str]:
    """Bring in the bodies that are not stored yet, then flag them; return the keys that failed with their codes."""
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
        with parts.source() as source:
            with parts.db.transaction() as conn:
                validity = ledger.numbering(conn, source.mailbox)
            asked = {row.uid: row for row in wanted if (row.mailbox, row.uid_validity) == (source.mailbox, validity)}
            failed |= {row.message_key: "fetch_incomplete" for row in asked.values()}
            stored = 0
            for uid, raw in source.fetch(list(asked), uid_validity=validity):
                row = asked.get(uid)
                if row is None:
                    continue
                _keep(parts, row.message_key, raw)
                failed.pop(row.message_key, None)
                stored += raw is not None
                if stored % _FLAG_BATCH == 0:
                    _flag(parts, source, validity)
            _flag(parts, source, validity)
    except AtlasError as error:
        failed = dict.fromkeys(failed, error.code)
        with parts.db.transaction() as conn:
            audit.alert(conn, f"mailbox:{error.code}", error.code)
    return failed


def _keep(parts: Parts, key: str, raw: bytes | None) -> None:
    with parts.db.transaction() as conn:
        if raw is None:
            ledger.set_gone(conn, key)
            audit.record(conn, key, "mail_gone", actor="intake")
        else:
            messages.store_raw(conn, key, raw)


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


def _not_fetched(parts: Parts, key: str, code: str, *, run_id: str) -> Iterator[Report]:
    with parts.db.transaction() as conn:
        ledger.wait(conn, key, code)
        audit.record(conn, key, "intake_waiting", actor="intake", stage="raw_message", code=code)
        claims.release(conn, [key], run_id=run_id)
    yield StageFailed("raw_message", key, code)
    yield from _same(key, Outcome.WAITING, INBOX_STAGES[1:])


def _one(parts: Parts, key: str, *, run_id: str) -> Iterator[Report]:
    """One message whose bytes are stored (or that has none of its own)."""
    with parts.db.transaction() as conn:
        found = ledger.rows(conn, [key])
        finished = _finished(found[0], tracking.get(conn, key)) if found else Outcome.GONE
        if finished is None:
            tries = claims.begin(conn, key, run_id=run_id, stage="intake", seconds=parts.settings.claim_seconds)
            if not tries:  # the lease ran out while earlier messages were worked on, and another run has the message
                finished = Outcome.WAITING
        else:
            claims.release(conn, [key], run_id=run_id)
    if finished is not None:
        yield from _same(key, finished)
        return
    reached = 0
    try:
        _refuse_poison(tries)
        for report in inbox_steps.steps(parts, key):
            reached = INBOX_STAGES.index(report.stage) + 1
            yield report
    except AtlasError as error:
        yield from _failed(parts, key, error, reached, run_id=run_id)
    except Exception as error:  # noqa: BLE001  # one message's unforeseen fault must leave the others alone; its text may quote the mail
        code = f"unexpected_{type(error).__name__}"
        with parts.db.transaction() as conn:
            # The try stays counted: a mail that always fails this way is set aside after MAX_STARTS.
            claims.expire(conn, key, run_id=run_id)
            audit.record(
                conn, key, "intake_error", actor="intake", stage=INBOX_STAGES[reached], code=code, where=place_of(error)
            )
        yield StageFailed(INBOX_STAGES[reached], key, code)
        yield from _same(key, Outcome.WAITING, INBOX_STAGES[reached + 1 :])
    else:
        with parts.db.transaction() as conn:
            ledger.settled(conn, key)
            claims.release(conn, [key], run_id=run_id)


def _refuse_poison(tries: int) -> None:
    if tries > MAX_STARTS:
        raise PoisonMessage("poison_message", starts=tries - 1)


def _finished(row: ledger.LedgerRow, state: tracking.Tracking | None) -> Outcome | None:
    """What the tables say of a message that needs no work, or None."""
    if row.duplicate_of:
        return Outcome.DUPLICATE
    if row.gone or row.refused_code:
        return Outcome.GONE
    if state is not None and state.status is not Status.RECEIVED:
        return Outcome.BLOCKED if state.status is Status.BLOCKED else Outcome.UNCHANGED
    return None


def _failed(parts: Parts, key: str, error: AtlasError, reached: int, *, run_id: str) -> Iterator[Report]:
    """A coded failure: transient ones and missing parts wait, what no try can mend is set aside."""
    stage = INBOX_STAGES[min(reached, len(INBOX_STAGES) - 1)]
    with parts.db.transaction() as conn:
        state = tracking.get(conn, key)
        # An operator may have moved the message meanwhile; then there is nothing to set aside.
        if _is_hopeless(error) and state is not None and state.status is Status.RECEIVED:
            tracking.move(
                conn,
                key,
                expected=[Status.RECEIVED],
                to=Status.FAILED,
                action="intake_failed",
                actor="intake",
                reason_code=error.code,
                stage=stage,
            )
            audit.alert(conn, f"failed:{key}", error.code, key=key)
        else:
            ledger.wait(conn, key, error.code)
            audit.record(conn, key, "intake_waiting", actor="intake", stage=stage, code=error.code)
            audit.alert(conn, f"intake:{error.code}", error.code)
        claims.release(conn, [key], run_id=run_id)
    yield StageFailed(stage, key, error.code)
    yield from _same(key, Outcome.WAITING, INBOX_STAGES[reached + 1 :])


def _is_hopeless(error: AtlasError) -> bool:
    """Whether no later try can mend it: no answer could be used, a poison mail, data that PostgreSQL will never take."""
    state = str(error.detail.get("sqlstate") or "")
    return isinstance(error, InvalidAnswer | PoisonMessage) or (
        error.code == "database_refused" and state.startswith(_DATA_REFUSED)
    )


def _same(key: str, outcome: Outcome, stages: Sequence[str] = INBOX_STAGES) -> Iterator[Report]:
    for stage in stages:
        yield StageDone(stage, key, outcome)
