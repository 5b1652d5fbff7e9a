"""One month's metrics, as pure functions of counts that the database has aggregated.

What counts where, for a month that begins and ends in the house's time zone (``months``):

    classifications   every decision in its month; a message classified twice is two decisions and one message
    drafts, success   live work records in the month they were drafted, whatever became of them and however late; a superseded record
                      is out. A draft that nobody cancelled is a success: the specification's proxy
    failed, blocked   what was audited in the month
    outcomes          see ``reliability``; the gate see ``gate``; the three months before see ``drift``
    spawns            agents in the month they were started; attempts and recaps in the month they ended

A rate over nothing is None. One case has a mean and no deviation. Nothing is ever incremented: the same rows give the same numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from atlas_pipeline.calibration.drift import Drift, drift
from atlas_pipeline.calibration.gate import Gate, gate
from atlas_pipeline.calibration.rates import Rate, rate, rounded
from atlas_pipeline.calibration.reliability import Confusion, Reliability, reliability

Rows = Sequence[Mapping[str, Any]]

# Intents that become a work record, by its table.
KINDS = {
    "runs": "run",
    "chantiers": "chantier",
    "questions": "question",
    "negociations": "negociation",
    "conseils": "conseil",
}


@dataclass(frozen=True)
class Counts:
    """What the store has counted of a month; each a sequence of rows with the columns that its function reads."""

    messages: int
    volumes: Rows  # intent, tenant, model, prompt_version, volume, confidence (sum), squares (sum), uncertain
    drafts: Rows  # kind, tenant, drafts, cancelled
    guards: Rows  # guard, n
    overridden: Rows  # classifier_intent, intent, n
    audits: Mapping[str, int]
    outcomes: Rows  # model, bin, judged, correct, confidence (sum), squares (sum)
    confusion: Rows  # source, said, meant, n
    internal: Rows  # tenant, jobs, kept, undecided
    mixes: Rows  # current, intent, bin, model, prompt_version, n
    calls: Rows  # task, model, calls, failed, tokens_in, tokens_out, euros, median, p95 (milliseconds)
    spawns: Mapping[
        str, Any
    ]  # started, ended, ok, cost_usd, tokens_in, tokens_out, tokens_cache_read, median, p95 (seconds)
    attempts: Rows  # attempt, n: chantiers that ended well, by the attempt that did it
    escalated: int  # chantiers that ended with a human
    recaps: Mapping[str, Any]  # sent, median, p95 (seconds)


@dataclass(frozen=True)
class Group:
    """Decisions of one intent, tenant or model. ``deviation`` is the sample's, None below two cases.

    ``drafts`` are the work records generated, of which ``success`` counts those not cancelled; ``right`` counts judged decisions and
    is known by model alone.
    """

    name: str
    volume: int
    mean_confidence: float | None
    deviation: float | None
    uncertain: Rate
    drafts: int
    cancelled: int
    success: Rate
    right: Rate


@dataclass(frozen=True)
class Counted:
    """How often something was seen, as a share of all decisions."""

    name: str
    rate: Rate


@dataclass(frozen=True)
class Override:
    """The model concluded ``said``, and the guards made ``became`` of it."""

    said: str
    became: str
    count: int


@dataclass(frozen=True)
class Calls:
    """Calls of one model for one task. Prices in euros as far as they are known, durations in milliseconds."""

    task: str
    model: str
    calls: int
    failed: Rate
    tokens_in: int
    tokens_out: int
    euros: float
    median_ms: float | None
    p95_ms: float | None


@dataclass(frozen=True)
class Spawns:
    """Agents started in the month. ``ok`` is of those that have ended; prices in dollars, as the agent says; durations in seconds."""

    started: int
    ok: Rate
    cost_usd: float
    tokens_in: int
    tokens_out: int
    tokens_cache_read: int
    median_seconds: float | None
    p95_seconds: float | None


@dataclass(frozen=True)
class Attempts:
    """Chantiers that ended in the month: how many at each attempt, and how many with a human. ``success`` is of all that ended."""

    by_attempt: tuple[tuple[int, int], ...]
    escalated: int
    success: Rate
    first_time: Rate


@dataclass(frozen=True)
class Recaps:
    """First recaps sent in the month, and the seconds from when the mail was first listed to its recap."""

    sent: int
    median_seconds: float | None
    p95_seconds: float | None


@dataclass(frozen=True)
class Metrics:
    """The report's numbers."""

    month: str
    classifications: int
    messages: int
    uncertain: Rate
    failed: int
    blocked: int
    errors: Rate
    success: Rate
    intents: tuple[Group, ...]
    tenants: tuple[Group, ...]
    models: tuple[Group, ...]
    prompts: tuple[Counted, ...]
    guards: tuple[Counted, ...]
    overridden: Rate
    overrides: tuple[Override, ...]
    orders: tuple[tuple[str, int], ...]
    reliability: Reliability
    confusion: tuple[Confusion, ...]
    drift: Drift
    calls: tuple[Calls, ...]
    spawns: Spawns
    attempts: Attempts
    recaps: Recaps
    gate: Gate

    def as_json(self) -> dict[str, Any]:
        """Plain values, the same bytes for the same rows."""
        return asdict(self)


# What people order; each is an override of what the house would have done.
ORDERS = ("corrected", "reprocess", "unblocked", "work_accepted", "work_cancelled")


def compute(month: str, counts: Counts) -> Metrics:
    """Combine the month's counts."""
    total = sum(int(row["volume"]) for row in counts.volumes)
    drafts = [{**row, "intent": KINDS[row["kind"]]} for row in counts.drafts]
    failed = counts.audits.get("intake_failed", 0)
    return Metrics(
        month=month,
        classifications=total,
        messages=counts.messages,
        uncertain=rate(sum(int(row["uncertain"]) for row in counts.volumes), total),
        failed=failed,
        blocked=counts.audits.get("blocked_unsafe", 0),
        errors=rate(failed, failed + total),
        success=_success(drafts),
        intents=groups("intent", counts.volumes, drafts),
        tenants=groups("tenant", counts.volumes, drafts),
        models=groups("model", counts.volumes, (), counts.outcomes),
        prompts=_prompts(counts.volumes, total),
        guards=tuple(Counted(str(row["guard"]), rate(int(row["n"]), total)) for row in counts.guards),
        overridden=rate(sum(int(row["n"]) for row in counts.overridden), total),
        overrides=tuple(
            Override(str(row["classifier_intent"]), str(row["intent"]), int(row["n"])) for row in counts.overridden
        ),
        orders=tuple((name, counts.audits.get(name, 0)) for name in ORDERS),
        reliability=reliability(counts.outcomes),
        confusion=tuple(
            Confusion(str(row["source"]), str(row["said"]), str(row["meant"]), int(row["n"]))
            for row in counts.confusion
        ),
        drift=drift(counts.mixes),
        calls=tuple(_calls(row) for row in counts.calls),
        spawns=_spawns(counts.spawns),
        attempts=_attempts(counts.attempts, counts.escalated),
        recaps=Recaps(int(counts.recaps["sent"]), rounded(counts.recaps["median"]), rounded(counts.recaps["p95"])),
        gate=gate(counts.internal),
    )


def groups(column: str, volumes: Rows, drafts: Rows = (), outcomes: Rows = ()) -> tuple[Group, ...]:
    """Rows put together by one column, in the order of its values; what has none is the group named by an empty string."""
    names = sorted({str(row[column] or "") for rows in (volumes, drafts, outcomes) for row in rows})
    by = [_by_name(column, rows) for rows in (volumes, drafts, outcomes)]
    return tuple(_group(name, *(found[name] for found in by)) for name in names)


def _by_name(column: str, rows: Rows) -> defaultdict[str, list[Mapping[str, Any]]]:
    found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        found[str(row[column] or "")].append(row)
    return found


def _group(name: str, volumes: Rows, drafts: Rows, outcomes: Rows) -> Group:
    volume = sum(int(row["volume"]) for row in volumes)
    total = sum(row["confidence"] for row in volumes)
    squares = sum(row["squares"] for row in volumes)
    # Decimals throughout: the sums are exact, so that the order in which the database adds changes nothing.
    variance = (squares - total * total / volume) / (volume - 1) if volume > 1 else None
    return Group(
        name=name,
        volume=volume,
        mean_confidence=rounded(total / volume) if volume else None,
        deviation=None if variance is None else rounded(float(max(variance, 0)) ** 0.5),
        uncertain=rate(sum(int(row["uncertain"]) for row in volumes), volume),
        drafts=sum(int(row["drafts"]) for row in drafts),
        cancelled=sum(int(row["cancelled"]) for row in drafts),
        success=_success(drafts),
        right=rate(sum(int(row["correct"]) for row in outcomes), sum(int(row["judged"]) for row in outcomes)),
    )


def _success(drafts: Rows) -> Rate:
    generated = sum(int(row["drafts"]) for row in drafts)
    return rate(generated - sum(int(row["cancelled"]) for row in drafts), generated)


def _prompts(volumes: Rows, total: int) -> tuple[Counted, ...]:
    by = _by_name("prompt_version", volumes)
    return tuple(Counted(name, rate(sum(int(row["volume"]) for row in by[name]), total)) for name in sorted(by))


def _calls(row: Mapping[str, Any]) -> Calls:
    return Calls(
        task=str(row["task"]),
        model=str(row["model"]),
        calls=int(row["calls"]),
        failed=rate(int(row["failed"]), int(row["calls"])),
        tokens_in=int(row["tokens_in"]),
        tokens_out=int(row["tokens_out"]),
        euros=round(float(row["euros"]), 6),
        median_ms=rounded(row["median"]),
        p95_ms=rounded(row["p95"]),
    )


def _spawns(row: Mapping[str, Any]) -> Spawns:
    return Spawns(
        started=int(row["started"]),
        ok=rate(int(row["ok"]), int(row["ended"])),
        cost_usd=round(float(row["cost_usd"]), 6),
        tokens_in=int(row["tokens_in"]),
        tokens_out=int(row["tokens_out"]),
        tokens_cache_read=int(row["tokens_cache_read"]),
        median_seconds=rounded(row["median"]),
        p95_seconds=rounded(row["p95"]),
    )


def _attempts(rows: Rows, escalated: int) -> Attempts:
    by_attempt = tuple((int(row["attempt"]), int(row["n"])) for row in rows)
    done = sum(count for _attempt, count in by_attempt)
    return Attempts(
        by_attempt=by_attempt,
        escalated=escalated,
        success=rate(done, done + escalated),
        first_time=rate(dict(by_attempt).get(1, 0), done + escalated),
    )
