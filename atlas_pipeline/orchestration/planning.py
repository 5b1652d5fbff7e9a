"""Pure decisions of the sensors: which keys become partitions, and which contiguous range is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class IntakePlan:
    """``add`` are keys that have no partition yet, in order; ``span`` is the range to run, empty where none is."""

    add: tuple[str, ...]
    span: tuple[str, ...]


def plan_intake(partitions: Sequence[str], due: Sequence[str], *, busy: bool, limit: int) -> IntakePlan:
    """One range a tick. A range is a slice in the partitions' insertion order, which is never sorted here.

    ``busy``: an intake run is live; then keys are only added, and the next tick asks for them.
    """
    known = set(partitions)
    add = tuple(key for key in due if key not in known)
    if busy or not due:
        return IntakePlan(add, ())
    return IntakePlan(add, contiguous([*partitions, *add], set(due), limit))


def contiguous(order: Sequence[str], wanted: Collection[str], limit: int) -> tuple[str, ...]:
    """The first unbroken run of wanted keys within ``order``, at most ``limit`` long."""
    span: list[str] = []
    for key in order:
        if key in wanted:
            span.append(key)
            if len(span) == limit:
                break
        elif span:
            break
    return tuple(span)


def intake_run_key(span: Sequence[str], earlier: int) -> str:
    """A run key that is the same when a tick is delivered twice and new when the same range is asked for again.

    ``earlier`` is how many runs this range has had: counted by runs and not by tries of its messages, since a run that died
    before its first message, or an operator's ``reprocess``, leaves no try, and a key is used once for ever.
    """
    digest = hashlib.sha256(",".join(span).encode()).hexdigest()[:12]
    return f"{span[0]}:{len(span)}:{digest}:{earlier + 1}"
