"""The action half: an agent, its release, its recap. One run a message and attempt, in one process."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from atlas_pipeline.flow import recapping, releasing, spawning
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import Outcome, StageDone, StageFailed
from atlas_pipeline.orchestration.boundary import bounded_parts
from atlas_pipeline.orchestration.partitions import message_attempts

_SILENT = (Outcome.REFUSED, Outcome.WAITING)
Events = Iterator[dg.MaterializeResult[None]]


def _place(context: dg.AssetExecutionContext) -> tuple[str, int]:
    key = context.partition_key
    if not isinstance(key, dg.MultiPartitionKey):
        raise dg.Failure("partition_not_multi", allow_retries=False)
    return key.keys_by_dimension["message"], int(key.keys_by_dimension["attempt"])


def _event(report: StageDone | StageFailed, **metadata: dg.MetadataValue) -> Events:
    """A refusal ends well and materialises nothing: a backfill of "missing" must not look like work done."""
    if isinstance(report, StageFailed):
        raise dg.Failure(report.code, allow_retries=False)
    if report.outcome not in _SILENT:
        yield dg.MaterializeResult(
            asset_key=report.stage, metadata={"outcome": report.outcome.value, **report.facts, **metadata}
        )


def _spec(name: str, description: str, deps: list[dg.AssetDep | str]) -> dg.AssetSpec:
    return dg.AssetSpec(name, description=description, deps=deps, group_name="action", skippable=True)


_of_message = dg.AssetDep("classification", partition_mapping=dg.MultiToSingleDimensionPartitionMapping("message"))


@dg.multi_asset(
    specs=[
        _spec(
            "spawn_result",
            "One agent for one message: started once, watched live, believed as far as it proves.",
            [_of_message],
        )
    ],
    partitions_def=message_attempts,
    name="spawn_result",
)
def spawn_result(context: dg.AssetExecutionContext) -> Events:
    """Start the agent where the tables ask for one."""
    key, attempt = _place(context)

    def was_cancelled() -> bool:
        run = context.instance.get_run_by_id(context.run.run_id)
        return run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED)

    with bounded_parts() as parts:
        report = spawning.spawn(parts, key, attempt, run_id=context.run.run_id, was_cancelled=was_cancelled)
    yield from _event(report)


@dg.multi_asset(
    specs=[_spec("qa_report", "The deployed site over HTTP and in Chromium.", ["spawn_result"])],
    partitions_def=message_attempts,
    name="qa_report",
)
def qa_report(context: dg.AssetExecutionContext) -> Events:
    """Deploy and check as far as the decision asks."""
    key, attempt = _place(context)
    with bounded_parts() as parts:
        report = releasing.release(parts, key, attempt)
        pictures = _pictures(parts, key, attempt)
    yield from _event(report, **pictures)


@dg.multi_asset(
    specs=[_spec("recap", "The team is told; the message is actioned or escalated.", ["qa_report"])],
    partitions_def=message_attempts,
    name="recap",
)
def recap(context: dg.AssetExecutionContext) -> Events:
    """Write the last decision with its recap, and send what is due."""
    key, attempt = _place(context)
    with bounded_parts() as parts:
        report = recapping.recap(parts, key, attempt)
    yield from _event(report)


def _pictures(parts: Parts, key: str, attempt: int) -> dict[str, dg.MetadataValue]:
    """Where the screenshots of this attempt lie, by file name, the newest round's; and those of the site before it."""
    folder = parts.settings.home_dir / "screenshots" / key
    found: list[Path] = sorted(folder.glob(f"*-{attempt}/*.png"))
    before = {f"before_{path.stem}": path for path in sorted(folder.glob("before/*.png"))}
    named = before | {f"screenshot_{path.stem}": path for path in found}
    return {name.replace("-", "_"): dg.MetadataValue.path(str(path)) for name, path in named.items()}
