"""CPU seconds a message for one intake run of 200 mails, Dagster, PostgreSQL and clamd included, beside the bare flow.

    python -m tests.benchmarks.intake_tick [MAILS]

Both ways in one run on one machine: ``flow.intake.run`` alone, and the same through ``intake_job`` on a Dagster instance in
PostgreSQL. Prints a table; asserts nothing about time.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from email.message import EmailMessage
from pathlib import Path

import dagster as dg
import psutil

from atlas_pipeline.embedded.clamd import EmbeddedClamd
from atlas_pipeline.embedded.house import PROJECT
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.embedded.resolve import for_dagster
from atlas_pipeline.flow import intake
from atlas_pipeline.flow.discovery import discover
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.flow.stage import StageFailed
from atlas_pipeline.settings import Settings, load
from atlas_pipeline.store.migrate import migrate

SENTENCE = "Bonjour, pourriez-vous changer le numéro de téléphone affiché sur notre site ? Merci d'avance, Claire. "


def write_mails(maildir: Path, first: int, count: int) -> None:
    """Mails of about 3 KB, every tenth with an attachment of 20 KB."""
    for folder in ("tmp", "new", "cur"):
        (maildir / folder).mkdir(parents=True, exist_ok=True)
    for number in range(first, first + count):
        mail = EmailMessage()
        mail["From"], mail["To"] = f"client{number}@example.org", "atlas@example.com"
        mail["Subject"], mail["Message-ID"] = f"Demande {number}", f"<bench.{number}@example.org>"
        mail.set_content(SENTENCE * 25)
        if number % 10 == 0:
            mail.add_attachment(os.urandom(20_000), maintype="application", subtype="octet-stream", filename="a.bin")
        (maildir / "new" / f"{1_700_000_000 + number}.bench").write_bytes(mail.as_bytes())


def cpu_of(*roots: psutil.Process) -> float:
    """User and system seconds of these processes, their children and what those reaped."""
    total = 0.0
    for root in roots:
        for process in (root, *root.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def measure(name: str, mails: int, servers: list[psutil.Process], work: Callable[[], None]) -> None:
    """Run the work once and print its line."""
    own, theirs, started = cpu_of(psutil.Process()), cpu_of(*servers), time.monotonic()
    work()
    here, there = cpu_of(psutil.Process()) - own, cpu_of(*servers) - theirs
    seconds = time.monotonic() - started
    print(
        f"{name:<24} {mails:>6} {seconds:>9.1f} {here / mails:>14.4f} {there / mails:>14.4f} {(here + there) / mails:>14.4f}"
    )


def bare(parts: Parts) -> None:
    """The flow without Dagster."""
    keys = discover(parts)
    reports = list(intake.run(parts, keys, run_id="benchmark"))
    failed = [report for report in reports if isinstance(report, StageFailed)]
    if failed:
        raise SystemExit(f"{len(failed)} stages failed: {failed[0].code}")


def through_dagster(parts: Parts, instance: dg.DagsterInstance) -> None:
    """The same through the job, as the sensor asks for it."""
    from atlas_pipeline.orchestration.build import build_definitions

    keys = discover(parts)
    instance.add_dynamic_partitions("messages", keys)
    job = build_definitions(parts.settings).resolve_job_def("intake_job")
    result = job.execute_in_process(
        instance=instance,
        tags={"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]},
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    if not result.success:
        raise SystemExit("the run failed")


def main(mails: int) -> None:
    """Set up, measure both ways, tear down."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder:
        home = Path(folder)
        server, clamd = EmbeddedPostgres(home / "pg"), EmbeddedClamd(home / "clamd")
        try:
            atlas, dagster = server.ensure_database("atlas"), server.ensure_database("dagster")
            migrate(atlas)
            os.environ.update(
                ATLAS_HOME=str(home),
                ATLAS_DATABASE_URL=atlas,
                ATLAS_DAGSTER_URL=for_dagster(dagster),
                ATLAS_DAGSTER_DIR=str(home / "dagster"),
                ATLAS_CLAMD=clamd.ensure(),
                ATLAS_MAILDIR=str(home / "mail"),
            )
            (home / "dagster").mkdir()
            _both_ways(load(), atlas, home, mails)
        finally:
            clamd.stop()
            server.stop()


def _both_ways(settings: Settings, url: str, home: Path, mails: int) -> None:
    pids = [
        int((home / "pg" / "data" / "postmaster.pid").read_text().split()[0]),
        int((home / "clamd" / "clamd.pid").read_text()),
    ]
    servers = [psutil.Process(pid) for pid in pids]
    head = ("", "mails", "seconds", "python CPU/m", "servers CPU/m", "CPU s/message")
    print(f"{head[0]:<24} {head[1]:>6} {head[2]:>9} {head[3]:>14} {head[4]:>14} {head[5]:>14}")
    with opened(settings, url) as parts, dg.DagsterInstance.from_config(str(PROJECT)) as instance:
        write_mails(home / "mail", 0, 20)
        bare(parts)  # the local model is trained and the connections are open
        write_mails(home / "mail", 1000, mails)
        measure("flow alone", mails, servers, lambda: bare(parts))
        write_mails(home / "mail", 100_000, mails)
        measure("through Dagster", mails, servers, lambda: through_dagster(parts, instance))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
