"""The month's report as Markdown, for the CLI and for the asset's metadata. Numbers and labels only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from atlas_pipeline.calibration.metrics import Metrics
from atlas_pipeline.calibration.tables import Table, tables, verdict
from atlas_pipeline.calibration.words import WORDS
from atlas_pipeline.text import visible

_MARKUP = re.compile(r"[<>&]|\]\s*[(\[:]")


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
            yield f"| {' | '.join(map(_cell, row))} |"
    if table.note:
        yield from ("", table.note)


def _cell(text: str) -> str:
    """A cell as text: the name of a model is its provider's, and neither ends the table nor becomes a link or a tag in the UI."""
    plain = visible(text).replace("|", "/").replace("`", "'")
    return escape(plain, quote=False).replace("[", "\\[") if _MARKUP.search(plain) else plain
