"""Which faults of a site a change brought, and which were there before it. Pure functions of two reports.

A fault is known again by its route, its level and its sentence. What an edit moves without mending anything (a line
number, the hash in the name of an asset, the query behind it) does not make another fault of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from atlas_pipeline.model import QaResult, RouteCheck
from atlas_pipeline.release.wording import problems

_MOVED = re.compile(r":\d+:\d+(?=\))|\?[^\s),;]*|(?<=[-._])(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")


@dataclass(frozen=True)
class Fault:
    """One sentence of one check; equal to another one when it is the same fault."""

    route: str
    level: str
    known_by: str

    @classmethod
    def of(cls, check: RouteCheck, sentence: str) -> Fault:
        """The fault that a sentence of a check tells."""
        return cls(check.route, check.level, _MOVED.sub("", sentence))


def faults(result: QaResult | None) -> frozenset[Fault]:
    """All faults of a report; of none where there is no report."""
    return frozenset(fault for _check, _sentence, fault in _told(result))


def old_sentences(before: QaResult | None, after: QaResult) -> list[str]:
    """Sentences of ``after`` whose faults were there before, in their order."""
    known = faults(before)
    return list(dict.fromkeys(sentence for _check, sentence, fault in _told(after) if fault in known))


def open_faults(
    before: QaResult | None, after: QaResult, *, named: Collection[str], told: Collection[Fault]
) -> frozenset[Fault]:
    """The faults that fail an attempt.

    Those that the change brought, always. Of those that were there before:

    - on a page that came, one on a route that the agent ``named`` as its own fails as long as the agent has not been
      ``told`` of it: it may be what the request is about. Told and still there, or elsewhere, it is only reported;
    - on a page that did not come (no answer, or a status of 400 and above) it fails where the agent named the route,
      since nothing of the change can be seen there, and where no page came at all, since then nothing was checked.
    """
    known = faults(before)
    came = {check.route for check in after.checks} - {check.route for check in after.checks if not _came(check)}
    failing = set()
    for check, _sentence, fault in _told(after):
        if fault not in known:
            failing.add(fault)
        elif check.route not in came:
            if check.route in named or not came:
                failing.add(fault)
        elif check.route in named and fault not in told:
            failing.add(fault)
    return frozenset(failing)


def _came(check: RouteCheck) -> bool:
    return check.status is not None and check.status < 400


def _told(result: QaResult | None) -> Iterator[tuple[RouteCheck, str, Fault]]:
    for check in result.checks if result else ():
        if not check.ok:
            for sentence in problems(check) or ("",):
                yield check, sentence, Fault.of(check, sentence)
