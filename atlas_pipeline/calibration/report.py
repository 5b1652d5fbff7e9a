"""The month's report as Markdown, for the CLI and for the asset's metadata. Numbers and labels only."""

from __future__ import annotations

from atlas_pipeline.calibration.metrics import GATE_JOBS, GATE_RATE, Gate, Metrics

_WORDS = {
    "fr": {
        "title": "Calibration du classifieur",
        "head": "| intention | volume | confiance moyenne | écart-type | brouillons | annulés | succès |",
        "total": "classifications",
        "uncertain": "incertaines",
        "failed": "échecs",
        "blocked": "bloquées",
        "gate": "Passage en phase 3",
        "earned": "mérité, à confirmer par un humain",
        "not_yet": "pas encore",
        "jobs": "chantiers internes, succès",
        "needed": "il faut plus de",
        "over": "sur au moins",
    },
    "en": {
        "title": "Classifier calibration",
        "head": "| intent | volume | mean confidence | deviation | drafts | cancelled | success |",
        "total": "classifications",
        "uncertain": "uncertain",
        "failed": "failed",
        "blocked": "blocked",
        "gate": "Promotion to phase 3",
        "earned": "earned, to be confirmed by a human",
        "not_yet": "not yet",
        "jobs": "internal jobs, success",
        "needed": "needs more than",
        "over": "over at least",
    },
}


def render(metrics: Metrics, language: str) -> str:
    """The report as Markdown, in ``fr`` or ``en``."""
    words = _WORDS[language]
    lines = [
        f"# {words['title']} {metrics.month}",
        "",
        f"{metrics.classifications} {words['total']}, {metrics.uncertain} {words['uncertain']} ({_percent(metrics.uncertainty_rate)}), "
        f"{metrics.failed} {words['failed']}, {metrics.blocked} {words['blocked']}.",
        "",
        words["head"],
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.intent} | {row.volume} | {_number(row.mean_confidence)} | {_number(row.deviation)} | {row.drafts} | {row.cancelled} "
        f"| {_percent(row.success)} |"
        for row in metrics.intents
    ]
    return "\n".join([*lines, "", *_gate(metrics.gate, words), ""])


def _gate(gate: Gate, words: dict[str, str]) -> list[str]:
    interval = f" [{_percent(gate.interval[0])} – {_percent(gate.interval[1])}]" if gate.interval else ""
    return [
        f"**{words['gate']}: {words['earned'] if gate.earned else words['not_yet']}** — {gate.jobs} {words['jobs']} "
        f"{_percent(gate.rate)}{interval}; {words['needed']} {GATE_RATE:.0%} {words['over']} {GATE_JOBS}."
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
