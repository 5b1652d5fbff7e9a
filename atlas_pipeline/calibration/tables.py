"""The report as tables: what is said where, for Markdown, for HTML and for the Dagster UI alike. No number is computed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atlas_pipeline.calibration.drift import Shift
from atlas_pipeline.calibration.gate import GATE_JOBS, GATE_RATE, Gate
from atlas_pipeline.calibration.metrics import Counted, Group, Metrics
from atlas_pipeline.calibration.rates import Rate

Words = Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A title, the columns' heads, and rows of text; the first column is a name, the others are numbers. ``note`` stands below."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def tables(metrics: Metrics, words: Words) -> list[Table]:
    """All tables, in the report's order. One without rows is there too: that nothing happened is news."""
    return [
        _summary(metrics, words),
        _groups("intents", "intent", metrics.intents, words, judged=False),
        _groups("tenants", "tenant", metrics.tenants, words, judged=False),
        _groups("models", "model", metrics.models, words, judged=True),
        _counted("prompts", "prompt", metrics.prompts, words),
        _reliability(metrics, words),
        Table(
            words["confusion"],
            (words["source"], words["said"], words["meant"], words["count"]),
            tuple((words[row.source], row.said, row.meant, str(row.count)) for row in metrics.confusion),
        ),
        _counted("guards", "guard", metrics.guards, words),
        Table(
            words["overrides"],
            (words["said"], words["became"], words["count"]),
            tuple((row.said, row.became, str(row.count)) for row in metrics.overrides),
        ),
        Table(
            words["orders"],
            (words["order"], words["count"]),
            tuple((name, str(count)) for name, count in metrics.orders),
        ),
        _drift(metrics, words),
        _calls(metrics, words),
        _spawns(metrics, words),
        _attempts(metrics, words),
        Table(
            words["recaps"],
            (words["sent"], words["median"], words["p95"]),
            (
                (
                    str(metrics.recaps.sent),
                    duration(metrics.recaps.median_seconds),
                    duration(metrics.recaps.p95_seconds),
                ),
            ),
        ),
        _gate(metrics.gate, words),
    ]


def verdict(gate: Gate, words: Words) -> str:
    """The gate in one line."""
    return (
        f"{words['gate']}: {words['earned'] if gate.earned else words['not_yet']} — {gate.jobs} {words['jobs']} "
        f"{with_interval(gate.success)}; {words['needed']} {GATE_RATE:.0%} {words['over']} {GATE_JOBS}."
    )


def percent(value: float | None) -> str:
    """A share, or a dash where there is none."""
    return "–" if value is None else f"{value:.1%}"


def with_interval(rate: Rate) -> str:
    """A rate and Wilson's interval."""
    return "–" if rate.value is None else f"{percent(rate.value)} [{percent(rate.low)} – {percent(rate.high)}]"


def number(value: float | None) -> str:
    """Two places, or a dash."""
    return "–" if value is None else f"{value:.2f}"


def money(amount: float, sign: str) -> str:
    """An amount in its currency: two places, and four where two would show nothing of it."""
    return f"{amount:.{4 if 0 < amount < 0.1 else 2}f} {sign}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them: ``1.2 s``, ``3 min 5 s``, ``2 h 7 min``."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def _summary(metrics: Metrics, words: Words) -> Table:
    rates: Sequence[tuple[str, str]] = [
        ("classifications", str(metrics.classifications)),
        ("messages", str(metrics.messages)),
        ("uncertain", f"{metrics.uncertain.part}, {with_interval(metrics.uncertain)}"),
        ("failed", str(metrics.failed)),
        ("blocked", str(metrics.blocked)),
        ("errors", with_interval(metrics.errors)),
        ("success", f"{metrics.success.part}/{metrics.success.whole}, {with_interval(metrics.success)}"),
        ("overridden", f"{metrics.overridden.part}, {with_interval(metrics.overridden)}"),
    ]
    return Table(
        words["summary"], (words["measure"], words["value"]), tuple((words[name], text) for name, text in rates)
    )


def _groups(title: str, head: str, groups: Sequence[Group], words: Words, *, judged: bool) -> Table:
    common = (words[head], words["volume"], words["confidence"], words["deviation"], words["uncertain"])
    last = (words["judged"], words["right"]) if judged else (words["drafts"], words["cancelled"], words["success"])
    rows = []
    for one in groups:
        end = (
            (str(one.right.whole), with_interval(one.right))
            if judged
            else (str(one.drafts), str(one.cancelled), with_interval(one.success))
        )
        rows.append(
            (
                one.name or words["no_tenant"],
                str(one.volume),
                number(one.mean_confidence),
                number(one.deviation),
                with_interval(one.uncertain),
                *end,
            )
        )
    return Table(words[title], (*common, *last), tuple(rows))


def _counted(title: str, head: str, counted: Sequence[Counted], words: Words) -> Table:
    rows = tuple((one.name, str(one.rate.part), with_interval(one.rate)) for one in counted)
    return Table(words[title], (words[head], words["count"], words["share"]), rows)


def _reliability(metrics: Metrics, words: Words) -> Table:
    found = metrics.reliability
    return Table(
        words["reliability"],
        (words["stated"], words["judged"], words["confidence"], words["right"]),
        tuple(
            (
                f"{one.low:.1f} – {one.high:.1f}",
                str(one.right.whole),
                number(one.mean_confidence),
                with_interval(one.right),
            )
            for one in found.bins
            if one.right.whole
        ),
        f"{found.right.whole} {words['judged']}, {words['right']} {with_interval(found.right)}; "
        f"{words['calibration_error']} {places(found.error)}; {words['brier']} {places(found.brier)}",
    )


def places(value: float | None) -> str:
    """Three places, or a dash."""
    return "–" if value is None else f"{value:.3f}"


def _drift(metrics: Metrics, words: Words) -> Table:
    found = metrics.drift

    def row(name: str, shift: Shift) -> tuple[str, ...]:
        cases = f"{shift.cases} / {shift.cases_before}"
        return (words[name], cases, places(shift.index), places(shift.chance), words[shift.level])

    changes = [
        f"{words[what]}: {', '.join(names)}"
        for what, names in (
            ("new", (*found.new_models, *found.new_prompts)),
            ("gone", (*found.gone_models, *found.gone_prompts)),
        )
        if names
    ]
    return Table(
        words["drift"],
        (words["distribution"], words["count"], words["index"], words["chance"], words["level"]),
        (row("intents_mix", found.intents), row("confidence_mix", found.confidence)),
        "; ".join([words["explained" if found.explained else "unexplained"], *changes]),
    )


def _calls(metrics: Metrics, words: Words) -> Table:
    heads = ("task", "model", "number_of_calls", "failures", "tokens_in", "tokens_out", "euros", "median", "p95")
    return Table(
        words["calls"],
        tuple(words[head] for head in heads),
        tuple(
            (
                row.task,
                row.model,
                str(row.calls),
                with_interval(row.failed),
                str(row.tokens_in),
                str(row.tokens_out),
                f"{row.euros:.4f}",
                _of_milliseconds(row.median_ms),
                _of_milliseconds(row.p95_ms),
            )
            for row in metrics.calls
        ),
    )


def _of_milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def _spawns(metrics: Metrics, words: Words) -> Table:
    found = metrics.spawns
    heads = ("started", "ok", "dollars", "tokens_in", "tokens_out", "tokens_cache_read", "median", "p95")
    return Table(
        words["spawns"],
        tuple(words[head] for head in heads),
        (
            (
                str(found.started),
                with_interval(found.ok),
                f"{found.cost_usd:.2f}",
                str(found.tokens_in),
                str(found.tokens_out),
                str(found.tokens_cache_read),
                duration(found.median_seconds),
                duration(found.p95_seconds),
            ),
        ),
    )


def _attempts(metrics: Metrics, words: Words) -> Table:
    found = metrics.attempts
    rows = [(str(attempt), str(count)) for attempt, count in found.by_attempt]
    return Table(
        words["attempts"],
        (words["attempt"], words["count"]),
        (*rows, (words["human"], str(found.escalated))),
        f"{words['success']} {with_interval(found.success)}; {words['first_time']} {with_interval(found.first_time)}",
    )


def _gate(gate: Gate, words: Words) -> Table:
    heads = ("tenant", "internal", "kept", "undecided")
    rows = tuple((one.tenant, str(one.jobs), str(one.kept), str(one.undecided)) for one in gate.tenants)
    return Table(words["gate"], tuple(words[head] for head in heads), rows, verdict(gate, words))
