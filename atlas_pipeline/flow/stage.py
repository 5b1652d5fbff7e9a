"""What a step of the flow reports: numbers, enums and codes, so that it may be shown anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

INBOX_STAGES = ("raw_message", "scan_verdict", "ocr_text", "classification")
ACTION_STAGES = ("spawn_result", "qa_report", "recap")

Facts = dict[str, str | int | float | bool]


class Outcome(StrEnum):
    """How a stage ended for one message."""

    DONE = "done"
    UNCHANGED = "unchanged"
    DUPLICATE = "duplicate"
    BLOCKED = "blocked"
    WAITING = "waiting"
    GONE = "gone"
    NOT_NEEDED = "not_needed"
    REFUSED = "refused"


@dataclass(frozen=True)
class StageDone:
    """A stage came to its end for this message."""

    stage: str
    key: str
    outcome: Outcome
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class StageFailed:
    """A stage failed for this message; what happens next stands in the tracking row."""

    stage: str
    key: str
    code: str
