"""One month's report: counted from the tables, judged, kept, and returned; and the gate's decision with its evidence."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from atlas_pipeline.calibration import tables
from atlas_pipeline.calibration.checks import DESCRIPTIONS as CHECKS
from atlas_pipeline.calibration.checks import checks
from atlas_pipeline.calibration.gate import GATE_JOBS, GATE_RATE
from atlas_pipeline.calibration.metrics import ORDERS, Counts, Metrics, compute
from atlas_pipeline.calibration.months import before, bounds
from atlas_pipeline.calibration.pictures import pictures
from atlas_pipeline.calibration.report import render
from atlas_pipeline.calibration.words import WORDS
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.store import figures, phases
from atlas_pipeline.store.database import Connection

# What the asset shows beside the numbers: the orchestration knows the flow alone.
__all__ = ["CHECKS", "calibrate", "checks", "count", "pictures", "verdict"]

TRAILING_MONTHS = 3
_AUDITED = ["intake_failed", "blocked_unsafe", *ORDERS]


def calibrate(parts: Parts, month: str) -> tuple[Metrics, str]:
    """Compute and store the report of ``YYYY-MM``; the metrics and the rendered text. Raises Refused("month_malformed").

    All is read as of one moment, one report of the month after the other. The gate's decision is written where its evidence is new;
    a phase whose gate is lost is left.
    """
    start, end = bounds(month, parts.settings.time_zone)
    earlier, _start = bounds(before(month, TRAILING_MONTHS), parts.settings.time_zone)
    with figures.alone(parts.database_url, month):
        with parts.db.transaction() as conn:
            figures.as_of_one_moment(conn)
            metrics = compute(month, count(conn, earlier, start, end))
        rendered = render(metrics, parts.settings.language)
        with parts.db.transaction() as conn:
            figures.store_report(conn, month, metrics.as_json(), rendered)
            # A month that has not begun proves nothing, and its decision would hide those of the months until then.
            if start <= datetime.now(UTC):
                evidence = {
                    **asdict(metrics.gate),
                    "more_than": GATE_RATE,
                    "at_least": GATE_JOBS,
                    "before": end.isoformat(),
                }
                phases.decide(conn, month, earned=metrics.gate.earned, evidence=evidence)
    return metrics, rendered


def verdict(metrics: Metrics, language: str) -> str:
    """The gate in one line, in ``fr`` or ``en``."""
    return tables.verdict(metrics.gate, WORDS[language])


def count(conn: Connection, earlier: datetime, start: datetime, end: datetime) -> Counts:
    """Everything that the report of the span counts; drift looks back to ``earlier``."""
    source = figures.of_month(start, end)
    ended = figures.attempts(conn, start, end)
    return Counts(
        messages=figures.messages(conn, source),
        volumes=figures.volumes(conn, source),
        drafts=figures.drafts(conn, start, end),
        guards=figures.guards(conn, source),
        overridden=figures.overridden(conn, source),
        audits=figures.audit_counts(conn, start, end, _AUDITED),
        outcomes=figures.outcomes(conn, source, start, end),
        confusion=figures.confusion(conn, source, start, end),
        internal=figures.internal_jobs(conn, end),
        mixes=figures.mixes(conn, earlier, start, end),
        calls=figures.calls(conn, start, end),
        spawns=figures.spawns(conn, start, end),
        attempts=[row for row in ended if row["attempt"] is not None],
        escalated=sum(row["n"] for row in ended if row["attempt"] is None),
        recaps=figures.recaps(conn, start, end),
    )
