"""The gate to the next phase, as the specification writes it: success above 90 % over at least 30 internal jobs.

A job is a live (not superseded) chantier of a tenant marked internal, drafted before the month's end; it is kept unless somebody
cancelled it. The point value decides; Wilson's interval is printed beside it. All months up to the reported one count together, so
that a bad month can lose again what good ones earned. Passing it changes nothing by itself: an operator promotes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atlas_pipeline.calibration.rates import Rate, rate

GATE_RATE, GATE_JOBS = 0.90, 30


@dataclass(frozen=True)
class Jobs:
    """One internal tenant's jobs: how many, how many nobody cancelled, and how many of those nobody has decided yet."""

    tenant: str
    jobs: int
    kept: int
    undecided: int


@dataclass(frozen=True)
class Gate:
    """Whether the next phase is earned, with its evidence. ``missing`` is how many jobs are wanting to the least number."""

    success: Rate
    missing: int
    undecided: int
    tenants: tuple[Jobs, ...]
    earned: bool

    @property
    def jobs(self) -> int:
        """Internal jobs so far."""
        return self.success.whole

    @property
    def kept(self) -> int:
        """Those that nobody cancelled."""
        return self.success.part


def gate(rows: Sequence[Mapping[str, Any]]) -> Gate:
    """Judge rows of ``tenant``, ``jobs``, ``kept``, ``undecided``. No job at all earns nothing."""
    tenants = tuple(
        Jobs(str(row["tenant"]), int(row["jobs"]), int(row["kept"]), int(row["undecided"]))
        for row in sorted(rows, key=lambda row: str(row["tenant"]))
    )
    jobs, kept = sum(one.jobs for one in tenants), sum(one.kept for one in tenants)
    return Gate(
        success=rate(kept, jobs),
        missing=max(0, GATE_JOBS - jobs),
        undecided=sum(one.undecided for one in tenants),
        tenants=tenants,
        earned=jobs >= GATE_JOBS and kept / jobs > GATE_RATE,
    )
