"""What Dagster knows of our runs: which live, how often a partition was asked for. Tags are ours; nothing is decided from events."""

from __future__ import annotations

import dagster as dg

from atlas_pipeline.flow.watching import ActionDue
from atlas_pipeline.spawn.select import Live

HALF, MESSAGE, TENANT, ROUND, ATTEMPT = "atlas/half", "atlas/message", "atlas/tenant", "atlas/round", "atlas/attempt"
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


def intake_is_live(instance: dg.DagsterInstance) -> bool:
    """Whether an intake run has not ended: there is at most one at a time."""
    return instance.get_runs_count(dg.RunsFilter(statuses=UNFINISHED, job_name="intake_job")) > 0


def live_actions(instance: dg.DagsterInstance) -> list[Live]:
    """Messages whose action run is queued or running."""
    runs = instance.get_runs(dg.RunsFilter(statuses=UNFINISHED, tags={HALF: "action"}))
    return [Live(run.tags[MESSAGE], run.tags.get(TENANT) or None) for run in runs if MESSAGE in run.tags]


def earlier_runs(instance: dg.DagsterInstance, due: ActionDue) -> int:
    """How many runs this message, round and attempt has had."""
    tags = {MESSAGE: due.message_key, ROUND: str(due.round), ATTEMPT: str(due.attempt)}
    return instance.get_runs_count(dg.RunsFilter(tags=tags))


def action_request(instance: dg.DagsterInstance, due: ActionDue) -> dg.RunRequest:
    """The run of one attempt. Its key ends in the number of runs before it: a key is used once for ever."""
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
