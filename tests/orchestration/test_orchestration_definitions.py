"""The definitions as Dagster sees them: what there is, when it runs, and under which limits."""

from __future__ import annotations

import subprocess
import sys

import dagster as dg
import pytest

from atlas_pipeline.orchestration.build import build_definitions
from atlas_pipeline.settings import Settings
from tests.fixtures_flow import ROOT

GRAPH = {
    "raw_message": ("inbox", []),
    "scan_verdict": ("inbox", ["raw_message"]),
    "ocr_text": ("inbox", ["scan_verdict"]),
    "classification": ("inbox", ["ocr_text", "scan_verdict"]),
    "spawn_result": ("action", ["classification"]),
    "qa_report": ("action", ["spawn_result"]),
    "recap": ("action", ["qa_report"]),
    "calibration_report": ("steering", ["classification", "recap"]),
    "agent_registry": ("steering", []),
    "scar_index": ("steering", ["agent_registry"]),
    "mailbox_heartbeat": ("steering", []),
}
JOBS = {
    "intake_job": ("3600", "intake"),
    "action_job": ("4500", "action"),
    "calibration_job": ("900", "steering"),
    "replay_job": ("14400", "replay"),
    "steering_job": ("900", "steering"),
    "heartbeat_job": ("300", "steering"),
    "outbox_job": ("900", "outbox"),
    "lock_guard_job": ("900", "guard"),
    "maintenance_job": ("3600", "maintenance"),
}
SCHEDULES = {
    "spawn_schedule": ("2-59/5 * * * *", "Europe/Paris", "action_job"),
    "outbox_schedule": ("* * * * *", None, "outbox_job"),
    "lock_guard_schedule": ("*/15 * * * *", None, "lock_guard_job"),
    "heartbeat_schedule": ("*/2 * * * *", None, "heartbeat_job"),
    "calibration_schedule": ("30 4 1 * *", "Europe/Paris", "calibration_job"),
    "steering_schedule": ("7 * * * *", None, "steering_job"),
    "maintenance_schedule": ("40 3 * * *", None, "maintenance_job"),
}
_LOAD = """
import warnings
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    from atlas_pipeline.definitions import defs
    import dagster as dg
    dg.Definitions.validate_loadable(defs)
print(" ".join(sorted({warning.category.__name__ for warning in seen if "atlas_pipeline" in warning.filename})))
"""


@pytest.fixture(scope="module")
def repository() -> dg.RepositoryDefinition:
    """The definitions under the settings' defaults."""
    return build_definitions(Settings()).get_repository_def()


def test_the_definitions_load_and_warn_of_beta_features_alone() -> None:
    """In a process of its own: decorators run once, at import."""
    done = subprocess.run([sys.executable, "-c", _LOAD], cwd=ROOT, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "BetaWarning"


def test_every_asset_has_its_group_and_its_upstream(repository: dg.RepositoryDefinition) -> None:
    """The picture in the UI; the edge from ocr_text to classification stays though nothing is handed over."""
    graph = repository.asset_graph
    nodes = {key.to_user_string(): graph.get(key) for key in graph.get_all_asset_keys()}
    found = {n: (node.group_name, sorted(k.to_user_string() for k in node.parent_keys)) for n, node in nodes.items()}
    assert found == GRAPH
    assert all(node.description for node in nodes.values())


def test_the_halves_are_partitioned_by_message_and_by_message_and_attempt(repository: dg.RepositoryDefinition) -> None:
    """The report's months lie in the agency's zone."""
    graph = repository.asset_graph
    parts = {key.to_user_string(): graph.get(key).partitions_def for key in graph.get_all_asset_keys()}
    inbox = {parts[name] for name in ("raw_message", "scan_verdict", "ocr_text", "classification")}
    assert inbox == {dg.DynamicPartitionsDefinition(name="messages")}
    action = parts["recap"]
    assert isinstance(action, dg.MultiPartitionsDefinition)
    assert [dimension.name for dimension in action.partitions_defs] == ["attempt", "message"]
    assert parts["spawn_result"] == parts["qa_report"] == action
    months = parts["calibration_report"]
    assert isinstance(months, dg.TimeWindowPartitionsDefinition)
    assert (months.timezone, months.get_first_partition_key()) == ("Europe/Paris", "2026-01")


def test_the_four_inbox_assets_are_one_step_that_takes_a_range(repository: dg.RepositoryDefinition) -> None:
    """One run a tick: measured, a run a message costs 28 times the CPU."""
    (intake,) = {id(a): a for k, a in repository.assets_defs_by_key.items() if k.to_user_string() in {"raw_message", "recap"}
                 and a.op.name == "intake"}.values()  # fmt: skip
    assert len(intake.keys) == 4
    assert not intake.can_subset
    assert intake.backfill_policy == dg.BackfillPolicy.single_run()


def test_every_job_has_a_longest_time_no_retry_and_runs_in_one_process(repository: dg.RepositoryDefinition) -> None:
    """A retry of anything with effects is ours to decide; several processes would cost four times the CPU."""
    jobs = {job.name: job for job in repository.get_all_jobs() if not job.name.startswith("__")}
    found = {name: (job.tags["dagster/max_runtime"], job.tags["atlas/half"]) for name, job in jobs.items()}
    assert found == JOBS
    assert {job.tags["dagster/max_retries"] for job in jobs.values()} == {"0"}
    assert {job.executor_def.name for job in repository.get_all_jobs()} == {"in_process"}


def test_the_schedules_run_when_the_specification_says_and_are_on(repository: dg.RepositoryDefinition) -> None:
    """Two minutes past every five: 2-59/5."""
    found = {s.name: (s.cron_schedule, s.execution_timezone, s.job_name) for s in repository.schedule_defs}
    assert found == SCHEDULES
    assert {s.default_status for s in repository.schedule_defs} == {dg.DefaultScheduleStatus.RUNNING}


def test_the_sensors_look_every_minute_and_every_half_minute_and_are_on(repository: dg.RepositoryDefinition) -> None:
    """Both intervals are settings."""
    found = {s.name: (s.minimum_interval_seconds, s.default_status) for s in repository.sensor_defs}
    running = dg.DefaultSensorStatus.RUNNING
    assert found == {"mailbox_sensor": (60, running), "unfinished_sensor": (30, running)}


def test_cadences_and_zone_follow_the_settings() -> None:
    """Built anew at each call, so that a test or a tool may have its own."""
    settings = Settings(poll_seconds=7, unfinished_seconds=9, spawn_cron="*/3 * * * *", time_zone="Pacific/Auckland")
    repository = build_definitions(settings).get_repository_def()
    assert {s.minimum_interval_seconds for s in repository.sensor_defs} == {7, 9}
    zones = {s.name: (s.cron_schedule, s.execution_timezone) for s in repository.schedule_defs}
    assert zones["spawn_schedule"] == ("*/3 * * * *", "Pacific/Auckland")
    assert zones["calibration_schedule"][1] == "Pacific/Auckland"


def test_no_step_hands_a_value_to_the_next(repository: dg.RepositoryDefinition) -> None:
    """Every output is nothing at all; the default IO manager would refuse a value anyway."""
    for job in repository.get_all_jobs():
        for node in job.nodes:
            for output in node.definition.output_defs:
                assert output.dagster_type.is_nothing or output.dagster_type.display_name == "Any", (
                    job.name,
                    node.name,
                )
    assert {type(job.resource_defs["io_manager"]).__name__ for job in repository.get_all_jobs()} == {
        "IOManagerDefinition"
    }


def test_the_checks_block_nothing(repository: dg.RepositoryDefinition) -> None:
    """Checks warn; the gates stand in the domain."""
    graph = repository.asset_graph
    found = sorted((key.asset_key.to_user_string(), key.name) for key in graph.asset_check_keys)
    of_month = [("calibration_report", name) for name in ("drift", "enough_data", "error_rate", "gate")]
    assert found == [*of_month, ("classification", "inbox_health")]
    assert not any(graph.get_check_spec(key).blocking for key in graph.asset_check_keys)
