"""How far we agree with what the public mails' manifest states, per set and fact.

    python -m tests.benchmarks.mail_corpus FOLDER

Prints a table; each difference is explained in ``tests/mailbox/test_mailbox_corpus.py``.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

from atlas_pipeline.mailbox.parse import parse
from tests.mail_cases import SETS, cases, compare


def main(folder: Path) -> None:
    """Parse and count."""
    agreed: Counter[tuple[str, str]] = Counter()
    stated: Counter[tuple[str, str]] = Counter()
    mails: Counter[str] = Counter()
    failed = slowest = 0.0
    for path, raw, expected in cases(folder):
        started = time.monotonic()
        mail = parse(raw)
        slowest = max(slowest, time.monotonic() - started)
        failed += "parser_failed" in mail.remarks
        mails[next(name for name in SETS if path.startswith(f"{name}/"))] += 1
        for fact in compare(path, mail, expected):
            stated[fact.set_, fact.name] += 1
            agreed[fact.set_, fact.name] += fact.agrees
    print(f"{'set':<22} {'mails':>6} {'fact':<20} {'stated':>7} {'agree':>6}")
    for (set_, name), count in sorted(stated.items()):
        print(f"{set_:<22} {mails[set_]:>6} {name:<20} {count:>7} {agreed[set_, name]:>6}")
    print(f"{'all':<22} {mails.total():>6} {'':<20} {stated.total():>7} {agreed.total():>6}")
    print(f"crashes 0, parser_failed {failed:.0f}, slowest {slowest:.2f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
