"""The four inbox assets as one step: a range of messages at once, each with its own materialisation a stage."""

from collections.abc import Iterator

import dagster as dg

from atlas_pipeline.flow import intake as flow
from atlas_pipeline.flow.stage import INBOX_STAGES, StageFailed
from atlas_pipeline.orchestration.boundary import bounded_parts
from atlas_pipeline.orchestration.partitions import messages

_DESCRIPTIONS = {
    "raw_message": "The bytes received, and what was understood of them.",
    "scan_verdict": "What clamd says of the raw mail and of every part; only clean opens the door.",
    "ocr_text": "Text of pictures, in memory only: what is shown here are counts.",
    "classification": "Intent, confidence and guards; the work record is created with it.",
}
_DEPS = {
    "raw_message": [],
    "scan_verdict": ["raw_message"],
    "ocr_text": ["scan_verdict"],
    "classification": ["scan_verdict", "ocr_text"],
}


class IntakeConfig(dg.Config):
    """``redo`` puts finished messages of the range back to received first (an operator's order; refused once a spawn started)."""

    redo: bool = False


@dg.multi_asset(
    name="intake",
    specs=[
        dg.AssetSpec(
            stage,
            deps=_DEPS[stage],
            description=_DESCRIPTIONS[stage],
            group_name="inbox",
            skippable=True,
            kinds={"postgres"},
        )
        for stage in INBOX_STAGES
    ],
    partitions_def=messages,
    can_subset=False,
    backfill_policy=dg.BackfillPolicy.single_run(),
)
def intake(context: dg.AssetExecutionContext, config: IntakeConfig) -> Iterator[dg.AssetMaterialization]:
    """Run the range; failed messages are named by the final Failure, so that the UI shows exactly those as failed."""
    failed: list[list[str]] = []
    keys = list(context.partition_keys)
    with bounded_parts() as parts:
        for report in flow.run(parts, keys, run_id=context.run.run_id, redo=config.redo):
            if isinstance(report, StageFailed):
                failed.append([report.key, report.stage, report.code])
            else:
                yield dg.AssetMaterialization(
                    report.stage, partition=report.key, metadata={"outcome": report.outcome.value, **report.facts}
                )
    if failed:
        raise dg.Failure(
            f"{len(failed)} of {len(keys)} messages did not finish", metadata={"failed": failed}, allow_retries=False
        )
