"""The month's report as Markdown, for the CLI and for the asset's metadata. Numbers and labels only."""

from __future__ import annotations

from collections.abc import Iterator

from atlas_pipeline.calibration.metrics import Metrics
from atlas_pipeline.calibration.tables import Table, tables, verdict
from atlas_pipeline.calibration.words import WORDS


def render(metrics: Metrics, language: str) -> str:
    """The report as Markdown, in ``fr`` or ``en``. The gate comes first: it is what the report is for."""
    words = WORDS[language]
    lines = [f"# {words['title']} {metrics.month}", "", f"**{verdict(metrics.gate, words)}**", ""]
    for table in tables(metrics, words):
        lines += [*_table(table, words["nothing"]), ""]
    return "\n".join(lines)


def markdown(table: Table, nothing: str) -> str:
    """One table; ``nothing`` is what is said of one without rows."""
    return "\n".join(_table(table, nothing))


def _table(table: Table, nothing: str) -> Iterator[str]:
    yield from (f"## {table.title}", "")
    if not table.rows:
        yield nothing
    else:
        yield f"| {' | '.join(table.heads)} |"
        yield f"|---|{'---:|' * (len(table.heads) - 1)}"
        for row in table.rows:
            yield f"| {' | '.join(cell.replace('|', '/') for cell in row)} |"
    if table.note:
        yield from ("", table.note)
