"""One month's report among a million classifications, and beside it the same rows loaded into pandas and counted there.

    python -m tests.benchmarks.calibration [CASES] [MONTHS]

1,000,000 made-up mails over 24 months with all that became of them (``tests/generated_year.py``). Each measurement is a process of its
own, so that its memory is its own: the peak of its resident set, imports included, the server's not. Asserts nothing.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

from atlas_pipeline.calibration.months import bounds
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.flow.calibrating import calibrate
from atlas_pipeline.flow.parts import opened
from atlas_pipeline.settings import Settings
from atlas_pipeline.store.migrate import migrate
from tests.generated_year import generate

_ZONE = "Europe/Paris"
_TABLES = ("runs", "chantiers", "questions", "negociations", "conseils")


def peak() -> float:
    """The most memory this process has held, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def report(url: str, month: str) -> None:
    """Atlas's own: counted by the database."""
    with tempfile.TemporaryDirectory() as folder, opened(Settings(home=Path(folder)), url) as parts:
        begun = time.monotonic()
        metrics, _rendered = calibrate(parts, month)
        seconds = time.monotonic() - begun
    print(f"{seconds:.3f} {peak():.0f} {metrics.classifications}")


def pandas(url: str, month: str) -> None:
    """The same month's rows, and the three months before for drift, in memory: the main groups of the report, no more."""
    import pandas as pd

    start, end = bounds(month, _ZONE)
    begun = time.monotonic()
    with psycopg.connect(url) as connection:

        def load(query: str) -> pd.DataFrame:
            cursor = connection.execute(query.encode(), {"start": start, "end": end})
            return pd.DataFrame(cursor.fetchall(), columns=[column.name for column in cursor.description or ()])

        decisions = load(
            "select * from atlas.classifications where at >= %(start)s::timestamptz - interval '3 months' and at < %(end)s"
        )
        calls = load("select * from atlas.ai_calls where at >= %(start)s and at < %(end)s")
        audited = load("select at, action, message_key from atlas.audit_log where at >= %(start)s and at < %(end)s")
        spawns = load("select * from atlas.spawns where claimed_at >= %(start)s and claimed_at < %(end)s")
        drafts = pd.concat(
            [
                load(f"select * from atlas.{table} where created_at >= %(start)s and created_at < %(end)s")  # noqa: S608
                for table in _TABLES
            ]
        )
        jobs = load("select * from atlas.chantiers where created_at < %(end)s and tenant = 'atelier'")
        recaps = load(
            "select n.sent_at, l.listed_at from atlas.notifications n join atlas.mailbox_ledger l using (message_key) "
            "where n.kind = 'recap' and n.sent_at >= %(start)s and n.sent_at < %(end)s"
        )
    now = decisions[decisions["at"] >= start]
    for column in ("intent", "tenant", "model"):
        now.groupby(column)["confidence"].agg(["size", "mean", "std"])
        now.groupby(column)["uncertain"].mean()
    now["guards"].explode().value_counts()
    judged = now.merge(drafts[drafts["status"] != "draft"], on="message_key")
    judged.groupby((judged["confidence"] * 10).astype(int))["status"].value_counts()
    for frame in (now, decisions[decisions["at"] < start]):
        frame["intent"].value_counts()
        (frame["confidence"] * 10).astype(int).value_counts()
    drafts.groupby(["kind", "tenant"])["status"].value_counts()
    calls.groupby("model")["milliseconds"].quantile([0.5, 0.95])
    spawns["seconds"].quantile([0.5, 0.95])
    audited["action"].value_counts()
    (recaps["sent_at"] - recaps["listed_at"]).quantile([0.5, 0.95])
    jobs["status"].value_counts()
    print(f"{time.monotonic() - begun:.3f} {peak():.0f} {len(now)}")


def measured(way: str, url: str, month: str) -> tuple[float, float, int]:
    """One measurement in a fresh process: seconds, megabytes, decisions of the month."""
    command = [sys.executable, "-m", "tests.benchmarks.calibration", way, month]
    done = subprocess.run(command, env={**os.environ, "BENCHMARK_URL": url}, capture_output=True, check=True, text=True)
    seconds, megabytes, count = done.stdout.split()
    return float(seconds), float(megabytes), int(count)


def main(cases: int, months: int) -> None:
    """The table."""
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres")
        server.ensure()
        try:
            # The same month with more and more months beside it: the report must not grow with them.
            for part in sorted({max(1, months // 4), max(1, months // 2), months}):
                url = server.ensure_database(f"months_{part}")
                migrate(url)
                with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
                    begun = time.monotonic()
                    generate(connection, cases=cases * part // months, months=part)
                print(
                    f"{cases * part // months} classifications over {part} months, made in {time.monotonic() - begun:.0f} s"
                )
                for month in dict.fromkeys(
                    ("2024-05" if part > 4 else "2024-01", f"{2024 + (part - 1) // 12}-{(part - 1) % 12 + 1:02d}")
                ):
                    runs = sorted(measured("report", url, month) for _ in range(3))
                    seconds, megabytes, count = runs[1]
                    other, other_megabytes, _count = measured("pandas", url, month)
                    print(
                        f"  {month}: {count} decisions; report {seconds:.2f} s, {megabytes:.0f} MB; "
                        f"pandas {other:.2f} s, {other_megabytes:.0f} MB; ratio {other / seconds:.1f}"
                    )
        finally:
            server.stop()


if __name__ == "__main__":
    if sys.argv[1:2] in (["report"], ["pandas"]):
        {"report": report, "pandas": pandas}[sys.argv[1]](os.environ["BENCHMARK_URL"], sys.argv[2])
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, int(sys.argv[2]) if len(sys.argv) > 2 else 24)
