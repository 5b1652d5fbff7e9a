"""The month's report as one HTML page that needs nothing else: its style and its pictures are inside, and no script."""

from __future__ import annotations

from html import escape

from atlas_pipeline.calibration.metrics import Metrics
from atlas_pipeline.calibration.pictures import pictures
from atlas_pipeline.calibration.tables import Table, tables, verdict
from atlas_pipeline.calibration.words import WORDS
from atlas_pipeline.text import visible

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;color:#27272a;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem}table{border-collapse:collapse;width:100%;font-size:.9rem}"
    "th,td{padding:.3rem .6rem;border-bottom:1px solid #e4e4e7;text-align:right;font-variant-numeric:tabular-nums}"
    "th:first-child,td:first-child{text-align:left}.verdict{padding:.8rem 1rem;border-left:4px solid #c2410c;background:#fafaf9}"
    ".earned{border-color:#047857}figure{margin:1rem 0;overflow-x:auto}"
)


def page(metrics: Metrics, language: str) -> str:
    """The whole report, in ``fr`` or ``en``."""
    words = WORDS[language]
    title = escape(f"{words['title']} {metrics.month}")
    earned = " earned" if metrics.gate.earned else ""
    parts = [
        f'<!doctype html>\n<html lang="{language}">\n<head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{title}</h1>",
        f'<p class="verdict{earned}">{escape(verdict(metrics.gate, words))}</p>',
        *(f"<figure>{picture.svg}</figure>" for picture in pictures(metrics, language)),
        *(_table(table, words["nothing"]) for table in tables(metrics, words)),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _table(table: Table, nothing: str) -> str:
    heading = f"<h2>{escape(table.title)}</h2>"
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    if not table.rows:
        return f"{heading}\n<p>{escape(nothing)}</p>\n{note}"
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{escape(visible(cell))}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"{heading}\n<table><thead><tr>{heads}</tr></thead>\n<tbody>{rows}</tbody></table>\n{note}"
