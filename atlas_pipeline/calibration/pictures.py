"""The report's pictures as SVG, written by hand: no plotting library is needed where the report is made, and the bytes are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import log10

from atlas_pipeline.calibration.gate import GATE_RATE
from atlas_pipeline.calibration.metrics import Metrics
from atlas_pipeline.calibration.rates import Rate
from atlas_pipeline.calibration.tables import Words, duration, money, percent
from atlas_pipeline.calibration.words import WORDS
from atlas_pipeline.text import visible

_WIDTH, _ROW, _LEFT, _TOP, _RIGHT = 700, 26, 270, 40, 90
# So many characters fit to the left of a bar: a task and the whole name of a model.
_NAME = 44
_SQUARE = 300
# A name, the length of its bar, and what is written at its end.
Bar = tuple[str, float, str]
_INK, _SOFT, _BAR, _GOOD, _LINE = "#27272a", "#d4d4d8", "#1d4ed8", "#047857", "#c2410c"


@dataclass(frozen=True)
class Picture:
    """One picture by its name; a notebook shows it as it is."""

    name: str
    title: str
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


def pictures(metrics: Metrics, language: str) -> list[Picture]:
    """Volume, reliability, success with the gate's line, guards, cost and durations, in ``fr`` or ``en``."""
    words = WORDS[language]
    made: Sequence[tuple[str, str, Callable[[Metrics, Words, str], str]]] = (
        ("volume", words["volume"], _volume),
        ("reliability", words["reliability"], _reliability),
        ("success", words["success"], _success),
        ("guards", words["guards"], _guards),
        ("cost", words["cost"], _cost),
        ("latency", words["latency"], _latency),
    )
    return [
        Picture(name, title, draw(metrics, words, f"{title[:1].upper()}{title[1:]}, {metrics.month}"))
        for name, title, draw in made
    ]


def _volume(metrics: Metrics, words: Words, title: str) -> str:
    rows = [(one.name, float(one.volume), f"{one.volume}") for one in metrics.intents]
    return _bars(title, rows, words)


def _guards(metrics: Metrics, words: Words, title: str) -> str:
    rows = [(one.name, float(one.rate.part), f"{one.rate.part} ({percent(one.rate.value)})") for one in metrics.guards]
    return _bars(title, rows, words)


def _cost(metrics: Metrics, words: Words, title: str) -> str:
    """Two panels, each on a scale of its own: models are billed in euros, agents say dollars. Lengths of the two are not comparable."""
    calls = [(f"{row.task}, {row.model}", row.euros, money(row.euros, "€")) for row in metrics.calls]
    agents = [(words["spawns"], metrics.spawns.cost_usd, money(metrics.spawns.cost_usd, "$"))]
    shapes, top = [], _TOP
    for name, rows in (("calls_in_euros", calls), ("agents_in_dollars", agents if metrics.spawns.started else [])):
        shapes.append(_text(8, top + 12, words[name], "start", weight="bold"))
        shapes += [*_bar_shapes(rows, top + 20), *_nothing(rows, words, top + 20)]
        top += 34 + _ROW * max(len(rows), 1)
    return _svg(title, top, shapes)


def _latency(metrics: Metrics, words: Words, title: str) -> str:
    """Medians as bars, 95th percentiles as marks, on one logarithmic axis: from milliseconds to hours."""
    seconds = [
        (f"{words['classify']}, {row.model}", row.median_ms / 1000, row.p95_ms / 1000)
        for row in metrics.calls
        if row.task == "classification" and row.median_ms is not None and row.p95_ms is not None
    ]
    for name, median, p95 in (
        (words["spawns"], metrics.spawns.median_seconds, metrics.spawns.p95_seconds),
        (words["recaps"], metrics.recaps.median_seconds, metrics.recaps.p95_seconds),
    ):
        if median is not None and p95 is not None:
            seconds.append((name, median, p95))
    shapes = []
    for place, (name, median, p95) in enumerate(seconds):
        y = _TOP + _ROW * place
        x, end = _on_log(median), _on_log(p95)
        shapes += [
            _name(name, y),
            f'<rect x="{_LEFT}" y="{y + 5}" width="{x - _LEFT:.1f}" height="{_ROW - 10}" fill="{_BAR}" fill-opacity="0.8"/>',
            f'<line x1="{x:.1f}" x2="{end:.1f}" y1="{y + 13}" y2="{y + 13}" stroke="{_INK}"/>',
            f'<line x1="{end:.1f}" x2="{end:.1f}" y1="{y + 7}" y2="{y + 19}" stroke="{_INK}" stroke-width="2"/>',
            _text(_WIDTH - 4, y + 17, f"{duration(median)} / {duration(p95)}", "end"),
        ]
    return _frame(title, len(seconds), [*shapes, *_nothing(seconds, words)])


def _on_log(seconds: float) -> float:
    """From 10 ms at the left to a day at the right."""
    share = (log10(min(max(seconds, 0.01), 86_400)) + 2) / (log10(86_400) + 2)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT - 60)


def _success(metrics: Metrics, words: Words, title: str) -> str:
    """Rates with Wilson's intervals; the dashed line is the gate's."""
    rows: list[tuple[str, Rate]] = [(one.name, one.success) for one in metrics.intents if one.success.whole]
    rows.append((words["internal"], metrics.gate.success))
    rows = [row for row in rows if row[1].value is not None]
    width = _WIDTH - _LEFT - _RIGHT
    gate = _LEFT + GATE_RATE * width
    shapes = []
    for place, (name, found) in enumerate(rows):
        y = _TOP + _ROW * place + _ROW / 2
        low, value, high = (_LEFT + (share or 0.0) * width for share in (found.low, found.value, found.high))
        shapes += [
            _name(name, y - 13),
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{_BAR}" stroke-width="3"/>',
            f'<circle cx="{value:.1f}" cy="{y}" r="5" fill="{_GOOD if (found.value or 0) > GATE_RATE else _LINE}"/>',
            _text(_WIDTH - 4, y + 4, f"{percent(found.value)} ({found.whole})", "end"),
        ]
    bottom = _TOP + _ROW * max(len(rows), 1)
    shapes += [
        f'<line x1="{gate:.1f}" x2="{gate:.1f}" y1="{_TOP - 6}" y2="{bottom}" stroke="{_LINE}" stroke-dasharray="5 4"/>',
        _text(gate, _TOP - 9, f"{words['line_of_gate']} {GATE_RATE:.0%}", "middle", _LINE),
    ]
    return _frame(title, len(rows), [*shapes, *_nothing(rows, words)])


def _reliability(metrics: Metrics, words: Words, title: str) -> str:
    """Stated confidence to the right, the share that was right upwards; on the diagonal both are the same."""
    left, top = 60, _TOP + 14
    shapes = [
        f'<rect x="{left}" y="{top}" width="{_SQUARE}" height="{_SQUARE}" fill="none" stroke="{_SOFT}"/>',
        f'<line x1="{left}" y1="{top + _SQUARE}" x2="{left + _SQUARE}" y2="{top}" stroke="{_LINE}" stroke-dasharray="5 4"/>',
        _text(left + _SQUARE / 2, top + _SQUARE + 34, words["stated"], "middle"),
        _text(left + 6, top - 6, words["right"], "start"),
    ]
    for tenth in range(0, 11, 2):
        x, y = left + tenth / 10 * _SQUARE, top + (1 - tenth / 10) * _SQUARE
        shapes += [
            _text(x, top + _SQUARE + 16, f"{tenth / 10:.1f}", "middle"),
            _text(left - 6, y + 4, f"{tenth / 10:.1f}", "end"),
        ]
    for one in metrics.reliability.bins:
        if one.mean_confidence is None or one.right.value is None:
            continue
        x = left + one.mean_confidence * _SQUARE
        low, value, high = (
            top + (1 - (share or 0.0)) * _SQUARE for share in (one.right.low, one.right.value, one.right.high)
        )
        shapes += [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{_BAR}" stroke-width="2"/>',
            f'<circle cx="{x:.1f}" cy="{value:.1f}" r="5" fill="{_BAR}"/>',
            _text(x, _beside_dot(low, value, high, top + _SQUARE), str(one.right.whole), "middle"),
        ]
    found = metrics.reliability
    beside = [
        f"{found.right.whole} {words['judged']}",
        *(
            [f"ECE {found.error:.3f}", f"Brier {found.brier:.3f}"]
            if found.error is not None and found.brier is not None
            else []
        ),
    ]
    shapes += [_text(left + _SQUARE + 24, top + 20 + 20 * place, line, "start") for place, line in enumerate(beside)]
    return _svg(title, top + _SQUARE + 46, shapes)


def _beside_dot(low: float, value: float, high: float, bottom: float) -> float:
    """Where a dot's number stands: below its interval, since the next dot is a tenth to the right; above where the square ends."""
    below = max(low, value + 5) + 13
    return below if below < bottom else min(high, value - 5) - 4


def _bars(title: str, rows: Sequence[Bar], words: Words) -> str:
    return _frame(title, len(rows), [*_bar_shapes(rows, _TOP), *_nothing(rows, words)])


def _bar_shapes(rows: Sequence[Bar], top: float) -> list[str]:
    most = max([value for _name_, value, _label in rows], default=0.0) or 1.0
    shapes = []
    for place, (name, value, label) in enumerate(rows):
        y = top + _ROW * place
        width = value / most * (_WIDTH - _LEFT - _RIGHT)
        shapes += [
            _name(name, y),
            f'<rect x="{_LEFT}" y="{y + 5}" width="{width:.1f}" height="{_ROW - 10}" fill="{_BAR}" fill-opacity="0.8"/>',
            _text(_LEFT + width + 6, y + 17, label, "start"),
        ]
    return shapes


def _nothing(rows: Sequence[object], words: Words, top: float = _TOP) -> list[str]:
    return [] if rows else [_text(_LEFT, top + 17, words["nothing"], "start")]


def _name(text: str, y: float) -> str:
    short = text if len(text) <= _NAME else f"{text[: _NAME - 1]}…"
    return _text(_LEFT - 8, y + 17, short, "end")


def _text(x: float, y: float, text: str, anchor: str, colour: str = _INK, weight: str = "normal") -> str:
    style = f'text-anchor="{anchor}" fill="{colour}" font-weight="{weight}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(visible(text))}</text>'


def _frame(title: str, rows: int, shapes: Sequence[str]) -> str:
    return _svg(title, _TOP + _ROW * max(rows, 1) + 14, shapes)


def _svg(title: str, height: float, shapes: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" height="{height:.0f}" '
        f'font-family="sans-serif" font-size="12" role="img" aria-label="{escape(title)}">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#ffffff"/>'
    heading = f'<text x="8" y="18" font-size="14" font-weight="bold" fill="{_INK}">{escape(title)}</text>'
    return "\n".join([head, ground, heading, *shapes, "</svg>"])
