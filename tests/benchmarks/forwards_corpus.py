"""What the forward function and the bare library find in the public forwards and replies.

    python -m tests.benchmarks.forwards_corpus [FOLDER]

FOLDER holds ``manifest.jsonl``; without it ``ATLAS_CORPUS`` is asked, then ``shared/corpus`` beside the project. A figure is
"right of stated"; replies and other mails taken for forwards are counted apart. The library is shown HTML as text.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path

from emailforwardparser.forward_parser import get_forwarded_metadata

from atlas_pipeline.model import Address, Forward
from tests.forward_cases import Case, cases

Reader = Callable[[Case], Forward]


def bare_library(case: Case) -> Forward:
    """The library as it stands."""
    text, subject = case.shown()
    answer = get_forwarded_metadata(text, subject)
    mail = answer.email
    sender = Address(mail.from_.name or None, mail.from_.address or None)
    return Forward(answer.forwarded, sender=sender, subject=mail.subject, body=mail.body)


def line(name: str, some: list[Case], read: Reader) -> str:
    """Read the cases of one set and return their figures."""
    right = {"address": 0, "body": 0, "subject": 0}
    stated = dict.fromkeys(right, 0)
    wrong = crashes = 0
    started = time.monotonic()
    for case in some:
        try:
            found = read(case)
        except Exception:  # noqa: BLE001  # a crash is one of the figures
            crashes += 1
            found = Forward(found=False)
        wrong += found.found and not case.forwarded
        pairs = {
            "address": (case.address, found.sender.address),
            "body": (case.body, found.body),
            "subject": (case.original_subject, found.subject),
        }
        for kind, (expected, given) in pairs.items():
            stated[kind] += expected is not None
            right[kind] += expected is not None and expected.strip() == (given or "").strip()
    figures = "".join(f"{f'{right[kind]}/{stated[kind]}':>12}" for kind in right)
    return f"{name:<36} {len(some):>5}{figures} {wrong:>8} {crashes:>8} {time.monotonic() - started:>8.2f}"


def main(corpus: Path) -> None:
    """Print the table."""
    everything = sorted(cases(corpus), key=lambda case: case.set_name)
    sets = [(name, list(some)) for name, some in groupby(everything, key=lambda case: case.set_name)]
    head = ("n", "address", "body", "subject", "false", "crashes", "seconds")
    print(f"{'':<36} {head[0]:>5}{head[1]:>12}{head[2]:>12}{head[3]:>12} {head[4]:>8} {head[5]:>8} {head[6]:>8}")
    for name, some in [*sets, ("all", everything)]:
        print(line(name, some, Case.found))
        print(line(f"{'':<4}the bare library", some, bare_library))


if __name__ == "__main__":
    beside = Path(__file__).parents[3] / "shared" / "corpus"
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(os.environ.get("ATLAS_CORPUS", beside)))
