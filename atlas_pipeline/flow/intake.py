"""One range of messages, from the ledger to a decision: fetch, understand, scan, read pictures, classify.

Each message is worked on inside a try of its own: one that fails is noted, and the others go on. What a step does to one
message stands in ``inbox_steps``. Models are asked about several messages side by side, as many as the routing file allows; the
rest is done one message after the other, and reports come in the range's order.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
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
_AHEAD = 3  # messages begun for each that a model may be asked about: the others wait for their turn, in memory
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
    room = _room(parts)
    pool = ThreadPoolExecutor(room, thread_name_prefix="classification")
    open_ones: deque[_Message] = deque()
    try:
        for key in keys:
            one = _Message(parts, key, run_id)
            if key not in mine:
                one.reports += _same(key, Outcome.WAITING)
            elif key in fetch_failed:
                one.reports += _not_fetched(parts, key, fetch_failed[key], run_id=run_id)
            else:
                one.begin(known.found.pop(key, None), pool)
            open_ones.append(one)
            # With one place there is nothing to gain from going ahead; with more, a full house of them may wait.
            while open_ones and (open_ones[0].is_over or room == 1 or len(open_ones) > _AHEAD * room):
                yield from open_ones.popleft().end()
        while open_ones:
            yield from open_ones.popleft().end()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


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


def _room(parts: Parts) -> int:
    """How many messages a model may be asked about at once. Where no router can be had, each message says so itself."""
    try:
        return parts.router.at_once
    except AtlasError:
        return 1


@dataclass
class _Message:
    """One message whose bytes are stored (or that has none of its own), on its way through the stages."""

    parts: Parts
    key: str
    run_id: str
    reports: list[Report] = field(default_factory=list)
    reached: int = 0
    judging: Future[StageDone] | None = None

    @property
    def is_over(self) -> bool:
        """Whether ``end`` would wait for nothing."""
        return self.judging is None or self.judging.done()

    def begin(self, known: Understood | None, pool: ThreadPoolExecutor) -> None:
        """Everything before the model, which is then asked in ``pool``."""
        finished, tries = self._claim()
        if finished is not None:
            self.reports += _same(self.key, finished)
            return
        with self._settled():
            _refuse_poison(tries)
            ready = self._prepare(known)
            if ready is not None:
                with self.parts.db.transaction() as conn:
                    # What can end a whole process is behind it: a kill while its model is asked is not its doing.
                    claims.end_together(conn, [self.key], run_id=self.run_id)
                self.judging = pool.submit(inbox_steps.classification, self.parts, self.key, ready)

    def end(self) -> list[Report]:
        """Wait for the model if it was asked; all reports, in the stages' order."""
        if self.judging is not None:
            judging, self.judging = self.judging, None
            with self._settled():
                self.reports.append(judging.result())
        return self.reports

    def _claim(self) -> tuple[Outcome | None, int]:
        """What the tables say of a message that needs no work, or None and its tries."""
        key = self.key
        with self.parts.db.transaction() as conn:
            found = ledger.rows(conn, [key])
            finished = _finished(found[0], tracking.get(conn, key)) if found else Outcome.GONE
            if finished is not None:
                claims.release(conn, [key], run_id=self.run_id)
                return finished, 0
            seconds = self.parts.settings.claim_seconds
            tries = claims.begin(conn, key, run_id=self.run_id, stage="intake", seconds=seconds)
        # 0: the lease ran out while earlier messages were worked on, and another run has the message.
        return (None, tries) if tries else (Outcome.WAITING, 0)

    def _prepare(self, known: Understood | None) -> inbox_steps.Ready | None:
        stages = inbox_steps.prepare(self.parts, self.key, known)
        while True:
            try:
                report = next(stages)
            except StopIteration as stop:
                ready: inbox_steps.Ready | None = stop.value
                return ready
            self.reached = INBOX_STAGES.index(report.stage) + 1
            self.reports.append(report)

    @contextmanager
    def _settled(self) -> Iterator[None]:
        """Note what becomes of the message when the block ends, unless its model is being asked by then."""
        parts, key, run_id = self.parts, self.key, self.run_id
        try:
            yield
        except AtlasError as error:
            self.reports += _failed(parts, key, error, self.reached, run_id=run_id)
        except Exception as error:  # noqa: BLE001  # one message's unforeseen fault must leave the others alone; its text may quote the mail
            code = f"unexpected_{type(error).__name__}"
            stage = INBOX_STAGES[self.reached]
            with parts.db.transaction() as conn:
                # It counts as a try, whichever stage it came from: a mail that always fails this way is set aside after MAX_STARTS.
                if stage == INBOX_STAGES[-1]:
                    claims.begin_together(conn, [key], run_id=run_id, stage=stage)
                claims.expire(conn, key, run_id=run_id)
                audit.record(conn, key, "intake_error", actor="intake", stage=stage, code=code, where=place_of(error))
            self.reports.append(StageFailed(stage, key, code))
            self.reports += _same(key, Outcome.WAITING, INBOX_STAGES[self.reached + 1 :])
        else:
            if self.judging is None:
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
