"""Session advisory locks of a message and of a tenant, each on a connection of its own: they end with the process, whatever happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg

from atlas_pipeline.store.database import Connection, dedicated, translated

LOCK_CLASS, TENANT_CLASS = 4711, 4712
_LOOK_SECONDS = 0.5


@contextmanager
def message_lock(url: str, seq: int) -> Iterator[bool]:
    """Hold ``(4711, ledger sequence)`` while the block runs; yields False, without waiting, where another holds it.

    The connection is never pooled: an unlock on another session would do nothing, silently. Raises DatabaseUnavailable.
    """
    with dedicated(url) as connection:
        try:
            taken = _try(connection, seq)
        except psycopg.Error as error:
            raise translated(error) from None
        with _given_back(connection):
            yield taken


@contextmanager
def tenant_lock(url: str, slug: str, *, wait_seconds: float) -> Iterator[bool]:
    """Hold a tenant's pre-production while the block runs; yields False where another held it all of ``wait_seconds``.

    Raises DatabaseUnavailable.
    """
    with dedicated(url) as connection:
        deadline = time.monotonic() + wait_seconds
        try:
            while not (taken := _try_tenant(connection, slug)) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        except psycopg.Error as error:
            raise translated(error) from None
        with _given_back(connection):
            yield taken


@contextmanager
def _given_back(connection: Connection) -> Iterator[None]:
    """Unlock at the end of the block: a closed connection's locks end only once the server has noticed, and the next stage
    of the same run, which asks at once, would be refused.
    """
    try:
        yield
    finally:
        with suppress(psycopg.Error):  # the connection is gone, and its locks with it
            connection.execute("select pg_advisory_unlock_all()")


def _try_tenant(connection: Connection, slug: str) -> bool:
    row = connection.execute("select pg_try_advisory_lock(%s, hashtext(%s)) as taken", (TENANT_CLASS, slug)).fetchone()
    return bool(row and row["taken"])


def _try(connection: Connection, seq: int) -> bool:
    row = connection.execute("select pg_try_advisory_lock(%s, %s) as taken", (LOCK_CLASS, seq)).fetchone()
    return bool(row and row["taken"])


def held(conn: Connection) -> set[int]:
    """Ledger sequences of all message locks held now, by anyone."""
    rows = conn.execute(
        "select objid::bigint as seq from pg_locks where locktype = 'advisory' and classid = %s and objsubid = 2 and granted",
        (LOCK_CLASS,),
    )
    return {row["seq"] for row in rows}
