"""A month judged again as a run of Dagster's: what the operator who launched it sees, and what is left alone."""

import threading
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from atlas_pipeline.calibration.beside import MOST_SHOWN, changed_messages, changes, metrics_beside
from atlas_pipeline.calibration.comparing import Changed, Comparison, Side
from atlas_pipeline.calibration.rates import rate
from atlas_pipeline.calibration.reliability import reliability
from atlas_pipeline.calibration.words import WORDS
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow import operator
from atlas_pipeline.flow.replaying import Change, replay
from atlas_pipeline.model import Intent
from tests.fixtures_ai import Scripted
from tests.fixtures_flow import REPLAY_TABLES, ROUTING, everything, judged, letter
from tests.fixtures_orchestration import DagsterHouse
from tests.fixtures_release import wait_until

OTHER = ROUTING.replace("at_once: {mistral: 8", "at_once: {mistral: 1").replace("mistral-small", "mistral-medium")


@pytest.fixture
def month() -> str:
    """The running one, in which the tests' mails are classified."""
    return datetime.now(ZoneInfo("Europe/Paris")).strftime("%Y-%m")


@pytest.fixture
def three(dagster_house: DagsterHouse) -> list[str]:
    """A question that was accepted, one that was cancelled, and one that nobody looked at."""
    bench = dagster_house.bench
    keys = [bench.take_in(letter(f"Zinnober {number}"), Intent.QUESTION) for number in range(3)]
    operator.decide_draft(bench.parts.db, keys[0], "accept", actor="operator:lea")
    operator.decide_draft(bench.parts.db, keys[1], "cancel", actor="operator:lea")
    return keys


def launch(house: DagsterHouse, month: str, *answers: Scripted, **config: Any) -> dg.ExecuteInProcessResult:
    """A run as the launchpad starts it."""
    house.bench.model.script = list(answers)
    ops = {"replay_month": {"config": {"month": month, **config}}}
    return house.execute("replay_job", run_config={"ops": ops})


def shown(house: DagsterHouse, result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    """The metadata that the run's page shows, read back from the instance."""
    found: dict[str, Any] = {}
    for entry in house.instance.all_logs(result.run_id):
        event = entry.dagster_event
        if event is not None and event.is_successful_output:
            found |= event.step_output_data.metadata
        if event is not None and event.is_step_failure and event.step_failure_data.user_failure_data is not None:
            found |= event.step_failure_data.user_failure_data.metadata
    return {name: value.value for name, value in found.items()}


def test_the_runs_metadata_say_what_would_have_been_otherwise(
    dagster_house: DagsterHouse, three: list[str], month: str, tmp_path: Path
) -> None:
    """Counts at a glance, the metrics of both sides as a table; every table of the truth as it was, to the byte."""
    other = tmp_path / "other.yaml"
    other.write_text(OTHER)
    before = everything(dagster_house.bench, *REPLAY_TABLES)
    result = launch(dagster_house, month, judged("run"), judged("run"), judged("chantier"), routing=str(other))
    assert result.success
    assert everything(dagster_house.bench, *REPLAY_TABLES) == before
    metadata = shown(dagster_house, result)
    table = metadata.pop("beside_the_truth")
    assert metadata == {
        "month": month, "judged_again": 3, "left": 0, "stopped": "", "without_an_answer": 0, "changed": 3, "better": 1,
        "worse": 1, "unknown": 1, "chantiers_only_in_replay": 1, "calls": 3, "euros": metadata["euros"],
    }  # fmt: skip
    assert "| question | 3 | 0 |" in table
    assert "| question | run | 2 | 1 | 1 | 0 |" in table
    assert "| justes, parmi les jugées | 0.500 | 0.000 |" in table
    assert f"| {three[0]} | question 0.90 | run 0.90 | moins bien |" in table
    assert "innober" not in str(metadata) + table
    assert [row["actor"] for row in dagster_house.bench.rows("select actor from atlas.replays")] == [
        f"dagster:{result.run_id}"
    ]


def test_a_run_that_was_stopped_fails_with_what_it_found_and_the_next_one_goes_on(
    dagster_house: DagsterHouse, three: list[str], month: str
) -> None:
    """A month half replayed must not look done."""
    before = everything(dagster_house.bench, *REPLAY_TABLES)
    stopped = launch(dagster_house, month, judged("run"), Scripted(status=401))
    assert not stopped.success
    found = shown(dagster_house, stopped)
    assert (found["stopped"], found["judged_again"], found["left"]) == ("provider_access_refused", 1, 2)
    done = launch(dagster_house, month, judged("question"))
    assert done.success
    found = shown(dagster_house, done)
    assert (found["judged_again"], found["left"], found["changed"]) == (3, 0, 1)
    assert everything(dagster_house.bench, *REPLAY_TABLES) == before


def test_a_second_run_of_the_same_replay_is_refused_while_the_first_is_at_work(
    dagster_house: DagsterHouse, three: list[str], month: str
) -> None:
    """Two would pay twice for each answer. Another configuration is another replay, and may run beside it."""
    bench = dagster_house.bench
    bench.model.script = [Scripted(body=judged("run").body, delay=1.5)]
    asked = len(bench.model.asked)
    first = threading.Thread(
        target=lambda: replay(bench.again().parts, month, Change(), actor="operator:lea"), daemon=True
    )
    first.start()
    wait_until(lambda: len(bench.model.asked) > asked, 20)
    refused = launch(dagster_house, month, Scripted(body=judged("run").body, delay=1.0))
    assert not refused.success
    (event,) = [event for event in refused.all_events if event.is_step_failure]
    assert f"replay_is_running (month={month})" in str(event.step_failure_data.error_display_string)
    with pytest.raises(Refused, match="replay_is_running"):
        replay(bench.parts, month, Change(), actor="operator:tom")
    first.join(timeout=60)
    assert not first.is_alive()
    assert replay(bench.parts, month, Change(), actor="operator:tom").left == 0
    assert len(bench.model.asked) == asked + 3


@pytest.mark.parametrize(
    ("config", "code"),
    [({"month": "2026-13"}, "month_malformed"), ({"routing": "/nonexistent.yaml"}, "ai_routing_"),
     ({"prompt": "/nonexistent.txt"}, "prompt_unreadable"), ({"floor": 7.0}, "share_out_of_range"),
     ({"uncertainty": -0.5}, "share_out_of_range")],
    ids=["month", "routing", "prompt", "floor", "uncertainty"],
)  # fmt: skip
def test_a_configuration_that_is_no_good_is_named_by_its_code(
    dagster_house: DagsterHouse, month: str, config: dict[str, Any], code: str
) -> None:
    """The launchpad takes any text; nothing is begun with it."""
    chosen = {"month": month, **config}
    result = launch(dagster_house, chosen.pop("month"), judged("run"), **chosen)
    assert not result.success
    (event,) = [event for event in result.all_events if event.is_step_failure]
    assert code in str(event.step_failure_data.error_display_string)
    assert dagster_house.bench.rows("select from atlas.replays") == []


def test_of_many_changes_the_worse_ones_are_shown_and_the_rest_is_counted() -> None:
    """A month of ten thousand mails must not fill the event log."""
    every = tuple(
        Changed(f"20261201-{number:06d}", "question", "run", 0.9, 0.8, "worse" if number % 100 == 99 else "unknown")
        for number in range(400)
    )
    side = Side(rate(0, 400), (), reliability([]), rate(0, 0))
    comparison = Comparison(400, every, side, side, new_jobs=0)
    table = changed_messages(comparison, WORDS["en"])
    assert len(table.rows) == MOST_SHOWN
    assert [row[0] for row in table.rows[:4]] == [f"20261201-000{hundreds}99" for hundreds in range(4)]
    assert table.note == "not shown: 350"
    assert changes(comparison, WORDS["en"]).rows == (("question", "run", "400", "0", "4", "396"),)
    assert metrics_beside(comparison, WORDS["en"]).rows[0] == ("uncertain", "0.000", "0.000")
