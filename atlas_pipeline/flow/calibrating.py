"""One month's report: counted from the tables, kept, and returned."""

from __future__ import annotations

from atlas_pipeline.calibration.metrics import Metrics, compute
from atlas_pipeline.calibration.months import bounds
from atlas_pipeline.calibration.report import render
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.store import figures


def calibrate(parts: Parts, month: str) -> tuple[Metrics, str]:
    """Compute and store the report of ``YYYY-MM``; the metrics and the rendered text. Raises Refused("month_malformed")."""
    start, end = bounds(month, parts.settings.time_zone)
    with parts.db.transaction() as conn:
        metrics = compute(
            month,
            volumes=figures.volume_by_intent(conn, start, end),
            drafts=figures.drafts_by_kind(conn, start, end),
            audits=figures.audit_counts(conn, start, end),
            internal=figures.internal_jobs(conn, end),
        )
        rendered = render(metrics, parts.settings.language)
        figures.store_report(conn, month, metrics.as_json(), rendered)
    return metrics, rendered
