"""Jobs: all in one process, none retried by Dagster, each with a longest running time."""

from pathlib import Path

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from atlas_pipeline.flow import recapping, replaying, watching
from atlas_pipeline.flow.stage import ACTION_STAGES, INBOX_STAGES
from atlas_pipeline.orchestration.boundary import bounded_parts
from atlas_pipeline.orchestration.runs import HALF
from atlas_pipeline.orchestration.upkeep import prune


def _tags(seconds: int, half: str) -> dict[str, str]:
    return {"dagster/max_runtime": str(seconds), "dagster/max_retries": "0", HALF: half}


intake_job = dg.define_asset_job(
    "intake_job",
    selection=dg.AssetSelection.assets(*INBOX_STAGES).without_checks(),
    executor_def=dg.in_process_executor,
    tags=_tags(3600, "intake"),
)
action_job = dg.define_asset_job(
    "action_job",
    selection=dg.AssetSelection.assets(*ACTION_STAGES).without_checks(),
    executor_def=dg.in_process_executor,
    tags=_tags(4500, "action"),
)
calibration_job = dg.define_asset_job(
    "calibration_job",
    selection=dg.AssetSelection.assets("calibration_report"),
    executor_def=dg.in_process_executor,
    tags=_tags(900, "steering"),
)
steering_job = dg.define_asset_job(
    "steering_job",
    selection=dg.AssetSelection.assets("agent_registry", "scar_index", "mailbox_heartbeat")
    | dg.AssetSelection.checks_for_assets("classification"),
    executor_def=dg.in_process_executor,
    tags=_tags(900, "steering"),
)

heartbeat_job = dg.define_asset_job(
    "heartbeat_job",
    selection=dg.AssetSelection.assets("mailbox_heartbeat"),
    executor_def=dg.in_process_executor,
    tags=_tags(300, "steering"),
)


@dg.op(out=dg.Out(dg.Nothing))
def deliver_recaps(context: dg.OpExecutionContext) -> None:
    """Send what the outbox holds and is due."""
    with bounded_parts() as parts:
        context.log.info("%d recaps left", recapping.deliver_due(parts))


@dg.op(out=dg.Out(dg.Nothing))
def guard_locks(context: dg.OpExecutionContext) -> None:
    """Reap agents without an owner."""
    with bounded_parts() as parts:
        context.log.info("lock guard: %s", watching.guard_locks(parts))


class ReplayConfig(dg.Config):
    """``month`` (YYYY-MM) is judged again; what is left out is as it is now. Files are the server's."""

    month: str
    routing: str | None = None
    prompt: str | None = None
    floor: float | None = None
    uncertainty: float | None = None


@dg.op(out=dg.Out(dg.Nothing))
def replay_month(context: dg.OpExecutionContext, config: ReplayConfig) -> None:
    """Judge a month's stored mails again beside the truth; the metadata say what would have been otherwise.

    A run that was stopped fails, with what it found so far: launched again, it goes on from there.
    """
    change = replaying.Change(
        routing=Path(config.routing) if config.routing else None,
        prompt=Path(config.prompt) if config.prompt else None,
        floor=config.floor,
        uncertainty=config.uncertainty,
    )
    with bounded_parts() as parts:
        found = replaying.replay(parts, config.month, change, actor=f"dagster:{context.run.run_id}")
        language = parts.settings.language
    metadata = {**replaying.facts(found), "beside_the_truth": dg.MetadataValue.md(replaying.rendered(found, language))}
    if found.stopped:
        raise dg.Failure(f"replay_stopped ({found.stopped})", metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


@dg.op(out=dg.Out(dg.Nothing))
def prune_history(context: dg.OpExecutionContext) -> None:
    """Delete old runs and partitions."""
    context.log.info("pruned: %s", prune(context.instance))


@dg.job(executor_def=dg.in_process_executor, tags=_tags(900, "outbox"))
def outbox_job() -> None:
    """The outbox."""
    deliver_recaps()


@dg.job(executor_def=dg.in_process_executor, tags=_tags(900, "guard"))
def lock_guard_job() -> None:
    """The lock guard."""
    guard_locks()


@dg.job(executor_def=dg.in_process_executor, tags=_tags(14400, "replay"))
def replay_job() -> None:
    """A month judged again, beside the truth."""
    replay_month()


@dg.job(executor_def=dg.in_process_executor, tags=_tags(3600, "maintenance"))
def maintenance_job() -> None:
    """Nightly upkeep."""
    prune_history()


JOBS: list[dg.JobDefinition | UnresolvedAssetJobDefinition] = [
    intake_job,
    action_job,
    calibration_job,
    steering_job,
    heartbeat_job,
    outbox_job,
    lock_guard_job,
    replay_job,
    maintenance_job,
]
