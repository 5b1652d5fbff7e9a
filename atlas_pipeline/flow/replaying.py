"""A month's stored mails judged again by another routing, prompt or threshold, beside the truth.

No message's row is changed, no work record made, no agent started. Pictures are read again, in memory; corrections and lessons are
not shown, since they hold the answers. Clients are those of now. What was judged stays judged: the same replay goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from atlas_pipeline.ai import routing as routing_file
from atlas_pipeline.ai.budget import Budget, Spent
from atlas_pipeline.ai.router import CallRecord, Router
from atlas_pipeline.ai.routing import BudgetSpec
from atlas_pipeline.calibration.beside import changed_messages, changes, metrics_beside
from atlas_pipeline.calibration.comparing import Comparison, compare
from atlas_pipeline.calibration.months import bounds
from atlas_pipeline.calibration.report import markdown
from atlas_pipeline.calibration.words import WORDS
from atlas_pipeline.classify.decide import classify
from atlas_pipeline.classify.prompt import CURRENT, Wording, wording
from atlas_pipeline.errors import (
    AccessRefused,
    AtlasError,
    DatabaseUnavailable,
    NotConfigured,
    PoisonMessage,
    Refused,
    TransientError,
)
from atlas_pipeline.flow.inbox_steps import facts_among
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.understanding import read_mail
from atlas_pipeline.flow.watchdog import bounded
from atlas_pipeline.model import Decision, Tenant
from atlas_pipeline.ocr.reader import is_readable
from atlas_pipeline.ocr.text import OcrText
from atlas_pipeline.store import figures, messages, replays, tenants, verdicts
from atlas_pipeline.store.database import Row

# Another try in a second would bring the same for every mail: the replay stops and can be gone on with.
_STOPS = (TransientError, NotConfigured, AccessRefused)


@dataclass(frozen=True)
class Change:
    """What is tried; None is as it is now. ``prompt`` is a file with the system message, ``{language}`` and ``{marker}`` in it."""

    routing: Path | None = None
    prompt: Path | None = None
    floor: float | None = None
    uncertainty: float | None = None


@dataclass(frozen=True)
class Replayed:
    """How far a replay has come, and the comparison so far. ``stopped`` is the code of what it waits for, None where it is done."""

    month: str
    left: int
    stopped: str | None
    failures: dict[str, int]
    calls: int
    euros: float
    comparison: Comparison


@dataclass(frozen=True)
class _Trial:
    """One replay at work."""

    parts: Parts
    id: int
    router: Router
    words: Wording
    floor: float
    uncertainty: float
    everyone: list[Tenant]


def replay(parts: Parts, month: str, change: Change, *, actor: str) -> Replayed:
    """Judge what is left of the month, then compare. Raises NotConfigured for a routing file that is no good.

    Raises Refused: ``month_malformed``, ``share_out_of_range``, ``prompt_malformed``, ``prompt_unreadable``, ``replay_is_running``.
    """
    start, end = bounds(month, parts.settings.time_zone)
    for name, share in (("floor", change.floor), ("uncertainty", change.uncertainty)):
        if share is not None and not 0 <= share <= 1:
            raise Refused("share_out_of_range", name=name)
    settings = parts.settings
    file = change.routing or settings.ai_routing
    routing = routing_file.load(file)
    words = _words(change.prompt)
    floor = settings.confidence_floor if change.floor is None else change.floor
    uncertainty = settings.uncertainty_threshold if change.uncertainty is None else change.uncertainty
    named = json.dumps(
        [routing.model_dump(mode="json"), words.version, words.system, floor, uncertainty], sort_keys=True
    )
    with parts.db.transaction() as conn:
        replay_id = replays.begin(
            conn,
            month,
            hashlib.sha256(named.encode()).hexdigest(),
            prompt_version=words.version,
            floor=floor,
            uncertainty=uncertainty,
            actor=actor,
        )
        everyone = tenants.all_tenants(conn)
    budget = Budget(_share(routing.budget, parts), lambda key: _spent(parts, key))
    router = parts.models.beside(routing, note=lambda call: _note(parts, replay_id, call), budget=budget)
    trial = _Trial(parts, replay_id, router, words, floor, uncertainty, everyone)
    with replays.alone(parts.database_url, replay_id) as taken:
        if not taken:
            raise Refused("replay_is_running", month=month)
        stopped = _run(trial, start, end)
    return _result(trial, month, start, end, stopped)


def _words(file: Path | None) -> Wording:
    if file is None:
        return CURRENT
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise Refused("prompt_unreadable") from None
    return wording(f"file-{hashlib.sha256(text.encode()).hexdigest()[:12]}", text)


def _share(theirs: BudgetSpec, parts: Parts) -> BudgetSpec:
    """The stricter of both files' limits of a day, and of it the share that replays may have. A message has no budget here."""
    own, share = parts.models.routing().budget, parts.settings.replay_share
    calls = [limit for limit in (own.calls_a_day, theirs.calls_a_day) if limit is not None]
    euros = [limit for limit in (own.euros_a_day, theirs.euros_a_day) if limit is not None]
    return BudgetSpec(
        calls_a_day=int(min(calls) * share) if calls else None, euros_a_day=min(euros) * share if euros else None
    )


def _spent(parts: Parts, message_key: str | None) -> Spent:
    """What replays spent today; all of it where the house itself has come to its own limit."""
    if message_key is not None:
        return Spent()
    midnight = datetime.now(ZoneInfo(parts.settings.time_zone)).replace(hour=0, minute=0, second=0, microsecond=0)
    with parts.db.transaction() as conn:
        whole = Spent(*verdicts.spent_since(conn, midnight))
        mine = Spent(*verdicts.spent_on_replays(conn, midnight))
    limits = parts.models.routing().budget
    over_calls = limits.calls_a_day is not None and whole.calls >= limits.calls_a_day
    over_euros = limits.euros_a_day is not None and whole.euros >= limits.euros_a_day
    return whole if over_calls or over_euros else mine


def _note(parts: Parts, replay_id: int, call: CallRecord) -> None:
    with parts.db.transaction() as conn:
        replays.add_call(
            conn,
            replay_id,
            provider=call.provider,
            model=call.model,
            code=call.code,
            tokens_in=call.tokens_in,
            tokens_out=call.tokens_out,
            milliseconds=call.milliseconds,
            euros=call.euros,
        )


def _run(trial: _Trial, start: datetime, end: datetime) -> str | None:
    """Judge what is left, as many side by side as the routing allows; the code of what stopped it, or None."""
    with trial.parts.db.transaction() as conn:
        rows = replays.left(conn, trial.id, start, end)
    room = trial.router.at_once
    with ThreadPoolExecutor(room, thread_name_prefix="replay") as pool:
        for begun in range(0, len(rows), room):
            codes = list(pool.map(lambda row: _judge(trial, row), rows[begun : begun + room]))
            stopped = next((code for code in codes if code is not None), None)
            if stopped is not None:
                return stopped
    return None


def _judge(trial: _Trial, row: Row) -> str | None:
    """One mail, in a transaction of its own; the code of what should stop all of them, or None."""
    decision, code = None, "ok"
    try:
        decision = _decide(trial, row["message_key"])
    except DatabaseUnavailable:
        raise
    except _STOPS as error:
        return error.code
    except AtlasError as error:
        code = error.code
    except Exception as error:  # noqa: BLE001  # one mail's unforeseen fault must leave the others alone; its text may quote the mail
        code = f"unexpected_{type(error).__name__}"
    with trial.parts.db.transaction() as conn:
        replays.add(conn, trial.id, row["id"], decision, code)
    return None


def _decide(trial: _Trial, key: str) -> Decision:
    parts = trial.parts
    with parts.db.transaction() as conn:
        raw = messages.raw(conn, key)
    if raw is None:
        raise PoisonMessage("message_missing")
    with bounded(parts.settings.understanding_timeout_seconds):
        mail, judged = read_mail(raw, parts.settings, trial.everyone)
    text = OcrText("")
    if any(is_readable(part) for part in mail.parts):
        try:
            text = parts.read_pictures(mail).text
        except AtlasError:  # as intake does: the mail goes on without
            text = OcrText("")
    facts, _how = facts_among(mail, judged, text, trial.everyone)
    return classify(
        facts,
        trial.router,
        floor=trial.floor,
        uncertainty=trial.uncertainty,
        language=parts.settings.language,
        words=trial.words,
    )


def _result(trial: _Trial, month: str, start: datetime, end: datetime, stopped: str | None) -> Replayed:
    truth, other = (figures.of_replay(trial.id, replayed=replayed) for replayed in (False, True))
    with trial.parts.db.transaction() as conn:
        calls, euros = replays.cost(conn, trial.id)
        return Replayed(
            month=month,
            left=len(replays.left(conn, trial.id, start, end)),
            stopped=stopped,
            failures=replays.failures(conn, trial.id),
            calls=calls,
            euros=round(euros, 6),
            comparison=compare(
                replays.pairs(conn, trial.id),
                figures.judgements(conn, truth, start, end),
                (figures.volumes(conn, truth), figures.volumes(conn, other)),
                (figures.outcomes(conn, truth, start, end), figures.outcomes(conn, other, start, end)),
            ),
        )


def told(found: Replayed) -> Iterator[str]:
    """The result in lines: the metrics of both sides, then each decision that came out otherwise."""
    comparison = found.comparison
    yield f"{found.month}: {comparison.compared} judged again, {found.left} left, {found.calls} calls, {found.euros:.4f} euros"
    if found.stopped:
        yield f"stopped: {found.stopped}; the same order goes on from here"
    for code, count in found.failures.items():
        yield f"without an answer: {count} ({code})"
    counts = ", ".join(f"{count} {name}" for name, count in comparison.verdicts().items())
    yield f"{len(comparison.changed)} changed: {counts}"
    yield f"{'':<28}{'truth':>10}{'replay':>10}"
    for name, was, now in metrics_beside(comparison, WORDS["en"]).rows:
        yield f"{name:<28}{was:>10}{now:>10}"
    for one in comparison.changed:
        yield f"{one.message_key}  {one.was} {one.was_confidence:.2f} -> {one.now} {one.confidence:.2f}  {one.verdict}"


def facts(found: Replayed) -> dict[str, str | int | float]:
    """The result as counts and codes, by name: what an operator sees of a run at a glance."""
    comparison = found.comparison
    return {
        "month": found.month,
        "judged_again": comparison.compared,
        "left": found.left,
        "stopped": found.stopped or "",
        "without_an_answer": sum(found.failures.values()),
        "changed": len(comparison.changed),
        **comparison.verdicts(),
        "chantiers_only_in_replay": comparison.new_jobs,
        "calls": found.calls,
        "euros": found.euros,
    }


def rendered(found: Replayed, language: str) -> str:
    """What it would have meant, as Markdown in ``fr`` or ``en``: both sides' metrics, what became what, and single messages by key."""
    words, comparison = WORDS[language], found.comparison
    shown = (metrics_beside(comparison, words), changes(comparison, words), changed_messages(comparison, words))
    return "\n\n".join(markdown(table, words["nothing_changed"]) for table in shown)
