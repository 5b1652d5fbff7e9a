"""A replay beside the truth: which decisions differ, and what it would have meant. Pure.

better   a person had refused or corrected the month's decision, and the replay says what was meant, or at least not what was refused
worse    a person had confirmed the month's decision, and the replay says something else
unknown  nobody has said what was meant
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atlas_pipeline.calibration.metrics import Group, Rows, groups
from atlas_pipeline.calibration.rates import Rate, rate
from atlas_pipeline.calibration.reliability import Reliability, reliability

VERDICTS = ("better", "worse", "unknown")


@dataclass(frozen=True)
class Changed:
    """One decision that came out otherwise."""

    message_key: str
    was: str
    now: str
    was_confidence: float
    confidence: float
    verdict: str


@dataclass(frozen=True)
class Side:
    """The metrics of one side, over the same mails."""

    uncertain: Rate
    intents: tuple[Group, ...]
    reliability: Reliability
    internal: Rate  # internal jobs that would be there, of them those nobody cancelled


@dataclass(frozen=True)
class Comparison:
    """The truth and the replay. ``new_jobs`` are chantiers that only the replay makes: nobody could cancel them."""

    compared: int
    changed: tuple[Changed, ...]
    truth: Side
    replay: Side
    new_jobs: int

    def verdicts(self) -> dict[str, int]:
        """How many of the changed decisions are of each of ``VERDICTS``."""
        return {name: sum(one.verdict == name for one in self.changed) for name in VERDICTS}


def compare(pairs: Rows, judgements: Rows, volumes: tuple[Rows, Rows], outcomes: tuple[Rows, Rows]) -> Comparison:
    """Put them side by side; ``volumes`` and ``outcomes`` are the store's figures of the truth and of the replay."""
    known = {row["id"]: row for row in judgements}
    changed = tuple(
        Changed(
            row["message_key"],
            row["was"],
            row["intent"],
            round(row["was_confidence"], 4),
            round(row["confidence"], 4),
            _verdict(row, known.get(row["id"])),
        )
        for row in pairs
        if row["was"] != row["intent"]
    )
    jobs = [row for row in pairs if row["internal"] and row["was"] == "chantier"]
    return Comparison(
        compared=len(pairs),
        changed=changed,
        truth=_side(volumes[0], outcomes[0], jobs),
        replay=_side(volumes[1], outcomes[1], [row for row in jobs if row["intent"] == "chantier"]),
        new_jobs=sum(row["was"] != "chantier" and row["intent"] == "chantier" for row in pairs),
    )


def _side(volumes: Rows, outcomes: Rows, jobs: Sequence[Mapping[str, Any]]) -> Side:
    return Side(
        uncertain=rate(sum(int(row["uncertain"]) for row in volumes), sum(int(row["volume"]) for row in volumes)),
        intents=groups("intent", volumes),
        reliability=reliability(outcomes),
        internal=rate(sum(row["job"] != "cancelled" for row in jobs), len(jobs)),
    )


def _verdict(pair: Mapping[str, Any], judged: Mapping[str, Any] | None) -> str:
    if judged is None:
        return "unknown"
    if judged["truth"] is None:
        return "better" if judged["refused"] == pair["was"] else "unknown"
    if pair["was"] == judged["truth"]:
        return "worse"
    return "better" if pair["intent"] == judged["truth"] else "unknown"
