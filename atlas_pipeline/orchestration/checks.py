"""What must hold of the inbox. A warning in the UI, never a gate: the gates stand in the domain."""

import dagster as dg

from atlas_pipeline.orchestration.boundary import bounded_parts
from atlas_pipeline.store import overview


@dg.asset_check(
    asset="classification", description="No message is stuck: received for an hour, failed, or sent into the unknown."
)
def inbox_health() -> dg.AssetCheckResult:
    """Count what a human should look at."""
    with bounded_parts() as parts, parts.db.transaction() as conn:
        facts = overview.health(conn)
    return dg.AssetCheckResult(
        passed=not any(facts.values()), severity=dg.AssetCheckSeverity.WARN, metadata=dict(facts)
    )
