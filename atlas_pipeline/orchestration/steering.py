"""Assets that steer: the monthly report, the agents' registry, their scars, the mailbox's pulse."""

import base64
from collections.abc import Iterator

import dagster as dg

from atlas_pipeline.flow import calibrating, pulse, teaching
from atlas_pipeline.orchestration.boundary import bounded_parts
from atlas_pipeline.orchestration.partitions import months
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import registry

GROUP = "steering"


def calibration_report(settings: Settings) -> dg.AssetsDefinition:
    """The report's asset; its months lie in the settings' zone. It reads the tables by month, not the partitions.

    Its checks are concluded from the same numbers, in the same step: they warn, and hold nothing up.
    """

    @dg.asset(
        name="calibration_report",
        partitions_def=months(settings),
        group_name=GROUP,
        deps=[dg.AssetDep(name, partition_mapping=dg.AllPartitionMapping()) for name in ("classification", "recap")],
        description="How well the classifier did this month, and whether it has earned the next phase.",
        check_specs=[
            dg.AssetCheckSpec(name, asset="calibration_report", description=text, blocking=False)
            for name, text in calibrating.CHECKS.items()
        ],
    )
    def report(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        with bounded_parts() as parts:
            metrics, rendered = calibrating.calibrate(parts, context.partition_key)
            language = parts.settings.language
            drawn = calibrating.pictures(metrics, language)
        yield dg.MaterializeResult(
            metadata={
                # The decision first, in a line that is read without a click; numbers; then what opens when asked for.
                "gate": calibrating.verdict(metrics, language),
                "classifications": metrics.classifications,
                "uncertain": metrics.uncertain.part,
                "failed": metrics.failed,
                "blocked": metrics.blocked,
                "internal_jobs": metrics.gate.jobs,
                "gate_earned": metrics.gate.earned,
                "report": dg.MetadataValue.md(rendered),
                **{picture.name: _picture(picture.name, picture.svg) for picture in drawn},
            },
            check_results=[
                dg.AssetCheckResult(
                    passed=check.passed,
                    check_name=check.name,
                    severity=dg.AssetCheckSeverity.WARN,
                    metadata=dict(check.facts),
                )
                for check in calibrating.checks(metrics)
            ],
        )

    return report


def _picture(name: str, svg: str) -> dg.MarkdownMetadataValue:
    """An SVG as the UI shows it: inside Markdown, as a data URI."""
    encoded = base64.b64encode(svg.encode()).decode()
    return dg.MetadataValue.md(f"![{name}](data:image/svg+xml;base64,{encoded})")


@dg.asset(group_name=GROUP, description="The agents: loaded from their file, shown by ring and family.")
def agent_registry() -> dg.MaterializeResult[None]:
    """Load the registry (idempotent)."""
    with bounded_parts() as parts:
        changed, rows = teaching.load_agents(parts)
        reactor = teaching.reactor(parts)
    table = [
        "| ring | family | agents |",
        "|---|---|---|",
        *(f"| {row['orbite']} | {row['group_name']} | {row['agents']} |" for row in rows),
    ]
    return dg.MaterializeResult(
        metadata={
            "changed": changed,
            "agents": sum(row["agents"] for row in rows),
            "ring_differs_from_family": len(reactor.differing),
            "ring_differs": dg.MetadataValue.text(", ".join(reactor.differing)),
            "reactor": _picture("reactor", reactor.svg),
            "rings": dg.MetadataValue.md("\n".join(table)),
        }
    )


@dg.asset(group_name=GROUP, deps=[agent_registry], description="Vectors of the agents' scars, of the current model.")
def scar_index() -> dg.MaterializeResult[None]:
    """Embed what is not embedded yet."""
    with bounded_parts() as parts:
        count, model = teaching.index_scars(parts)
        with parts.db.transaction() as conn:
            total = registry.scar_count(conn)
    return dg.MaterializeResult(metadata={"embedded": count, "scars": total, "model": model})


@dg.asset(group_name=GROUP, description="Whether the mailbox is read; tells the team of its silence, and of its end.")
def mailbox_heartbeat() -> dg.MaterializeResult[None]:
    """Take the mailbox's pulse."""
    with bounded_parts() as parts:
        found = pulse.tell(parts)
    return dg.MaterializeResult(
        metadata={
            "told": found.told or "nothing",
            "silent_seconds": round(found.silent_seconds, 1),
            "failures": found.failures,
            "code": found.code or "",
        }
    )
