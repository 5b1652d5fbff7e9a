"""The two sensors on a real instance, a real ledger and a real Maildir. What the daemon does is done by ``tick`` and ``start``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import dagster as dg
import pytest

from atlas_pipeline.flow import operator
from atlas_pipeline.flow.stage import ACTION_STAGES, INBOX_STAGES
from atlas_pipeline.flow.watching import INTAKE_LIMIT
from atlas_pipeline.model import Intent
from atlas_pipeline.orchestration import runs
from atlas_pipeline.store import claims
from tests.fixtures_flow import judged, letter
from tests.fixtures_orchestration import DagsterHouse, all_stages, place

INTAKE, UNFINISHED = "mailbox_sensor", "unfinished_sensor"
# The job that Dagster makes up for what is launched from the asset graph.
FROM_THE_UI = "__ASSET_JOB"
# Dagster's request objects warn of Dagster's own tags when they are made a second time.
pytestmark = pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")


def put(house: DagsterHouse, count: int) -> None:
    """Deliver mails, each a little later than the one before."""
    for number in range(count):
        house.bench.put(letter(f"Mail {number}"), name=f"{number:06d}.test")


def listed(house: DagsterHouse) -> list[str]:
    """The ledger's keys in its order."""
    return [row["message_key"] for row in house.bench.rows("select message_key from atlas.mailbox_ledger order by seq")]


def only(requests: Sequence[dg.RunRequest] | None) -> dg.RunRequest:
    """The one run that was asked for."""
    (request,) = requests or ()
    return request


def span(request: dg.RunRequest) -> tuple[str, str]:
    """The ends of the range."""
    return request.tags["dagster/asset_partition_range_start"], request.tags["dagster/asset_partition_range_end"]


# The mailbox
# -----------


def test_the_first_tick_adds_ledger_rows_partitions_and_one_range_run(dagster_house: DagsterHouse) -> None:
    """One run a tick, not one a message."""
    put(dagster_house, 3)
    request = only(dagster_house.tick(INTAKE).run_requests)
    keys = listed(dagster_house)
    assert len(keys) == 3
    assert dagster_house.partitions() == keys
    assert span(request) == (keys[0], keys[-1])
    assert request.job_name == "intake_job"


def test_a_tick_without_mail_says_so_and_asks_for_nothing(dagster_house: DagsterHouse) -> None:
    """Nearly every tick is one of these."""
    data = dagster_house.tick(INTAKE)
    assert (data.run_requests, data.skip_message) == ([], "no message is due")


def test_a_tick_fetches_no_body_and_flags_nothing(dagster_house: DagsterHouse) -> None:
    """What a killed code server did half-way must not be lost: the sensor lists, the run fetches."""
    put(dagster_house, 1)
    dagster_house.tick(INTAKE)
    assert dagster_house.bench.rows("select * from atlas.messages") == []
    assert len(list((dagster_house.bench.maildir / "new").iterdir())) == 1


def test_a_tick_delivered_twice_gives_the_same_run_key(dagster_house: DagsterHouse) -> None:
    """The daemon died between evaluation and run: the second delivery must not make a second run."""
    put(dagster_house, 2)
    first, second = only(dagster_house.look(INTAKE).run_requests), only(dagster_house.look(INTAKE).run_requests)
    assert first.run_key == second.run_key


def test_a_tick_that_died_half_way_is_completed_by_the_next(dagster_house: DagsterHouse) -> None:
    """The ledger rows were written, then nothing: no partition, no run."""
    put(dagster_house, 2)
    dagster_house.look(INTAKE)
    assert (len(listed(dagster_house)), dagster_house.partitions()) == (2, [])
    request = only(dagster_house.tick(INTAKE).run_requests)
    assert dagster_house.partitions() == listed(dagster_house)
    assert span(request) == (listed(dagster_house)[0], listed(dagster_house)[1])


def test_a_tick_that_died_after_its_partitions_is_completed_by_the_other_sensor_too(
    dagster_house: DagsterHouse,
) -> None:
    """The mailbox may be away by then; what is in the ledger goes on."""
    put(dagster_house, 2)
    dagster_house.tick(INTAKE)
    shutil.rmtree(dagster_house.bench.maildir)
    assert span(only(dagster_house.tick(UNFINISHED).run_requests)) == tuple(listed(dagster_house))


def test_a_mailbox_that_is_gone_fails_the_tick_with_a_code_alone(dagster_house: DagsterHouse) -> None:
    """A library's text may quote a header or a path."""
    shutil.rmtree(dagster_house.bench.maildir)
    with pytest.raises(dg.Failure) as failure:
        dagster_house.tick(INTAKE)
    assert failure.value.description == "maildir_unreadable"
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__
    assert dagster_house.bench.alarms() == ["maildir_unreadable"]


def test_a_mailbox_that_is_not_configured_is_a_state_and_no_fault(
    dagster_house: DagsterHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside the demo a part may be absent: the sensor says so and stays green."""
    monkeypatch.delenv("ATLAS_MAILDIR")
    assert dagster_house.tick(INTAKE).skip_message == "mailbox_not_configured"


def test_with_a_live_intake_run_keys_are_added_and_no_run_is_asked_for(dagster_house: DagsterHouse) -> None:
    """Two intake runs at once would share nothing but the work."""
    put(dagster_house, 1)
    dagster_house.start(only(dagster_house.tick(INTAKE).run_requests))
    dagster_house.bench.put(letter("A later one"))
    for sensor in (INTAKE, UNFINISHED):
        assert dagster_house.tick(sensor).run_requests == []
    assert dagster_house.partitions() == listed(dagster_house)
    assert len(listed(dagster_house)) == 2


@pytest.mark.parametrize("status", ["NOT_STARTED", "STARTING", "STARTED", "CANCELING"])
def test_a_run_counts_as_live_until_it_has_ended(dagster_house: DagsterHouse, status: str) -> None:
    """Queued ones too, which only the daemon can make."""
    put(dagster_house, 1)
    run = dagster_house.start(only(dagster_house.tick(INTAKE).run_requests), dg.DagsterRunStatus(status))
    assert dg.DagsterRunStatus.QUEUED in runs.UNFINISHED
    assert runs.intake_is_live(dagster_house.instance)
    dagster_house.instance.report_run_failed(run)
    assert not runs.intake_is_live(dagster_house.instance)


def test_an_intake_run_launched_from_the_asset_graph_counts_as_live(dagster_house: DagsterHouse) -> None:
    """The UI's Materialize button makes a run of no job of ours."""
    put(dagster_house, 1)
    request = only(dagster_house.tick(INTAKE).run_requests)
    dagster_house.record(FROM_THE_UI, request.tags, stages=INBOX_STAGES)
    assert dagster_house.tick(INTAKE).run_requests == []


def test_of_250_mails_200_are_asked_for_first_and_the_rest_after_them(dagster_house: DagsterHouse) -> None:
    """The limit bounds a tick's time and a run's length."""
    put(dagster_house, 250)
    run = dagster_house.start(only(dagster_house.tick(INTAKE).run_requests))
    keys = listed(dagster_house)
    assert dagster_house.partitions() == keys[:INTAKE_LIMIT]
    assert span_of(run) == (keys[0], keys[INTAKE_LIMIT - 1])

    with dagster_house.bench.parts.db.transaction() as conn:
        claims.lease(conn, keys[:INTAKE_LIMIT], run_id=run.run_id, seconds=900)
    assert dagster_house.tick(INTAKE).run_requests == []
    assert dagster_house.partitions() == keys

    dagster_house.bench.change(
        "update atlas.mailbox_ledger set gone_at = now() where message_key = any(%s)", keys[:200]
    )
    dagster_house.instance.report_run_failed(run)
    assert span(only(dagster_house.tick(INTAKE).run_requests)) == (keys[INTAKE_LIMIT], keys[-1])


def span_of(run: dg.DagsterRun) -> tuple[str, str]:
    """The ends of a run's range."""
    return run.tags["dagster/asset_partition_range_start"], run.tags["dagster/asset_partition_range_end"]


# What was left behind
# --------------------


def test_after_a_failed_run_the_range_is_asked_for_with_a_new_key(dagster_house: DagsterHouse) -> None:
    """A worker that died before its first message leaves no trace in the tables; the key must be new all the same."""
    put(dagster_house, 2)
    dagster_house.tick(INTAKE)
    seen = set()
    for _ in range(3):
        request = only(dagster_house.tick(UNFINISHED).run_requests)
        seen.add(request.run_key)
        dagster_house.instance.report_run_failed(dagster_house.start(request))
    assert len(seen) == 3


def test_the_leases_of_a_run_that_died_do_not_hold_its_messages_back(dagster_house: DagsterHouse) -> None:
    """A lease lasts a quarter of an hour; a killed worker is known within seconds."""
    put(dagster_house, 2)
    run = dagster_house.start(only(dagster_house.tick(INTAKE).run_requests))
    with dagster_house.bench.parts.db.transaction() as conn:
        claims.lease(conn, listed(dagster_house), run_id=run.run_id, seconds=900)
    assert dagster_house.tick(UNFINISHED).skip_message == "no message is due"
    dagster_house.instance.report_run_failed(run)
    assert span(only(dagster_house.tick(UNFINISHED).run_requests)) == tuple(listed(dagster_house))


def test_a_message_that_an_operator_put_back_is_run_again(dagster_house: DagsterHouse) -> None:
    """Its range is the very range of its first run: under the same run key Dagster would never run it."""
    put(dagster_house, 1)
    dagster_house.bench.model.script = [judged(Intent.NOISE)]
    assert dagster_house.take_in().success
    (key,) = listed(dagster_house)
    operator.reprocess(dagster_house.bench.parts.db, key, actor="test", force=False)
    again = dagster_house.take_in()
    assert dagster_house.outcomes(again)[key][-1] == "classification:done"


def test_a_message_whose_partition_was_pruned_gets_one_again(dagster_house: DagsterHouse) -> None:
    """An operator may put back a message of last year."""
    put(dagster_house, 1)
    dagster_house.tick(INTAKE)
    (key,) = listed(dagster_house)
    dagster_house.instance.delete_dynamic_partition("messages", key)
    assert span(only(dagster_house.tick(UNFINISHED).run_requests)) == (key, key)
    assert dagster_house.partitions() == [key]


def test_what_failed_qa_gets_its_next_attempt(dagster_house: DagsterHouse) -> None:
    """The loop: attempt n+1 is a partition of its own, with tags by which the UI finds it."""
    key = question(dagster_house)
    dagster_house.bench.change("update atlas.inbox set status = 'qa_failed', attempt = 1")
    request = only(dagster_house.tick(UNFINISHED).run_requests)
    assert request.job_name == "action_job"
    assert request.run_key == f"{key}:1:2:1"
    assert request.tags["dagster/partition"] == f"2|{key}"
    assert request.tags["dagster/partition/message"] == key
    assert request.tags["dagster/partition/attempt"] == "2"
    assert request.tags["atlas/message"] == key


def test_an_operators_order_is_asked_for_within_the_next_look(dagster_house: DagsterHouse) -> None:
    """``atlas spawn KEY`` doesn't wait for the five minutes of the cycle."""
    key = question(dagster_house)
    assert dagster_house.tick(UNFINISHED).run_requests == []
    operator.request_spawn(dagster_house.bench.parts.db, key, actor="test")
    request = only(dagster_house.tick(UNFINISHED).run_requests)
    assert request.partition_key == place(key)
    dagster_house.start(request)
    assert dagster_house.tick(UNFINISHED).run_requests == []


def test_an_order_for_a_message_whose_partition_was_pruned_does_not_stop_the_sensor(
    dagster_house: DagsterHouse,
) -> None:
    """A request for a partition that is not there would fail the tick, and with it everything else that waits."""
    key = question(dagster_house)
    operator.request_spawn(dagster_house.bench.parts.db, key, actor="test")
    dagster_house.instance.delete_dynamic_partition("messages", key)
    assert only(dagster_house.tick(UNFINISHED).run_requests).partition_key == place(key)
    assert dagster_house.partitions() == [key]


def test_an_action_launched_from_the_ui_counts_as_live(dagster_house: DagsterHouse) -> None:
    """It carries Dagster's tags and none of ours."""
    key = question(dagster_house)
    operator.request_spawn(dagster_house.bench.parts.db, key, actor="test")
    tags = {"dagster/partition": f"1|{key}", "dagster/partition/message": key, "dagster/partition/attempt": "1"}
    dagster_house.record(FROM_THE_UI, tags, stages=ACTION_STAGES)
    assert dagster_house.tick(UNFINISHED).run_requests == []


def test_after_forty_runs_without_an_end_a_human_is_called(dagster_house: DagsterHouse) -> None:
    """A message that no run brings to an end must not be asked for until the end of time."""
    key = question(dagster_house)
    operator.request_spawn(dagster_house.bench.parts.db, key, actor="test")
    request = only(dagster_house.tick(UNFINISHED).run_requests)
    for number in range(runs.MOST_RUNS):
        dagster_house.start(
            request.with_replaced_attrs(run_key=f"run {number}"),
            dg.DagsterRunStatus.SUCCESS if number % 2 else dg.DagsterRunStatus.FAILURE,
        )
    assert dagster_house.tick(UNFINISHED).run_requests == []
    state = dagster_house.bench.state(key)
    assert (state.status.value, state.reason_code) == ("escalated", "runs_exhausted")
    assert dagster_house.bench.alarms()[-1] == "runs_exhausted"

    # What the human then orders is a round of its own, whose runs are counted anew.
    assert operator.request_spawn(dagster_house.bench.parts.db, key, actor="test") == 2
    assert only(dagster_house.tick(UNFINISHED).run_requests).run_key == f"{key}:2:1:1"


def test_an_attempt_beyond_the_graphs_is_escalated_and_does_not_stop_the_sensor(dagster_house: DagsterHouse) -> None:
    """With ATLAS_MAX_ATTEMPTS=5 the domain would go on; the graph has three attempts."""
    key = question(dagster_house)
    dagster_house.bench.change("update atlas.inbox set status = 'qa_failed', attempt = 3")
    assert dagster_house.tick(UNFINISHED).run_requests == []
    assert dagster_house.bench.status(key).value == "escalated"


def test_under_the_kill_switch_no_agent_is_asked_for(
    dagster_house: DagsterHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``qa_failed`` waits too."""
    question(dagster_house)
    dagster_house.bench.change("update atlas.inbox set status = 'qa_failed', attempt = 1")
    monkeypatch.setenv("ATLAS_SPAWN_ENABLED", "0")
    assert dagster_house.tick(UNFINISHED).run_requests == []


def test_intake_and_actions_are_asked_for_in_one_tick(dagster_house: DagsterHouse) -> None:
    """One sensor, two jobs."""
    key = question(dagster_house)
    operator.request_spawn(dagster_house.bench.parts.db, key, actor="test")
    put(dagster_house, 1)
    dagster_house.bench.discover()
    requests = dagster_house.tick(UNFINISHED).run_requests or ()
    assert {request.job_name for request in requests} == {"intake_job", "action_job"}


def test_a_range_in_insertion_order_is_run_as_it_was_asked_for(dagster_house: DagsterHouse) -> None:
    """The keys' own order is another one: what the run works on is the slice, no key more and none less."""
    put(dagster_house, 4)
    dagster_house.bench.discover()
    keys = listed(dagster_house)
    order = [keys[3], keys[1], keys[0], keys[2]]
    dagster_house.instance.add_dynamic_partitions("messages", order)
    dagster_house.bench.model.script = [judged(Intent.NOISE)]
    result = dagster_house.intake(order[0], order[2])
    assert result.success
    assert dagster_house.outcomes(result) == {
        key: [*all_stages("done")[:2], "ocr_text:not_needed", "classification:done"] for key in order[:3]
    }
    assert list(dagster_house.outcomes(result)) == order[:3]


def question(house: DagsterHouse) -> str:
    """A classified question whose partition exists."""
    key = house.bench.take_in(letter())
    house.instance.add_dynamic_partitions("messages", [key])
    return key
