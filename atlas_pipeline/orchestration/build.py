"""Puts the definitions together. A fresh object at each call, so that tests and tools may build their own."""

import dagster as dg

from atlas_pipeline.orchestration import action, inbox, steering
from atlas_pipeline.orchestration.checks import inbox_health
from atlas_pipeline.orchestration.io import refusing_io_manager
from atlas_pipeline.orchestration.jobs import JOBS
from atlas_pipeline.orchestration.schedules import schedules
from atlas_pipeline.orchestration.sensors import mailbox_sensor, unfinished_sensor
from atlas_pipeline.settings import Settings, load


def build_definitions(settings: Settings | None = None) -> dg.Definitions:
    """All assets, jobs, sensors and schedules; cadences and the time zone are the settings'."""
    chosen = settings or load()
    return dg.Definitions(
        assets=[
            inbox.intake,
            action.spawn_result,
            action.qa_report,
            action.recap,
            steering.calibration_report(chosen),
            steering.agent_registry,
            steering.scar_index,
            steering.mailbox_heartbeat,
        ],
        asset_checks=[inbox_health],
        jobs=JOBS,
        sensors=[mailbox_sensor(chosen), unfinished_sensor(chosen)],
        schedules=schedules(chosen),
        resources={"io_manager": refusing_io_manager},
        executor=dg.in_process_executor,
    )
