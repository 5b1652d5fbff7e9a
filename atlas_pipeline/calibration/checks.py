"""What a month's report should make a person look at. Warnings all: no mail waits for any of them."""

from __future__ import annotations

from dataclasses import dataclass

from atlas_pipeline.calibration.drift import ENOUGH
from atlas_pipeline.calibration.metrics import Metrics

# Mails that could not be processed, of all that were to be.
MOST_ERRORS = 0.05

DESCRIPTIONS = {
    "enough_data": f"At least {ENOUGH} classifications: below it a month says little.",
    "gate": "The gate to the next phase is passed.",
    "drift": "Neither the intents nor the confidences changed against the three months before.",
    "error_rate": f"At most {MOST_ERRORS:.0%} of the mails could not be processed.",
}


@dataclass(frozen=True)
class Check:
    """Whether one of ``DESCRIPTIONS`` holds, and the numbers it was concluded from."""

    name: str
    passed: bool
    facts: dict[str, str | int | float | bool]


def checks(metrics: Metrics) -> list[Check]:
    """All of them, in the order of ``DESCRIPTIONS``. Too few cases are no drift; no mail at all is no error."""
    shifts = (metrics.drift.intents, metrics.drift.confidence)
    return [
        Check(
            "enough_data",
            metrics.classifications >= ENOUGH,
            {"classifications": metrics.classifications, "at_least": ENOUGH},
        ),
        Check("gate", metrics.gate.earned, {"internal_jobs": metrics.gate.jobs, "kept": metrics.gate.kept}),
        Check(
            "drift",
            all(shift.level != "changed" for shift in shifts),
            {
                "intents": metrics.drift.intents.level,
                "confidence": metrics.drift.confidence.level,
                "model_or_prompt_changed": metrics.drift.explained,
            },
        ),
        Check(
            "error_rate",
            (metrics.errors.value or 0.0) <= MOST_ERRORS,
            {"failed": metrics.failed, "share": metrics.errors.value or 0.0, "at_most": MOST_ERRORS},
        ),
    ]
