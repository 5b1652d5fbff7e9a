"""One range of messages, from the ledger to a decision: fetch, understand, scan, read pictures, classify.

Each message is worked on inside a try of its own: one that fails is noted, and the others go on. What a step does to one
message stands in ``inbox_steps``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from atlas_pipeline.errors import AtlasError, InvalidAnswer, PoisonMessage, Refused, place_of
from atlas_pipeline.flow import fetching, inbox_steps, operator
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import INBOX_STAGES, Outcome, StageDone, StageFailed
from atlas_pipeline.flow.threads import FLOOD
from atlas_pipeline.flow.understanding import Understood, understand_batch
from atlas_pipeline.model import Status
from atlas_pipeline.store import audit, claims, ledger, tracking

log = logging.getLogger(__name__)

MAX_STARTS = 2
_AT_HAND_BYTES = 64_000_000
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
    known = AtHand(parts, run_id)
    fetch_failed = fetching.fetch(parts, leased, known.take)
    for key in keys:
        if key not in mine:
            yield from _same(key, Outcome.WAITING)
        elif key in fetch_failed:
            yield from _not_fetched(parts, key, fetch_failed[key], run_id=run_id)
        else:
            yield from _one(parts, key, run_id=run_id, known=known.found.pop(key, None))


@dataclass
class AtHand:
    """What was understood of mails fetched by this run: as much of it as memory is meant for, the rest is parsed again."""

    parts: Parts
    run_id: str
    found: dict[str, Understood] = field(default_factory=dict)
    held: int = 0

    def take(self, mails: fetching.Kept) -> None:
        """Understand a batch that is committed."""
        sizes = {key: len(raw) for key, raw in mails}
        for key, one in understand_batch(self.parts, mails, run_id=self.run_id).items():
            if self.held + sizes[key] <= _AT_HAND_BYTES:
                self.found[key] = one
                self.held += sizes[key]


def _reopen(parts: Parts, keys: Sequence[str]) -> None:
    for key in keys:
        try:
            operator.reprocess(parts.db, key, actor="redo", force=False)
        except Refused as refusal:
            log.info("redo left %s alone: %s", key, refusal.code)


def _not_fetched(parts: Parts, key: str, code: str, *, run_id: str) -> Iterator[Report]:
    with parts.db.transaction() as conn:
        ledger.wait(conn, key, code)
        audit.record(conn, key, "intake_waiting", actor="intake", stage="raw_message", code=code)
        claims.release(conn, [key], run_id=run_id)
    yield StageFailed("raw_message", key, code)
    yield from _same(key, Outcome.WAITING, INBOX_STAGES[1:])


def _one(parts: Parts, key: str, *, run_id: str, known: Understood | None) -> Iterator[Report]:
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
        for report in inbox_steps.steps(parts, key, known):
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
            # One alarm for a flood: its mails are set aside one by one.
            once, hours = ("flood", 24) if error.code == FLOOD else (f"failed:{key}", 1)
            audit.alert(conn, once, error.code, key=key, hours=hours)
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
