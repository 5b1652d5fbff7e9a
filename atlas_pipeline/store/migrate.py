"""Applies ``sql/NNNN_noun.sql`` once each, in order, and refuses a file that was edited after it was applied.

A file whose first line is ``-- no-transaction`` holds one statement and runs outside a transaction.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import psycopg

from atlas_pipeline.errors import PermanentError
from atlas_pipeline.store.database import Connection, dedicated, translated

MIGRATIONS = Path(__file__).resolve().parents[2] / "sql"
_LOCK = 0x41544C53


def migrate(url: str, folder: Path = MIGRATIONS) -> list[str]:
    """Apply what is missing; return the names applied now.

    Raises PermanentError("migration_edited") where an applied file's sha256 differs, ("migrations_missing") where the folder
    holds none, and DatabaseUnavailable. A killed runner leaves nothing behind: each file is one transaction.
    """
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    if not files:
        raise PermanentError("migrations_missing")
    with dedicated(url) as connection:
        try:
            _take_lock(connection)
            return [file.name for file in files if _apply(connection, file)]
        except psycopg.Error as error:
            raise translated(error) from None


def pending(url: str, folder: Path = MIGRATIONS) -> list[str]:
    """Names of the files not yet applied. Raises DatabaseUnavailable."""
    with dedicated(url) as connection:
        exists = connection.execute("select to_regclass('public.schema_migration') is not null as found").fetchone()
        seen: set[str] = set()
        if exists and exists["found"]:
            seen = {row["name"] for row in connection.execute("select name from public.schema_migration")}
    return [file.name for file in sorted(folder.glob("[0-9]*.sql")) if file.name not in seen]


def _take_lock(connection: Connection) -> None:
    # Polled: a blocking pg_advisory_lock() deadlocks with CREATE INDEX CONCURRENTLY in the runner that holds it.
    while True:
        row = connection.execute("select pg_try_advisory_lock(%s) as taken", (_LOCK,)).fetchone()
        if row and row["taken"]:
            break
        time.sleep(0.2)
    connection.execute(
        "create table if not exists public.schema_migration "
        "(name text primary key, sha256 text not null, applied_at timestamptz not null default now())"
    )


def _apply(connection: Connection, file: Path) -> bool:
    text = file.read_text("utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    row = connection.execute("select sha256 from public.schema_migration where name = %s", (file.name,)).fetchone()
    if row:
        if row["sha256"] != digest:
            raise PermanentError("migration_edited", name=file.name)
        return False
    record = "insert into public.schema_migration (name, sha256) values (%s, %s)"
    if text.startswith("-- no-transaction"):
        connection.execute(text.encode())
        connection.execute(record, (file.name, digest))
    else:
        with connection.transaction():
            connection.execute(text.encode())
            connection.execute(record, (file.name, digest))
    return True
