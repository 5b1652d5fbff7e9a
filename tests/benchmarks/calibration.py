"""One month's report among a million classifications, and beside it the same rows loaded into pandas and counted there.

    python -m tests.benchmarks.calibration [CASES] [MONTHS]

1,000,000 made-up mails over 24 months with all that became of them (``tests/generated_year.py``). Each measurement is a process of its
own, so that its memory is its own: the peak of its resident set, imports included, the server's not. The processor's seconds are those
of the process and of the server together: they say what the work is where others keep the machine busy. Asserts nothing.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
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
# The month that is measured in each house: its drift has three months behind it in the smallest one too.
_SAME = "2024-04"
_RUNS = 5
_TABLES = ("runs", "chantiers", "questions", "negociations", "conseils")


def peak() -> float:
    """The most memory this process has held, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def processor(server: int) -> float:
    """Seconds of the processor that this process, the server's main process and all its backends, dead ones included, have used."""
    ticks = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        user, system, of_dead_user, of_dead_system = map(int, fields[11:15])
        if int(folder.name) == server:
            ticks += user + system + of_dead_user + of_dead_system
        elif int(fields[1]) == server:
            ticks += user + system
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def report(url: str, month: str, server: int) -> None:
    """Atlas's own: counted by the database."""
    with tempfile.TemporaryDirectory() as folder, opened(Settings(home=Path(folder)), url) as parts:
        used, begun = processor(server), time.monotonic()
        metrics, _rendered = calibrate(parts, month)
        seconds, used = time.monotonic() - begun, processor(server) - used
    print(f"{seconds:.3f} {used:.3f} {peak():.0f} {metrics.classifications}")


def pandas(url: str, month: str, server: int) -> None:
    """The same month's rows, and the three months before for drift, in memory: the main groups of the report, no more."""
    import pandas as pd

    start, end = bounds(month, _ZONE)
    used, begun = processor(server), time.monotonic()
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
    print(f"{time.monotonic() - begun:.3f} {processor(server) - used:.3f} {peak():.0f} {len(now)}")


@dataclass(frozen=True, order=True)
class Run:
    """One measurement: seconds by the clock, seconds of the processor, megabytes, decisions of the month."""

    seconds: float
    used: float
    megabytes: float
    count: int


def measured(way: str, url: str, month: str, server: int) -> Run:
    """One measurement in a fresh process."""
    command = [sys.executable, "-m", "tests.benchmarks.calibration", way, month, str(server)]
    done = subprocess.run(command, env={**os.environ, "BENCHMARK_URL": url}, capture_output=True, check=True, text=True)
    seconds, used, megabytes, count = done.stdout.split()
    return Run(float(seconds), float(used), float(megabytes), int(count))


def beside(server: EmbeddedPostgres, months: int, cases: int) -> dict[str, Run]:
    """A house of so many months: the median run of the report of ``_SAME`` and of the last month, both printed."""
    url = server.ensure_database(f"months_{months}")
    migrate(url)
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        begun = time.monotonic()
        generate(connection, cases=cases, months=months)
        connection.execute("checkpoint")  # or the server would go on writing while it is measured
        row = connection.execute("show data_directory").fetchone()
    pid = int((Path(str(row and row["data_directory"])) / "postmaster.pid").read_text().splitlines()[0])
    print(f"{cases} classifications over {months} months, made in {time.monotonic() - begun:.0f} s")
    found = {}
    for month in dict.fromkeys((_SAME, f"{2024 + (months - 1) // 12}-{(months - 1) % 12 + 1:02d}")):
        measured("report", url, month, pid)  # the first one reads from the disk
        runs = sorted(measured("report", url, month, pid) for _ in range(_RUNS))
        mine, other = runs[_RUNS // 2], sorted(measured("pandas", url, month, pid) for _ in range(3))[1]
        print(
            f"  {month}: {mine.count} decisions; report {mine.seconds:.2f} s (best {runs[0].seconds:.2f}; processor {mine.used:.2f}), "
            f"{mine.megabytes:.0f} MB; pandas {other.seconds:.2f} s (processor {other.used:.2f}), {other.megabytes:.0f} MB; "
            f"ratio {other.seconds / mine.seconds:.1f}",
            flush=True,
        )
        found[month] = mine
    return found


def main(cases: int, months: int) -> None:
    """The table, and how one and the same month grows with the months beside it."""
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres")
        server.ensure()
        try:
            # As many rows a month each time: what differs is how many other months there are.
            sizes = list(dict.fromkeys((max(4, months // 4), max(4, months // 2), months)))
            found = {size: beside(server, size, cases * size // months) for size in sizes}
        finally:
            server.stop()
    for what in ("seconds", "used"):
        least = getattr(found[sizes[0]][_SAME], what)
        times = [(size, getattr(found[size][_SAME], what)) for size in sizes]
        told = ", ".join(f"{size} months {taken:.2f} (x {taken / least:.2f})" for size, taken in times)
        print(f"{_SAME} as other months grow, {'by the clock' if what == 'seconds' else 'of the processor'}: {told}")
    slowest = max(run.seconds for run in found[months].values())
    largest = max(run.megabytes for run in found[months].values())
    print(f"of {cases} over {months} months: {slowest:.2f} s (limit 1.5), {largest:.0f} MB (limit 300)")


if __name__ == "__main__":
    if sys.argv[1:2] in (["report"], ["pandas"]):
        {"report": report, "pandas": pandas}[sys.argv[1]](os.environ["BENCHMARK_URL"], sys.argv[2], int(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, int(sys.argv[2]) if len(sys.argv) > 2 else 24)
