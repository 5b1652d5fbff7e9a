"""What the verbs share: settings, a database for the length of a verb, and printing as a table or as JSON."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from atlas_pipeline.embedded import demo
from atlas_pipeline.embedded.house import LOCK
from atlas_pipeline.embedded.process import file_lock
from atlas_pipeline.embedded.resolve import database_urls, postgres_of
from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.settings import Settings, load
from atlas_pipeline.store.database import dedicated
from atlas_pipeline.text import visible

_PIPE_COLUMNS = 1000

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def settings_now() -> Settings:
    """The settings; under ATLAS_DEMO with the demo's parts filled in."""
    settings = load()
    return demo.apply_defaults(settings) if settings.demo else settings


def actor() -> str:
    """Who gives an order, for the audit."""
    try:
        return f"operator:{getpass.getuser()}"
    except (KeyError, OSError):  # no name for this user id, as in a container
        return "operator:unknown"


@contextmanager
def parts_now() -> Iterator[Parts]:
    """Parts on the configured database, or on this folder's embedded one, which is stopped again if it was not running.

    Raises NotConfigured("no_state_here") rather than making a new database for a question.
    """
    settings = settings_now()
    if settings.database_url is None and not (settings.home_dir / "postgres" / "data").is_dir():
        raise NotConfigured("no_state_here", home=str(settings.home))
    with stopped_again(settings):
        url = database_urls(settings).atlas
        with dedicated(url):  # says at once that nobody answers, where the pool would go on trying
            pass
        with opened(settings, url) as parts:
            yield parts


@contextmanager
def stopped_again(settings: Settings) -> Iterator[None]:
    """Leave the embedded server as it was found: stop what the block started, unless a house has moved in meanwhile."""
    server = postgres_of(settings)
    if settings.database_url is not None or server.status()["running"]:
        yield
        return
    try:
        yield
    finally:
        settings.home_dir.mkdir(parents=True, exist_ok=True)
        with file_lock(settings.home_dir / LOCK, 0.0) as free:
            if free:
                server.stop()


def plain(value: object) -> Any:  # whatever JSON needs
    """A value as JSON writes it: times in ISO 8601, the rest as text."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, default=plain, ensure_ascii=False, indent=2))


def print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A table on stdout; control characters of mail text are made visible, and markup in it is not obeyed."""
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column.replace("_", " "), overflow="fold", no_wrap=place == 0)  # the key is there to be copied
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    # A pipe has no width: there every row is one line, so that grep finds a key.
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    Console(markup=False, highlight=False, emoji=False, width=width).print(table)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, Mapping):
        return " ".join(f"{name}={item}" for name, item in value.items())
    return visible(str(value))
