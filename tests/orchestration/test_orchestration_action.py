"""The action half as a Dagster run: an agent, no release for a question, a recap; refusals, failures, interrupts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg
import pytest

from atlas_pipeline.flow import operator
from atlas_pipeline.flow.spawning import marker_of
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.spawn.processes import marked
from tests.fixtures_flow import ROOT, judged, letter
from tests.fixtures_orchestration import DagsterHouse, place
from tests.fixtures_release import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")

_WORKER = """
import sys
import dagster as dg
from atlas_pipeline.definitions import defs

with dg.DagsterInstance.from_config(sys.argv[1]) as instance:
    defs.resolve_job_def("action_job").execute_in_process(
        instance=instance, run_id=sys.argv[2], raise_on_error=False,
        partition_key=dg.MultiPartitionKey({"message": sys.argv[3], "attempt": "1"}))
"""


def question(house: DagsterHouse) -> str:
    """A classified question with its partition."""
    key = house.bench.take_in(letter("Une question", "Bonjour, quels sont vos horaires ?\n"))
    house.instance.add_dynamic_partitions("messages", [key])
    return key


def materialised(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Asset and outcome of every materialisation."""
    found = {}
    for event in result.get_asset_materialization_events():
        done = event.step_materialization_data.materialization
        found[done.asset_key.to_user_string()] = str(done.metadata["outcome"].value)
    return found


def test_a_question_is_answered_in_one_run_and_recapped(dagster_house: DagsterHouse) -> None:
    """Agent, nothing to release, recap in the outbox, three materialisations in the message's own partition."""
    key = question(dagster_house)
    result = dagster_house.action(key)
    assert result.success
    assert materialised(result) == {"spawn_result": "done", "qa_report": "not_needed", "recap": "done"}
    assert dagster_house.bench.status(key) is Status.ACTIONED
    assert len(dagster_house.bench.recaps()) == 1
    for asset in ("spawn_result", "qa_report", "recap"):
        assert dagster_house.statuses(asset, [place(key), place(key, 2)]) == {
            place(key): "MATERIALIZED",
            place(key, 2): None,
        }


def test_a_backfill_starts_no_agent_for_a_noise_mail(dagster_house: DagsterHouse) -> None:
    """The UI offers every key as missing: the tables decide, the run ends well and leaves no materialisation."""
    key = dagster_house.bench.take_in(letter("Newsletter"), Intent.NOISE)
    dagster_house.instance.add_dynamic_partitions("messages", [key])
    result = dagster_house.action(key)
    assert result.success
    assert materialised(result) == {}
    assert dagster_house.statuses("spawn_result", [place(key)]) == {place(key): None}
    assert dagster_house.bench.codes(key, "spawn_refused") == ["intent_not_spawned"]
    assert dagster_house.bench.rows("select * from atlas.spawns") == []


def test_a_second_run_of_an_attempt_changes_nothing(dagster_house: DagsterHouse) -> None:
    """The cycle and the sensor may ask in the same instant: one agent, one recap."""
    key = question(dagster_house)
    operator.request_spawn(dagster_house.bench.parts.db, key, actor="test")
    (by_sensor,) = dagster_house.tick("unfinished_sensor").run_requests or ()
    (by_schedule,) = spawn_cycle(dagster_house)
    assert dagster_house.run(by_sensor).success
    second = dagster_house.run(by_schedule.with_replaced_attrs(job_name="action_job"))
    assert second.success
    assert materialised(second) == {}
    assert dagster_house.statuses("recap", [place(key)]) == {place(key): "MATERIALIZED"}
    assert dagster_house.bench.one("select count(*) from atlas.spawns") == 1
    assert len(dagster_house.bench.recaps()) == 1


def test_an_agent_that_fails_fails_the_run_with_its_code(
    dagster_house: DagsterHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The downstream assets are not run; the message goes back among the candidates."""
    key = question(dagster_house)
    monkeypatch.setenv("ATLAS_STANDIN_MODE", "api_error")
    result = dagster_house.action(key)
    assert not result.success
    (event,) = [event for event in result.all_events if event.is_step_failure]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    assert failure.description == dagster_house.bench.latest(key).code
    assert materialised(result) == {}
    assert dagster_house.bench.status(key) is Status.CLASSIFIED


def test_without_an_agent_the_run_ends_well_and_the_message_waits(
    dagster_house: DagsterHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside the demo an agent may be absent."""
    key = question(dagster_house)
    monkeypatch.setenv("ATLAS_AGENT_BIN", "/nonexistent/claude")
    result = dagster_house.action(key)
    assert result.success
    assert materialised(result) == {}
    assert dagster_house.bench.status(key) is Status.CLASSIFIED
    assert dagster_house.bench.alarms() == ["agent_missing"]


# Interrupts
# ----------


@contextmanager
def worker(house: DagsterHouse, key: str, run_id: str) -> Iterator[subprocess.Popen[bytes]]:
    """A run worker with a slow agent, once the agent runs."""
    command = [sys.executable, "-c", _WORKER, str(ROOT), run_id, key]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "ATLAS_STANDIN_MODE": "slow"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    try:
        wait_until(lambda: house.bench.rows("select 1 as up from atlas.spawns where status = 'running'") != [], 30)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=20)


@pytest.mark.parametrize("by_hand", [True, False], ids=["cancelled", "shut down"])
def test_an_interrupted_run_stops_its_agent_and_puts_the_row_right(dagster_house: DagsterHouse, by_hand: bool) -> None:
    """An operator's cancel escalates; a house that is shut down goes on with the message when it is up again."""
    key, run_id = question(dagster_house), str(uuid.uuid4())
    with worker(dagster_house, key, run_id) as process:
        spawn = dagster_house.bench.latest(key)
        assert marked(marker_of(dagster_house.bench.parts, spawn.id)) != []
        run = dagster_house.instance.get_run_by_id(run_id)
        assert run is not None
        if by_hand:
            dagster_house.instance.report_run_canceling(run)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    ended, state = dagster_house.bench.latest(key), dagster_house.bench.state(key)
    assert marked(marker_of(dagster_house.bench.parts, spawn.id)) == []
    if by_hand:
        assert (ended.status, ended.code) == ("cancelled", "cancelled_by_hand")
        assert (state.status, state.reason_code) == (Status.ESCALATED, "cancelled_by_hand")
        assert dagster_house.tick("unfinished_sensor").run_requests == []
    else:
        assert (ended.status, ended.code) == ("lost", "interrupted")
        assert state.status is Status.CLASSIFIED
        (request,) = dagster_house.tick("unfinished_sensor").run_requests or ()
        assert request.partition_key == place(key)


def spawn_cycle(house: DagsterHouse) -> list[dg.RunRequest]:
    """What the spawn cycle asks for now."""
    context = dg.build_schedule_context(
        instance=house.instance,
        instance_ref=house.instance.get_ref(),
        repository_def=house.defs.get_repository_def(),
    )
    return list(house.defs.resolve_schedule_def("spawn_schedule").evaluate_tick(context).run_requests or ())


def test_the_cycle_asks_for_each_candidate_with_a_run_key_and_tags_of_its_own(dagster_house: DagsterHouse) -> None:
    """At most one agent a tenant and three alive; a candidate whose run is live is not asked for again."""
    first, second = question(dagster_house), question(dagster_house)
    dagster_house.bench.change("update atlas.inbox set tenant = %s", dagster_house.bench.tenant.slug)
    (request,) = spawn_cycle(dagster_house)
    assert request.partition_key == place(first)
    assert request.run_key == f"{first}:1:1:1"
    assert request.tags["atlas/tenant"] == dagster_house.bench.tenant.slug
    dagster_house.bench.change("update atlas.inbox set tenant = null")
    assert [one.partition_key for one in spawn_cycle(dagster_house)] == [place(first), place(second)]
    dagster_house.start(request.with_replaced_attrs(job_name="action_job"))
    assert [one.partition_key for one in spawn_cycle(dagster_house)] == [place(second)]


def test_the_cycle_asks_for_a_candidate_whose_partition_was_pruned(dagster_house: DagsterHouse) -> None:
    """A message may wait for an agent longer than its partition is kept."""
    key = question(dagster_house)
    dagster_house.instance.delete_dynamic_partition("messages", key)
    (request,) = spawn_cycle(dagster_house)
    assert (request.partition_key, dagster_house.partitions()) == (place(key), [key])


def test_no_candidate_is_a_skip_and_no_run(dagster_house: DagsterHouse) -> None:
    """A run costs seconds of CPU, and the cycle comes round every five minutes."""
    dagster_house.bench.model.script = [judged(Intent.NOISE)]
    assert spawn_cycle(dagster_house) == []
