"""Mutated archives with a planted marker: is one called clean though some program could still get the marker out of it?

    python -m tests.benchmarks.scan_archives [COUNT [FOLDER]]

On a real clamd that knows the marker. Prints a table a kind; exits 1 on a false clean or a crash.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from atlas_pipeline.embedded.clamd import EmbeddedClamd
from atlas_pipeline.model import Verdict
from atlas_pipeline.scan.client import ClamdClient
from atlas_pipeline.scan.mail import scan_bytes
from tests.scan_archives import mutated, planted, reachable

MARKER = b"ATLAS-PLANTED-MARKER-7F3A"


def main(count: int, keep: Path | None = None) -> None:
    """Mutate, scan, compare, print; put false cleans into the folder ``keep``."""
    chance = random.Random(4)  # noqa: S311  # the same archives each time
    kinds = planted(MARKER, chance)
    seen: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    slowest = 0.0
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder:
        clamd = EmbeddedClamd(Path(folder), signatures={"Atlas.Test.Marker": MARKER})
        try:
            scanner = ClamdClient(clamd.ensure())
            for number in range(count):
                kind = list(kinds)[number % len(kinds)]
                data = mutated(kinds[kind], chance)
                there = any(MARKER in member for member in reachable(data))
                started = time.monotonic()
                try:
                    verdict = scan_bytes(data, scanner).verdict
                except Exception as error:  # noqa: BLE001  # what this looks for
                    print(f"crash: {kind} {number}: {type(error).__name__}")
                    seen[kind]["crash"] += 1
                    continue
                slowest = max(slowest, time.monotonic() - started)
                seen[kind]["marker can be had" if there else "no marker left"] += 1
                seen[kind][verdict.value] += 1
                if there and verdict is Verdict.CLEAN:
                    seen[kind]["FALSE CLEAN"] += 1
                    if keep is not None:
                        (keep / f"{number}.bin").write_bytes(data)
        finally:
            clamd.stop()
    columns = [
        "marker can be had",
        "no marker left",
        "infected",
        "unscannable",
        "clean",
        "error",
        "FALSE CLEAN",
        "crash",
    ]
    print(f"{'':<20}" + "".join(f"{column:>19}" for column in columns))
    total = Counter[str]()
    for kind, counts in seen.items():
        print(f"{kind:<20}" + "".join(f"{counts[column]:>19}" for column in columns))
        total.update(counts)
    print(f"{'all':<20}" + "".join(f"{total[column]:>19}" for column in columns) + f"   slowest {slowest:.2f} s")
    if total["FALSE CLEAN"] or total["crash"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
