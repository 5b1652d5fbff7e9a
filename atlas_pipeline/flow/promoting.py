"""From one phase to the next: the gate says whether it may be, an operator that it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from atlas_pipeline.calibration.months import month_of
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow.calibrating import calibrate
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.store import phases


@dataclass(frozen=True)
class Standing:
    """The phase the house is in, since when and by whom, and the last decision of the gate for each month, the newest first."""

    phase: int
    since: datetime | None
    actor: str | None
    decisions: tuple[dict[str, Any], ...]


def standing(parts: Parts) -> Standing:
    """Where the house stands. Nothing is computed: the gate's decisions are those of the reports that were made."""
    with parts.db.transaction() as conn:
        now = phases.current(conn)
        return Standing(now["phase"], now["at"], now["actor"], tuple(phases.decisions(conn)))


def judge_now(parts: Parts) -> dict[str, Any]:
    """Make the running month's report anew and return the gate's decision on it, as ``phases.newest_decision``."""
    calibrate(parts, month_of(datetime.now(UTC), parts.settings.time_zone))
    with parts.db.transaction() as conn:
        found = phases.newest_decision(conn)
    if found is None:  # the report above has written one
        raise Refused("gate_not_decided")
    return found


def promote(parts: Parts, decision_id: int, *, actor: str) -> int:
    """Enter the next phase on the decision that the operator was shown; returns the phase. Audited.

    Raises Refused: ``gate_not_passed`` with its numbers; ``gate_decided_anew`` where another decision came meanwhile;
    ``phase_reached`` where the house is there already.
    """
    with parts.db.transaction() as conn:
        phases.lock(conn)
        decision = phases.newest_decision(conn)
        if decision is None or decision["id"] != decision_id:
            raise Refused("gate_decided_anew")
        if not decision["earned"]:
            success = decision["evidence"]["success"]
            raise Refused("gate_not_passed", month=decision["month"], jobs=success["whole"], rate=success["value"])
        if phases.current(conn)["phase"] == phases.OPEN:
            raise Refused("phase_reached", phase=phases.OPEN)
        phases.promote(conn, decision, actor=actor)
    return phases.OPEN
