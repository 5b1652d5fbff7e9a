"""``atlas up``, ``atlas demo`` and ``atlas migrate``: start the house and keep it running until it is asked to stop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console

from atlas_pipeline.calibration.months import month_of
from atlas_pipeline.cli.common import print_json, stopped_again
from atlas_pipeline.embedded import demo as demo_parts
from atlas_pipeline.embedded import outcome
from atlas_pipeline.embedded.house import House, no_more_signals, only_one, stop_signals
from atlas_pipeline.embedded.resolve import database_urls
from atlas_pipeline.errors import NotConfigured, Refused
from atlas_pipeline.flow import models, teaching, watching
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.settings import Settings, load
from atlas_pipeline.store import overview, tenants
from atlas_pipeline.store.migrate import migrate as apply_migrations
from atlas_pipeline.store.migrate import pending

_console = Console(stderr=True, highlight=False)
DEMO_SECONDS = 900.0


def _say(line: str) -> None:
    _console.print(f"[dim]atlas[/dim] {line}")


@click.command()
@click.option("--check", is_flag=True, help="Only list what would be applied; exit 1 if anything is.")
def migrate(check: bool) -> None:
    """Apply the database migrations that are missing, and bring the agents up to their file."""
    settings = load()
    with stopped_again(settings):
        url = database_urls(settings).atlas
        names = pending(url) if check else apply_migrations(url)
        if not check:
            with opened(settings, url) as parts:
                teaching.load_agents(parts)
    for name in names:
        click.echo(name)
    if check and names:
        raise SystemExit(1)


@click.command()
def up() -> None:
    """Run Dagster's UI, daemon and code server here until Ctrl-C; parts that are not configured stay absent."""
    settings = load()
    if not settings.demo and settings.database_url is None and demo_parts.was_here(settings):
        raise Refused("home_holds_the_demo", home=str(settings.home))
    _run(settings, lambda house, parts: _stay(house, parts, None))


@click.command()
@click.option(
    "--once",
    is_flag=True,
    help="Run to the end, print a JSON summary, stop; exit 0 only when all came out as expected.",
)
def demo(once: bool) -> None:
    """A small agency's mailbox on the real pipeline (needs ATLAS_DEMO=1; `make demo` sets it)."""
    settings = load()
    demo_parts.folders(settings)
    missing = demo_parts.missing_programs(settings)
    if missing:
        raise NotConfigured("programs_missing", programs=" ".join(missing))
    started = time.monotonic()
    _run(settings, lambda house, parts: _demo(house, parts, once=once, started=started))


def _run(settings: Settings, live: Callable[[House, Parts], None]) -> None:
    """Start, live, stop: whatever ends it, every process and the embedded database are stopped."""
    models.check(settings)
    with only_one(settings.home_dir), stop_signals():
        house = House(settings, _say)
        begun = False
        try:
            house.sweep()
            _say("database: starting" if settings.database_url is None else "database: as configured")
            urls = house.find_database()
            house.prepare(urls)
            begun = True
            for name in apply_migrations(urls.atlas):
                _say(f"database: applied {name}")
            with opened(settings, urls.atlas) as parts:
                teaching.load_agents(parts)
                live(house, parts)
        finally:
            no_more_signals()
            _say("stopping")
            house.stop()
            _say("stopped; the state is kept, the next start goes on from here" if begun else "stopped")


def _start_dagster(house: House) -> None:
    if house.settings.database_url is None and house.settings.dagster_url is None:
        # A configured database may be shared: its running runs may be alive on another machine.
        _end_orphaned_runs(house)
    _say("dagster: starting the UI and the daemon")
    house.start_dagster()
    _console.print(f"[bold]Dagster UI: {house.ui_url}[/bold]", soft_wrap=True)


def _end_orphaned_runs(house: House) -> None:
    # Imported here: it brings dagster, half a second for every other verb.
    from atlas_pipeline.orchestration.upkeep import end_orphaned_runs

    ended = end_orphaned_runs(house.environment["DAGSTER_HOME"], house.environment)
    if ended:
        _say(f"dagster: {ended} runs of an earlier start are marked as ended")


def _stay(house: House, parts: Parts, done: Callable[[], bool] | None) -> None:
    if not house.ui_url:
        _start_dagster(house)
    while True:
        house.check()
        _show_changes(parts, house.shown)
        if done is not None and done():
            return
        time.sleep(1)


def _demo(house: House, parts: Parts, *, once: bool, started: float) -> None:
    settings, tenant = demo_parts.furnish(house, parts.settings)
    house.settings = settings
    with opened(settings, parts.database_url) as own:
        with own.db.transaction() as conn:
            tenants.upsert(conn, tenant)
        _start_dagster(house)
        result = _until_settled(house, own, started)
        if result.settled and not _steer(house, settings):
            result.problems.append("steering: the registry or the month's report was not materialised")
        result.summary["seconds"] = round(time.monotonic() - started, 1)
        summary = {"ok": result.settled and not result.problems, **result.summary, "unexpected": result.problems}
        if once:
            print_json(summary)
            if not summary["ok"]:
                raise SystemExit(1)
            return
        place = demo_parts.folders(settings)
        _say(
            "demo: all came out as expected"
            if summary["ok"]
            else f"demo: not as expected: {'; '.join(result.problems)}"
        )
        _console.print(f"recaps: {place.outbox}   pre-production: {tenant.preprod_url}", soft_wrap=True)
        _console.print(f"[bold]Dagster UI: {house.ui_url}[/bold]   (Ctrl-C stops everything)", soft_wrap=True)
        _stay(house, own, None)


def _steer(house: House, settings: Settings) -> bool:
    """What the schedules would do within the hour and the month: registry, scars, heartbeat, the running month's report."""
    _say("steering: the agents' registry, and this month's report")
    month = month_of(datetime.now(UTC), settings.time_zone)
    with warnings.catch_warnings():
        # Dagster announces its beta features to those who write definitions; a reader of the demo can do nothing with it.
        warnings.simplefilter("ignore")
        from atlas_pipeline.orchestration.launch import materialise  # brings dagster: half a second for other verbs

        return materialise(
            ["agent_registry", "scar_index", "mailbox_heartbeat"], environment=house.environment
        ) and materialise(["calibration_report"], environment=house.environment, partition=month)


def _until_settled(house: House, parts: Parts, started: float) -> outcome.Outcome:
    """Watch the demo to its end, starting the spawn cycle as soon as something waits for it, not at the next five minutes."""
    place = demo_parts.folders(parts.settings)

    def look() -> outcome.Outcome:
        with parts.db.transaction() as conn:
            return outcome.look(conn, place.outbox, place.site / "site.git")

    def settled() -> bool:
        watching.request_due(parts, actor="demo")
        return look().settled or time.monotonic() - started > DEMO_SECONDS

    _stay(house, parts, settled)
    return look()


def _show_changes(parts: Parts, seen: dict[str, tuple[Any, ...]]) -> None:
    with parts.db.transaction() as conn:
        rows = overview.messages(conn, status=None, limit=50)
    for row in reversed(rows):
        state = (row["status"], row["intent"], row["attempt"], row["reason_code"])
        if seen.get(row["message_key"]) != state:
            seen[row["message_key"]] = state
            facts = " ".join(
                str(fact)
                for fact in (row["intent"], f"attempt {row['attempt']}" if row["attempt"] else None, row["reason_code"])
                if fact
            )
            _say(f"{row['message_key']}  {row['status']:<11} {facts}")


COMMANDS = [up, demo, migrate]
