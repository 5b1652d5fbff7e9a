"""A month's mails judged again, beside the truth."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from atlas_pipeline.classify.prompt import CURRENT
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow import operator
from atlas_pipeline.flow.replaying import Change, Replayed, replay, told
from atlas_pipeline.model import Intent
from tests.fixtures_ai import Scripted
from tests.fixtures_flow import ROUTING, Bench, judged, letter

UNTOUCHED = (
    "inbox",
    "classifications",
    "audit_log",
    "ai_calls",
    "chantiers",
    "questions",
    "runs",
    "spawns",
    "inbox_claims",
)


def this_month() -> str:
    return datetime.now(ZoneInfo("Europe/Paris")).strftime("%Y-%m")


def rows(bench: Bench) -> dict[str, list[Any]]:
    """Everything that a replay must leave alone."""
    return {table: bench.rows(f"select * from atlas.{table} order by 1") for table in UNTOUCHED}  # noqa: S608


def again(bench: Bench, *answers: Any, **change: Any) -> Replayed:
    bench.model.script = list(answers)
    return replay(bench.parts, this_month(), Change(**change), actor="operator:lea")


def three(bench: Bench) -> list[str]:
    """A question that was one, a question that was cancelled, and a question that nobody looked at."""
    keys = [bench.take_in(letter(f"Sujet {number}"), Intent.QUESTION) for number in range(3)]
    operator.decide_draft(bench.parts.db, keys[0], "accept", actor="operator:lea")
    operator.decide_draft(bench.parts.db, keys[1], "cancel", actor="operator:lea")
    return keys


def test_a_replay_shows_what_would_have_been_otherwise_and_changes_nothing(bench: Bench) -> None:
    keys = three(bench)
    before = rows(bench)
    found = again(bench, judged("run"), judged("run"), judged("chantier"))
    assert rows(bench) == before
    assert (found.left, found.stopped, found.calls) == (0, None, 3)
    changed = [(one.message_key, one.was, one.now, one.verdict) for one in found.comparison.changed]
    assert changed == [
        (keys[0], "question", "run", "worse"),
        (keys[1], "question", "run", "better"),
        (keys[2], "question", "chantier", "unknown"),
    ]
    truth, other = found.comparison.truth, found.comparison.replay
    assert (truth.reliability.right.part, truth.reliability.right.whole) == (1, 2)
    # Of the cancelled one it is known only that a question was wrong.
    assert (other.reliability.right.part, other.reliability.right.whole) == (0, 1)
    assert found.comparison.new_jobs == 1
    assert any(line.startswith(keys[0]) and line.endswith("worse") for line in told(found))


def test_the_same_replay_given_again_asks_nobody_and_says_the_same(bench: Bench) -> None:
    three(bench)
    first = again(bench, judged("run"), judged("run"), judged("run"))
    asked = len(bench.model.asked)
    assert again(bench) == first
    assert len(bench.model.asked) == asked


def test_a_replay_that_a_provider_stops_goes_on_where_it_was(bench: Bench) -> None:
    three(bench)
    down = [Scripted(status=401)] * 6
    stopped = again(bench, judged("run"), *down)
    assert (stopped.left, stopped.stopped) == (2, "provider_access_refused")
    done = again(bench, judged("run"), judged("run"))
    assert (done.left, done.stopped, done.comparison.compared) == (0, None, 3)


def test_another_threshold_or_prompt_is_another_replay(bench: Bench, tmp_path: Path) -> None:
    bench.take_in(letter(), Intent.QUESTION)
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(CURRENT.system.replace("You sort the mail", "You judge the mail"), "utf-8")
    floor = again(bench, judged("question"), floor=0.95)
    assert [one.now for one in floor.comparison.changed] == ["noise"]
    words = again(bench, judged("question"), prompt=prompt)
    assert "You judge the mail" in str(bench.model.asked[-1])
    assert words.comparison.changed == ()
    versions = {row["prompt_version"] for row in bench.rows("select prompt_version from atlas.replay_decisions")}
    assert len(versions) == 2
    prompt.write_text("No marker at all: {language}", "utf-8")
    with pytest.raises(Refused, match="prompt_malformed"):
        again(bench, prompt=prompt)


def test_a_replay_leaves_its_share_of_the_days_budget_to_the_mail(bench: Bench, tmp_path: Path) -> None:
    """Two calls a day for replays where four are allowed; the mail's own budget knows of both."""
    three(bench)
    tight = tmp_path / "tight.yaml"
    tight.write_text(ROUTING.replace("calls_a_day: 5000", "calls_a_day: 4").replace("{mistral: 8", "{mistral: 1"))
    found = again(bench, judged("run"), judged("run"), judged("run"), routing=tight)
    assert (found.left, found.stopped, found.calls) == (1, "ai_budget_of_day_spent", 2)


def test_an_answer_that_can_not_be_used_is_noted_and_the_others_go_on(bench: Bench) -> None:
    three(bench)
    bad = judged("no such intent")
    found = again(bench, bad, bad, judged("question"), judged("question"))
    assert (found.left, found.comparison.compared, sum(found.failures.values())) == (0, 2, 1)
