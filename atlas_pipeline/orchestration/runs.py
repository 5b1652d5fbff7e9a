"""What Dagster knows of our runs: which live, how often a partition was asked for. Tags are ours; nothing is decided from events."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from atlas_pipeline.flow.stage import INBOX_STAGES
from atlas_pipeline.flow.watching import ActionDue
from atlas_pipeline.orchestration.partitions import messages
from atlas_pipeline.spawn.select import Live

HALF, MESSAGE, TENANT, ROUND, ATTEMPT = "atlas/half", "atlas/message", "atlas/tenant", "atlas/round", "atlas/attempt"
# Dagster's own tags: of a run over a range, and of a run of one message and attempt, whoever asked for it.
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
MESSAGE_DIMENSION = "dagster/partition/message"
UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
# Runs of one attempt that came to no end before a human is called: crashes and refusals of a crowded house.
MOST_RUNS = 40


def live_run_ids(instance: dg.DagsterInstance) -> set[str]:
    """Ids of every run that has not ended."""
    return {run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))}


def live_intakes(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Intake runs that have not ended, those launched from the UI's asset graph (they have no job of ours) included."""
    stages = {dg.AssetKey(stage) for stage in INBOX_STAGES}
    runs = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    return [run for run in runs if run.job_name == "intake_job" or stages & (run.asset_selection or frozenset())]


def intake_is_live(instance: dg.DagsterInstance) -> bool:
    """Whether an intake run has not ended: there is at most one at a time."""
    return bool(live_intakes(instance))


def intake_tags(span: Sequence[str]) -> dict[str, str]:
    """The tags of a run over this range."""
    return {RANGE_START: span[0], RANGE_END: span[-1]}


def earlier_intakes(instance: dg.DagsterInstance, span: Sequence[str]) -> int:
    """How many runs this range has had."""
    return instance.get_runs_count(dg.RunsFilter(tags=intake_tags(span)))


def live_actions(instance: dg.DagsterInstance) -> list[Live]:
    """Messages whose action run is queued or running: asked for by us, or from the UI, where Dagster's own tag names it."""
    found = [
        (run.tags.get(MESSAGE) or run.tags.get(MESSAGE_DIMENSION), run.tags.get(TENANT))
        for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED))
    ]
    return [Live(key, tenant or None) for key, tenant in found if key]


def earlier_runs(instance: dg.DagsterInstance, due: ActionDue) -> int:
    """How many runs this message, round and attempt has had."""
    tags = {MESSAGE: due.message_key, ROUND: str(due.round), ATTEMPT: str(due.attempt)}
    return instance.get_runs_count(dg.RunsFilter(tags=tags))


def action_request(instance: dg.DagsterInstance, due: ActionDue) -> dg.RunRequest:
    """The run of one attempt. Its key ends in the number of runs before it: a key is used once for ever.

    The partition of an old message may have been pruned; a request for one that is not there would fail the whole tick.
    """
    if not instance.has_dynamic_partition(str(messages.name), due.message_key):
        instance.add_dynamic_partitions(str(messages.name), [due.message_key])
    return dg.RunRequest(
        run_key=f"{due.message_key}:{due.round}:{due.attempt}:{earlier_runs(instance, due) + 1}",
        job_name="action_job",
        partition_key=dg.MultiPartitionKey({"message": due.message_key, "attempt": str(due.attempt)}),
        tags={
            HALF: "action",
            MESSAGE: due.message_key,
            ROUND: str(due.round),
            ATTEMPT: str(due.attempt),
            **({TENANT: due.tenant} if due.tenant else {}),
        },
    )
