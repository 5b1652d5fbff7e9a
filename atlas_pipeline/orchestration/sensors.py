"""The sensors: the mailbox's door, and the safety net for whatever was left behind. They ask for runs and do no work."""

import contextlib

import dagster as dg

from atlas_pipeline.errors import AtlasError, Refused
from atlas_pipeline.flow import watching
from atlas_pipeline.flow.discovery import discover
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.orchestration import runs
from atlas_pipeline.orchestration.boundary import bounded_parts
from atlas_pipeline.orchestration.jobs import action_job, intake_job
from atlas_pipeline.orchestration.partitions import attempts, messages
from atlas_pipeline.orchestration.planning import intake_run_key, plan_intake
from atlas_pipeline.settings import Settings


def mailbox_sensor(settings: Settings) -> dg.SensorDefinition:
    """Each minute: list the mailbox into the ledger, then ask for what the ledger says is due."""

    @dg.sensor(
        name="mailbox_sensor",
        job=intake_job,
        minimum_interval_seconds=settings.poll_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Lists the mailbox; adds ledger rows, partitions, and one range run.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        with bounded_parts() as parts:
            try:
                discover(parts)
            except AtlasError as error:
                if error.code == "mailbox_not_configured":  # absent is a state, not a fault; `atlas doctor` says so too
                    return dg.SkipReason(error.code)
                # The tick fails in the UI with the code alone; a library's cause may quote a header.
                raise dg.Failure(error.code, allow_retries=False) from None
            return _intake(context, parts)

    return sensor


def unfinished_sensor(settings: Settings) -> dg.SensorDefinition:
    """Every half minute: what the tables say is behind and has no live run is asked for again."""

    @dg.sensor(
        name="unfinished_sensor",
        jobs=[intake_job, action_job],
        minimum_interval_seconds=settings.unfinished_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Resumes intake and actions that a crash, an outage or a failed QA left; starts what an operator asked for.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        with bounded_parts() as parts:
            requests = _actions(context.instance, parts)
            result = _intake(context, parts)
        if isinstance(result, dg.SensorResult):
            return dg.SensorResult(
                run_requests=[*(result.run_requests or []), *requests],
                dynamic_partitions_requests=result.dynamic_partitions_requests,
            )
        return dg.SensorResult(run_requests=requests) if requests else result

    return sensor


def _intake(context: dg.SensorEvaluationContext, parts: Parts) -> dg.SensorResult | dg.SkipReason:
    instance = context.instance
    due = watching.intake_due(parts, runs.live_run_ids(instance))
    if not due:
        return dg.SkipReason("no message is due")
    partitions = instance.get_dynamic_partitions(str(messages.name))
    plan = plan_intake(partitions, due, busy=runs.intake_is_live(instance), limit=watching.INTAKE_LIMIT)
    requests = []
    if plan.span:
        requests = [
            dg.RunRequest(
                run_key=intake_run_key(plan.span, runs.earlier_intakes(instance, plan.span)),
                job_name="intake_job",
                tags=runs.intake_tags(plan.span),
            )
        ]
    if not plan.add and not requests:
        return dg.SkipReason(f"{len(due)} messages wait for the live intake run")
    return dg.SensorResult(
        run_requests=requests,
        dynamic_partitions_requests=[messages.build_add_request(list(plan.add))] if plan.add else [],
    )


def _actions(instance: dg.DagsterInstance, parts: Parts) -> list[dg.RunRequest]:
    requests = []
    for due in watching.follow_ups(parts, runs.live_actions(instance)):
        # An attempt without a partition can't be run: a setting asked for more of them than the graph has.
        if str(due.attempt) not in attempts.get_partition_keys() or runs.earlier_runs(instance, due) >= runs.MOST_RUNS:
            with contextlib.suppress(Refused):  # another actor moved the message meanwhile: nothing to give up
                watching.give_up(parts, due)
        else:
            requests.append(runs.action_request(instance, due))
    return requests
