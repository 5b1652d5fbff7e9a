"""Schedules, the monthly report, the check, and the nightly upkeep, on a real instance."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.definitions.schedule_definition import ScheduleExecutionData

from atlas_pipeline.flow import operator
from atlas_pipeline.flow.recapping import queue_recap
from atlas_pipeline.model import Intent
from atlas_pipeline.orchestration.build import build_definitions
from atlas_pipeline.orchestration.upkeep import KEEP_DAYS, end_orphaned_runs, prune, stale_keys
from atlas_pipeline.settings import Settings
from tests.fixtures_flow import ROOT, letter
from tests.fixtures_orchestration import DagsterHouse


def evaluate(house: DagsterHouse, schedule: str, at: datetime | None = None) -> ScheduleExecutionData:
    """One tick of a schedule."""
    context = dg.build_schedule_context(
        instance=house.instance,
        instance_ref=house.instance.get_ref(),
        scheduled_execution_time=at,
        repository_def=house.defs.get_repository_def(),
    )
    return house.defs.resolve_schedule_def(schedule).evaluate_tick(context)


def test_the_outbox_runs_only_where_a_recap_is_due(dagster_house: DagsterHouse) -> None:
    """Each minute; a run costs seconds of CPU, a look costs a query."""
    assert evaluate(dagster_house, "outbox_schedule").run_requests == []
    key = dagster_house.bench.take_in(letter())
    with dagster_house.bench.parts.db.transaction() as conn:
        queue_recap(dagster_house.bench.parts, conn, key, "runs_exhausted")
    assert len(evaluate(dagster_house, "outbox_schedule").run_requests or ()) == 1
    assert dagster_house.execute("outbox_job").success
    assert len(dagster_house.bench.recaps()) == 1
    assert evaluate(dagster_house, "outbox_schedule").run_requests == []


def test_the_heartbeat_runs_only_where_the_mailbox_fell_silent_or_is_read_again(dagster_house: DagsterHouse) -> None:
    """The asset shows what was told; the mail leaves by the outbox."""
    house = dagster_house.bench
    house.discover()
    assert evaluate(dagster_house, "heartbeat_schedule").run_requests == []
    for told, prepare in (
        ("mailbox_silent", lambda: house.change("update atlas.mailbox_pulse set last_read_at = now() - interval '1 hour', "
                                               "watched_since = now() - interval '1 hour'")),
        ("mailbox_read_again", house.discover),
    ):  # fmt: skip
        prepare()
        assert len(evaluate(dagster_house, "heartbeat_schedule").run_requests or ()) == 1
        assert dagster_house.execute("heartbeat_job").success
        event = dagster_house.instance.get_latest_materialization_event(dg.AssetKey("mailbox_heartbeat"))
        assert event is not None
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["told"].value == told
        assert evaluate(dagster_house, "heartbeat_schedule").run_requests == []
    assert len(house.recaps()) == 2


def test_the_lock_guard_runs_only_where_an_agent_is_marked_live(dagster_house: DagsterHouse) -> None:
    """And reaps one without an owner."""
    assert evaluate(dagster_house, "lock_guard_schedule").run_requests == []
    key = dagster_house.bench.take_in(letter())
    dagster_house.bench.change(
        "insert into atlas.spawns (message_key, round, attempt, try, profile, agent, model, heartbeat_at) "
        "values (%s, 1, 1, 1, 'draft', 'archimede', 'm', now() - interval '1 hour')",
        key,
    )
    dagster_house.bench.change("update atlas.inbox set status = 'spawning', attempt = 1")
    assert len(evaluate(dagster_house, "lock_guard_schedule").run_requests or ()) == 1
    assert dagster_house.execute("lock_guard_job").success
    assert dagster_house.bench.latest(key).status == "lost"
    assert dagster_house.bench.alarms() == ["spawn_owner_died"]


@pytest.mark.parametrize("zone", ["Europe/Paris", "Pacific/Auckland", "America/Los_Angeles"])
@pytest.mark.parametrize(("now", "month"), [((2026, 12, 1), "2026-11"), ((2027, 1, 1), "2026-12")])
def test_on_the_first_the_month_that_has_ended_is_reported(zone: str, now: tuple[int, int, int], month: str) -> None:
    """The first of the month in the agency's zone, whatever the day is in UTC."""
    repository = build_definitions(Settings(time_zone=zone)).get_repository_def()
    context = dg.build_schedule_context(
        scheduled_execution_time=datetime(*now, 4, 30, tzinfo=ZoneInfo(zone)), repository_def=repository
    )
    schedule = repository.get_schedule_def("calibration_schedule")
    (request,) = schedule.evaluate_tick(context).run_requests or ()
    assert request.partition_key == month


def test_the_report_of_a_month_shows_its_numbers_as_metadata(dagster_house: DagsterHouse) -> None:
    """Counted from the tables by month, and stored."""
    dagster_house.bench.take_in(letter(), Intent.RUN)
    month = datetime.now(ZoneInfo("Europe/Paris")).strftime("%Y-%m")
    result = dagster_house.execute("calibration_job", partition_key=month)
    assert result.success
    (event,) = result.get_asset_materialization_events()
    metadata = event.step_materialization_data.materialization.metadata
    assert metadata["classifications"].value == 1
    assert metadata["gate_earned"].value is False
    assert str(metadata["gate"].value).startswith("Passage en phase 3: pas encore")
    assert next(iter(metadata)) == "gate"
    assert month in str(metadata["report"].value)
    drawn = ("volume", "reliability", "success", "guards", "cost", "latency")
    assert all("data:image/svg+xml;base64," in str(metadata[name].value) for name in drawn)
    found = {check.check_name: (check.passed, check.severity) for check in result.get_asset_check_evaluations()}
    warns = dg.AssetCheckSeverity.WARN
    assert found == {
        "enough_data": (False, warns), "gate": (False, warns), "drift": (True, warns), "error_rate": (True, warns)
    }  # fmt: skip
    assert dagster_house.bench.one("select count(*) from atlas.calibration_reports where month = %s", month) == 1


def test_the_steering_assets_and_the_check_materialise(dagster_house: DagsterHouse) -> None:
    """The registry, the scars' vectors, the mailbox's pulse; the check warns of what a human should look at."""
    dagster_house.bench.put(letter())
    dagster_house.bench.discover()
    dagster_house.bench.model.script = [dagster_house.bench.model.script[0]] if dagster_house.bench.model.script else []
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("MISTRAL_API_KEY")  # the local model embeds
        result = dagster_house.execute("steering_job")
    assert result.success
    (check,) = result.get_asset_check_evaluations()
    assert check.passed
    assert check.metadata["failed"].value == 0

    dagster_house.bench.change("update atlas.mailbox_ledger set listed_at = now() - interval '2 hours'")
    again = dagster_house.execute("steering_job", asset_selection=[dg.AssetKey("mailbox_heartbeat")])
    assert again.success


# The night
# ---------


def test_a_key_is_stale_by_the_day_it_begins_with() -> None:
    """Today's keys and those of the border's day are kept."""
    border = datetime(2026, 9, 2, 12, tzinfo=UTC)
    keys = ["20260901-000001", "20260902-000002", "20261201-000003"]
    assert stale_keys(keys, border) == ["20260901-000001"]


def test_old_runs_and_partitions_go_and_young_ones_stay(dagster_house: DagsterHouse) -> None:
    """Nothing else ever deletes one; our tables keep the history."""
    house, old, young = dagster_house, "20260101-000001", "20261201-000002"
    house.instance.add_dynamic_partitions("messages", [old, young])
    house.record("outbox_job", {}, dg.DagsterRunStatus.SUCCESS)
    live = house.record("outbox_job", {})
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    assert prune(house.instance, now=now) == {"runs": 0, "partitions": 1}
    assert house.partitions() == [young]
    later = datetime.now(UTC) + timedelta(days=KEEP_DAYS + 1)
    assert prune(house.instance, now=later)["runs"] == 1
    assert [run.run_id for run in house.instance.get_runs()] == [live.run_id]


def test_a_partition_with_a_live_run_is_not_pruned(dagster_house: DagsterHouse) -> None:
    """A run dies when it stores an event of a partition that is gone, and a range without its ends can't be resolved."""
    house = dagster_house
    keys = [f"20260101-00000{number}" for number in range(1, 7)]
    house.instance.add_dynamic_partitions("messages", keys)
    house.record(
        "intake_job",
        {"dagster/asset_partition_range_start": keys[1], "dagster/asset_partition_range_end": keys[3]},
    )
    house.record("action_job", {"dagster/partition": f"1|{keys[4]}", "dagster/partition/message": keys[4]})
    prune(house.instance, now=datetime(2026, 12, 1, tzinfo=UTC))
    assert house.partitions() == keys[1:5]


def test_after_a_crash_of_the_house_its_runs_are_ended_and_their_messages_asked_for(
    dagster_house: DagsterHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default launcher doesn't see the death of a whole machine: the message would wait for the longest running time."""
    house = dagster_house
    key = house.bench.take_in(letter())
    house.instance.add_dynamic_partitions("messages", [key])
    operator.request_spawn(house.bench.parts.db, key, actor="test")
    (request,) = house.tick("unfinished_sensor").run_requests or ()
    run = house.start(request)
    names = {name: os.environ[name] for name in ("ATLAS_DAGSTER_URL", "ATLAS_DAGSTER_DIR")}
    assert end_orphaned_runs(str(ROOT), names) == 1
    ended = house.instance.get_run_by_id(run.run_id)
    assert ended is not None
    assert ended.status is dg.DagsterRunStatus.FAILURE
    (again,) = house.tick("unfinished_sensor").run_requests or ()
    assert again.run_key != request.run_key
