"""What the database aggregates, against the same rows counted one by one in plain Python, on rows that hypothesis draws.

The month is October 2026 in Paris, an hour longer than others; moments are drawn from its borders, from the hour that comes twice,
and from around it. Each example is written and counted in a transaction that is rolled back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from statistics import mean, stdev
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from atlas_pipeline.calibration.metrics import KINDS, Metrics, compute
from atlas_pipeline.calibration.months import before, bounds
from atlas_pipeline.flow.calibrating import count
from tests.calibration_rows import Conn

MONTH, ZONE = "2026-10", "Europe/Paris"
START, END = bounds(MONTH, ZONE)
INSTANT = timedelta(microseconds=1)
# The month's borders to the microsecond, and both of the half past two o'clock of the night in which clocks go back.
BORDERS = (
    START - INSTANT,
    START,
    END - INSTANT,
    END,
    datetime(2026, 10, 25, 0, 30, tzinfo=UTC),
    datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
)
moments = st.one_of(
    st.sampled_from(BORDERS),
    st.integers(-10 * 86_400, 41 * 86_400).map(lambda seconds: START + timedelta(seconds=seconds)),
)
few = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)  # fmt: skip
money = st.one_of(st.none(), st.integers(0, 5_000_000).map(lambda number: Decimal(number).scaleb(-6)))
numbers = st.one_of(st.none(), st.integers(0, 100_000))


def within(at: datetime) -> bool:
    """The month's first instant is in it, the next month's is not."""
    return START <= at < END


def percentile(values: Sequence[float], share: float) -> float | None:
    """Linear interpolation between the two nearest ranks."""
    if not values:
        return None
    ordered, place = sorted(values), share * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def near(value: float | None) -> Any:
    """As a report rounds it."""
    return None if value is None else pytest.approx(value, abs=6e-5)


@contextmanager
def rolled_back(conn: Conn) -> Iterator[Callable[..., None]]:
    """Rows as they are given, without triggers and foreign keys; nothing of them is left afterwards."""

    def write(table: str, **row: Any) -> None:
        names = ", ".join(row)
        values = ", ".join("%s" for _ in row)
        conn.execute(f"insert into atlas.{table} ({names}) values ({values})".encode(), list(row.values()))  # noqa: S608  # ours

    with conn.transaction(force_rollback=True):
        conn.execute("set local session_replication_role = replica")
        yield write


def metrics_of(conn: Conn, month: str = MONTH) -> Metrics:
    """What the report says."""
    start, end = bounds(month, ZONE)
    return compute(month, count(conn, bounds(before(month, 3), ZONE)[0], start, end))


def key_of(number: int) -> str:
    return f"20261001-{number:06d}"


calls = st.fixed_dictionaries(
    {"at": moments, "task": st.sampled_from(["classification", "reply"]), "model": st.sampled_from(["m/1", "m/2"]),
     "code": st.sampled_from(["ok", "ok", "answer_invalid", "provider_down"]), "tokens_in": numbers, "tokens_out": numbers,
     "milliseconds": st.integers(0, 90_000), "euros": money}
)  # fmt: skip


@few
@given(rows=st.lists(calls, max_size=12))
def test_calls_are_counted_by_task_and_model(conn: Conn, rows: list[dict[str, Any]]) -> None:
    with rolled_back(conn) as write:
        for row in rows:
            write("ai_calls", provider="m", **row)
        found = metrics_of(conn).calls
    mine = [row for row in rows if within(row["at"])]
    assert [(one.task, one.model) for one in found] == sorted({(row["task"], row["model"]) for row in mine})
    for one in found:
        same = [row for row in mine if (row["task"], row["model"]) == (one.task, one.model)]
        times = [row["milliseconds"] for row in same]
        assert (one.calls, one.failed.part) == (len(same), sum(row["code"] != "ok" for row in same))
        assert one.tokens_in == sum(row["tokens_in"] or 0 for row in same)
        assert one.tokens_out == sum(row["tokens_out"] or 0 for row in same)
        assert one.euros == float(sum(row["euros"] or 0 for row in same))
        assert (one.median_ms, one.p95_ms) == (near(percentile(times, 0.5)), near(percentile(times, 0.95)))


starts = st.fixed_dictionaries(
    {"claimed_at": moments, "status": st.sampled_from(["claimed", "running", "ok", "failed", "cancelled", "lost"]),
     "seconds": st.one_of(st.none(), st.floats(0, 3000)), "cost_usd": money, "tokens_in": numbers, "tokens_out": numbers,
     "tokens_cache_read": numbers}
)  # fmt: skip


@few
@given(rows=st.lists(starts, max_size=12))
def test_agents_are_counted_in_the_month_they_were_started(conn: Conn, rows: list[dict[str, Any]]) -> None:
    """One that was cut off has no cost and no seconds: it is no zero in the median."""
    with rolled_back(conn) as write:
        for number, row in enumerate(rows):
            named = {"message_key": key_of(number), "round": 1, "attempt": 1, "try": 1}
            write("spawns", **named, profile="read", agent="a", model="s", **row)
        found = metrics_of(conn).spawns
    mine = [row for row in rows if within(row["claimed_at"])]
    ended = [row for row in mine if row["status"] not in ("claimed", "running")]
    times = [row["seconds"] for row in mine if row["seconds"] is not None]
    assert (found.started, found.ok.whole, found.ok.part) == (
        len(mine), len(ended), sum(row["status"] == "ok" for row in ended))  # fmt: skip
    assert found.cost_usd == float(sum(row["cost_usd"] or 0 for row in mine))
    for name in ("tokens_in", "tokens_out", "tokens_cache_read"):
        assert getattr(found, name) == sum(row[name] or 0 for row in mine)
    assert (found.median_seconds, found.p95_seconds) == (near(percentile(times, 0.5)), near(percentile(times, 0.95)))


intents = st.sampled_from(["chantier", "run", "question"])
endings = st.fixed_dictionaries(
    {"intent": intents, "final_intent": st.one_of(st.none(), intents),
     "ends": st.lists(st.tuples(moments, st.sampled_from(["actioned", "escalated", "qa_failed"]), st.integers(1, 3)), max_size=3)}
)  # fmt: skip


@few
@given(rows=st.lists(endings, max_size=10))
def test_attempts_are_those_of_chantiers_that_ended_in_the_month(conn: Conn, rows: list[dict[str, Any]]) -> None:
    """By what they turned out to be: an agent that found a question made none of a chantier."""
    with rolled_back(conn) as write:
        for number, row in enumerate(rows):
            key = key_of(number)
            write("inbox", message_key=key, intent=row["intent"], final_intent=row["final_intent"])
            for at, action, attempt in row["ends"]:
                write("audit_log", at=at, message_key=key, action=action, actor="t", detail=Jsonb({"attempt": attempt}))
        found = metrics_of(conn).attempts
    ends = [
        end
        for row in rows
        if (row["final_intent"] or row["intent"]) == "chantier"
        for end in row["ends"]
        if within(end[0])
    ]
    done = [attempt for _at, action, attempt in ends if action == "actioned"]
    human = sum(action == "escalated" for _at, action, _attempt in ends)
    assert found.by_attempt == tuple((attempt, done.count(attempt)) for attempt in sorted(set(done)))
    assert (found.escalated, found.success.part, found.success.whole) == (human, len(done), len(done) + human)
    assert found.first_time.part == done.count(1)


told = st.fixed_dictionaries(
    {"listed": moments, "sent": st.lists(
        st.tuples(st.sampled_from(["recap", "recap", "mailbox"]), st.sampled_from(["sent", "sent", "pending", "refused"]),
                  st.integers(0, 40 * 86_400)), max_size=3)}
)  # fmt: skip


@few
@given(rows=st.lists(told, max_size=10))
def test_recaps_are_timed_from_the_first_look_at_the_mail_to_its_first_recap(
    conn: Conn, rows: list[dict[str, Any]]
) -> None:
    """A later round's recap is about the round, not the mail; a month counts those that were sent in it."""
    times = []
    with rolled_back(conn) as write:
        for number, row in enumerate(rows):
            key = key_of(number)
            write("mailbox_ledger", mailbox="b", uid_validity=1, uid=str(number), message_key=key, internal_date=row["listed"],
                  size_bytes=1, listed_at=row["listed"])  # fmt: skip
            first = True
            for round_, (kind, state, seconds) in enumerate(row["sent"]):
                at = row["listed"] + timedelta(seconds=seconds)
                write("notifications", message_key=key, round=round_, attempt=1, kind=kind, message_id=f"{key}-{round_}",
                      facts=Jsonb({}), state=state, sent_at=at if state == "sent" else None)  # fmt: skip
                if kind == "recap" and first:
                    first = False
                    if state == "sent" and within(at):
                        times.append(float(seconds))
        found = metrics_of(conn).recaps
    assert found.sent == len(times)
    assert (found.median_seconds, found.p95_seconds) == (near(percentile(times, 0.5)), near(percentile(times, 0.95)))


names = st.sampled_from(["run", "chantier", "question", "noise", "negociation", "conseil"])
fates = st.fixed_dictionaries(
    {"at": moments, "intent": names, "classifier_intent": names, "confidence": st.integers(0, 1000).map(lambda n: n / 1000),
     "model": st.sampled_from(["m/1", "m/2", "rule/automatic"]), "tenant": st.sampled_from(["own", "lorme", None]),
     "guards": st.lists(st.sampled_from(["one", "two"]), max_size=2, unique=True),
     "fate": st.sampled_from(["draft", "accepted", "cancelled", "done", "superseded"]),
     "late": st.integers(0, 200), "again": st.one_of(st.none(), st.tuples(st.integers(1, 40 * 86_400), names)),
     "corrected": st.one_of(st.none(), st.tuples(st.integers(-86_400, 60 * 86_400), names))}
)  # fmt: skip


@few
@given(rows=st.lists(fates, max_size=4))
def test_a_month_of_none_one_or_a_few_cases_is_what_its_rows_say(conn: Conn, rows: list[dict[str, Any]]) -> None:
    """Volumes, deviations, drafts, outcomes that come months later, corrections before and after, messages classified twice."""
    decisions: list[dict[str, Any]] = []
    with rolled_back(conn) as write:
        for number, row in enumerate(rows):
            decisions += _written(write, number, row)
        found, again = metrics_of(conn), metrics_of(conn)
    assert json.dumps(found.as_json()) == json.dumps(again.as_json())
    mine = [one for one in decisions if within(one["at"])]
    assert (found.classifications, found.messages) == (len(mine), len({one["key"] for one in mine}))
    drafted = [row for row in rows if within(row["at"]) and row["intent"] != "noise" and row["fate"] != "superseded"]
    for group in found.intents:
        same = [one["confidence"] for one in mine if one["intent"] == group.name]
        drafts = [row["fate"] for row in drafted if row["intent"] == group.name]
        assert (group.volume, group.mean_confidence) == (len(same), near(mean(same)) if same else None)
        assert group.deviation == (near(stdev(same)) if len(same) > 1 else None)
        assert (group.drafts, group.cancelled) == (len(drafts), drafts.count("cancelled"))
        assert group.success.value == (near(1 - drafts.count("cancelled") / len(drafts)) if drafts else None)
    assert {group.name for group in found.intents} == {one["intent"] for one in mine} | {
        row["intent"] for row in drafted
    }
    assert {one.name: one.rate.part for one in found.guards} == {
        name: count_ for name in ("one", "two") if (count_ := sum(name in one["guards"] for one in mine))
    }
    outcomes = [(one["confidence"], good) for one in mine if not one["model"].startswith("rule/")
                and (good := _good(one, decisions)) is not None]  # fmt: skip
    assert (found.reliability.right.whole, found.reliability.right.part) == (
        len(outcomes),
        sum(good for _, good in outcomes),
    )
    assert found.reliability.brier == (near(mean((c - good) ** 2 for c, good in outcomes)) if outcomes else None)


def _written(write: Callable[..., None], number: int, row: dict[str, Any]) -> list[dict[str, Any]]:
    """One message with its decisions and what people said of it; the decisions, each with its message's fate."""
    key, at = key_of(number), row["at"]
    write("inbox", message_key=key, intent=row["intent"])
    first = {
        name: row[name] for name in ("at", "intent", "classifier_intent", "confidence", "model", "tenant", "guards")
    }
    made = [first]
    if row["again"] is not None:
        seconds, intent = row["again"]
        made.append({**first, "at": at + timedelta(seconds=seconds), "intent": intent, "classifier_intent": intent})
    for one in made:
        write("classifications", message_key=key, uncertain=False, prompt_version="1", **one)
    table = next((table for table, kind in KINDS.items() if kind == row["intent"]), None)
    decided = at + timedelta(days=row["late"])
    if table is not None:
        superseded = row["fate"] == "superseded"
        settled = row["fate"] in ("accepted", "cancelled", "done")
        write(table, message_key=key, title="t", tenant=row["tenant"], created_at=at, superseded_at=decided if superseded else None,
              status="cancelled" if superseded else row["fate"], decided_at=decided if settled or superseded else None)  # fmt: skip
    corrected = None
    if row["corrected"] is not None:
        seconds, meant = row["corrected"]
        corrected = (at + timedelta(seconds=seconds), meant)
        write("corrections", at=corrected[0], message_key=key, intent=meant, actor="operator:lea")
    fate = row["fate"] if table is not None and row["fate"] in ("accepted", "cancelled", "done") else None
    return [
        {**one, "key": key, "decided": decided, "fate": fate, "drafted": at, "corrected": corrected} for one in made
    ]


def _good(one: dict[str, Any], decisions: list[dict[str, Any]]) -> bool | None:
    """Whether the model was right, as far as people have said; read off the definitions, order by order."""
    same = [other for other in decisions if other["key"] == one["key"]]

    def stood(at: datetime, among: list[dict[str, Any]]) -> bool:
        earlier = [other for other in among if other["at"] <= at]
        return bool(earlier) and earlier[-1] is one

    if one["corrected"] is not None and stood(one["corrected"][0], same):
        return bool(one["classifier_intent"] == one["corrected"][1])
    # A record is made with its decision: only records of the month speak, and of the month's decisions.
    own = [other for other in same if within(other["at"])]
    if one["fate"] is None or not within(one["drafted"]) or not stood(one["decided"], own):
        return None
    if one["fate"] != "cancelled":
        return bool(one["classifier_intent"] == one["intent"])
    return False if one["classifier_intent"] == one["intent"] else None


@pytest.mark.parametrize("cases", [0, 1, 3])
def test_small_months_have_no_rate_where_they_have_no_case(conn: Conn, cases: int) -> None:
    with rolled_back(conn) as write:
        for number in range(cases):
            write("classifications", at=START + timedelta(days=number), message_key=key_of(number), intent="run", classifier_intent="run",
                  confidence=0.5 + number / 10, uncertain=number == 0, model="m/1", prompt_version="1")  # fmt: skip
        found = metrics_of(conn)
    assert found.uncertain.value == {0: None, 1: 1.0, 3: 0.3333}[cases]
    assert [(one.mean_confidence, one.deviation) for one in found.intents] == {
        0: [],
        1: [(0.5, None)],
        3: [(0.6, 0.1)],
    }[cases]
    assert (found.errors.value, found.drift.intents.level) == ({0: None}.get(cases, 0.0), "too_few")
    assert (found.success.value, found.reliability.error, found.spawns.ok.value, found.recaps.median_seconds) == (
        None,
    ) * 4


def test_every_moment_lies_in_exactly_one_month(conn: Conn) -> None:
    """Borders and the doubled hour, seen by three reports: nothing is counted twice or lost."""
    with rolled_back(conn) as write:
        for number, at in enumerate(BORDERS):
            write("classifications", at=at, message_key=key_of(number), intent="run", classifier_intent="run", confidence=0.9,
                  uncertain=False, model="m/1", prompt_version="1")  # fmt: skip
        found = [metrics_of(conn, month).classifications for month in ("2026-09", "2026-10", "2026-11")]
    assert found == [1, 4, 1]


def test_nothing_of_an_example_is_left(conn: Conn) -> None:
    """The control of the roll-back, which the examples rely on."""
    with rolled_back(conn) as write:
        write("tenants", slug="left", name="Left")
    assert conn.execute("select from atlas.tenants where slug = 'left'").fetchall() == []
