"""Nightly upkeep of Dagster's own storage: nothing else ever deletes a run or a partition. Our tables keep the history."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import dagster as dg

from atlas_pipeline.orchestration.partitions import messages
from atlas_pipeline.orchestration.runs import RANGE_END, RANGE_START, UNFINISHED, live_actions, live_intakes

KEEP_DAYS = 90
# More than a busy day makes (an intake run and an outbox run a minute each), or the storage would grow for ever.
NIGHTLY_RUNS, NIGHTLY_PARTITIONS = 5000, 2000
_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


def prune(instance: dg.DagsterInstance, *, now: datetime | None = None) -> dict[str, int]:
    """Delete runs and message partitions older than 90 days, a bounded number a night; never one with a live run."""
    border = (now or datetime.now(UTC)) - timedelta(days=KEEP_DAYS)
    old = instance.get_run_records(
        dg.RunsFilter(statuses=_ENDED, created_before=border), limit=NIGHTLY_RUNS, ascending=True
    )
    for record in old:
        instance.delete_run(record.dagster_run.run_id)
    keys = instance.get_dynamic_partitions(str(messages.name))
    live = {action.message_key for action in live_actions(instance)}
    for run in live_intakes(instance):
        live |= set(_within(keys, run.tags))
    gone = [key for key in stale_keys(keys, border) if key not in live][:NIGHTLY_PARTITIONS]
    for key in gone:
        instance.delete_dynamic_partition(str(messages.name), key)
    return {"runs": len(old), "partitions": len(gone)}


def _within(keys: Sequence[str], tags: Mapping[str, str]) -> Sequence[str]:
    """The keys of a live intake run: a range whose border was deleted can't be resolved any more."""
    single = tags.get("dagster/partition")
    first, last = tags.get(RANGE_START, single), tags.get(RANGE_END, single)
    if first not in keys or last not in keys:
        return ()
    return keys[keys.index(str(first)) : keys.index(str(last)) + 1]


def stale_keys(keys: Sequence[str], border: datetime) -> list[str]:
    """Keys whose day lies before the border: a message key begins with the day of its arrival."""
    day = border.strftime("%Y%m%d")
    return [key for key in keys if key[:8] < day]


def end_orphaned_runs(dagster_home: str, environment: Mapping[str, str]) -> int:
    """Mark runs that are still called started as failed: their workers died with the house. Call before Dagster starts.

    Nobody else would: the default launcher doesn't see the death of a whole machine, and only a run's longest running time
    ends it, while its messages wait. Returns how many.
    """
    os.environ.update({name: environment[name] for name in ("ATLAS_DAGSTER_URL", "ATLAS_DAGSTER_DIR")})
    count = 0
    with dg.DagsterInstance.from_config(dagster_home) as instance:
        for run in instance.get_runs(
            dg.RunsFilter(statuses=[status for status in UNFINISHED if status is not dg.DagsterRunStatus.QUEUED])
        ):
            instance.report_run_failed(run, "the house was stopped during this run")
            count += 1
    return count
