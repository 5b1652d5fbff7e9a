"""The schedules. A look that finds nothing to do is a skip, not a run: a run costs seconds of CPU."""

import dagster as dg

from atlas_pipeline.flow import pulse, watching
from atlas_pipeline.orchestration import runs
from atlas_pipeline.orchestration.boundary import bounded_parts
from atlas_pipeline.orchestration.jobs import (
    action_job,
    calibration_job,
    heartbeat_job,
    lock_guard_job,
    maintenance_job,
    outbox_job,
    steering_job,
)
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import outbox, spawns

Ticks = list[dg.RunRequest] | dg.SkipReason
RUNNING = dg.DefaultScheduleStatus.RUNNING


def spawn_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """The spawn cycle: at most three candidates, within the limits of live agents and busy tenants."""

    @dg.schedule(
        name="spawn_schedule",
        job=action_job,
        cron_schedule=settings.spawn_cron,
        execution_timezone=settings.time_zone,
        default_status=RUNNING,
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> Ticks:
        with bounded_parts() as parts:
            due = watching.spawns_due(parts, runs.live_actions(context.instance))
        return [runs.action_request(context.instance, one) for one in due] or dg.SkipReason("no candidate")

    return schedule


@dg.schedule(job=outbox_job, cron_schedule="* * * * *", default_status=RUNNING)
def outbox_schedule(context: dg.ScheduleEvaluationContext) -> Ticks:
    """Each minute, where a recap is due: sent right after its decision in the good case, from here otherwise."""
    with bounded_parts() as parts, parts.db.transaction() as conn:
        due = outbox.due(conn)
    return [dg.RunRequest()] if due else dg.SkipReason("the outbox holds nothing that is due")


@dg.schedule(job=lock_guard_job, cron_schedule="*/15 * * * *", default_status=RUNNING)
def lock_guard_schedule(context: dg.ScheduleEvaluationContext) -> Ticks:
    """Each quarter of an hour, where an agent is marked live."""
    with bounded_parts() as parts, parts.db.transaction() as conn:
        live = spawns.live(conn)
    return [dg.RunRequest()] if live else dg.SkipReason("no agent is live")


@dg.schedule(job=heartbeat_job, cron_schedule="*/2 * * * *", default_status=RUNNING)
def heartbeat_schedule(context: dg.ScheduleEvaluationContext) -> Ticks:
    """Every two minutes, where the mailbox has fallen silent or is read again."""
    with bounded_parts() as parts:
        due = pulse.due(parts)
    return [dg.RunRequest()] if due else dg.SkipReason("the mailbox's pulse is as it was")


def calibration_schedule(settings: Settings) -> dg.ScheduleDefinition:
    """On the first of each month: the month that has just ended."""

    @dg.schedule(
        name="calibration_schedule",
        job=calibration_job,
        cron_schedule="30 4 1 * *",
        execution_timezone=settings.time_zone,
        default_status=RUNNING,
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        moment = context.scheduled_execution_time
        year, month = (moment.year, moment.month - 1) if moment.month > 1 else (moment.year - 1, 12)
        return dg.RunRequest(partition_key=f"{year:04d}-{month:02d}")

    return schedule


steering_schedule = dg.ScheduleDefinition(
    name="steering_schedule", job=steering_job, cron_schedule="7 * * * *", default_status=RUNNING
)
maintenance_schedule = dg.ScheduleDefinition(
    name="maintenance_schedule", job=maintenance_job, cron_schedule="40 3 * * *", default_status=RUNNING
)


def schedules(settings: Settings) -> list[dg.ScheduleDefinition]:
    """All of them."""
    return [
        spawn_schedule(settings),
        outbox_schedule,
        lock_guard_schedule,
        heartbeat_schedule,
        calibration_schedule(settings),
        steering_schedule,
        maintenance_schedule,
    ]
