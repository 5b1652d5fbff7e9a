"""The session advisory lock of a message, on a connection of its own: it ends with the process, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from atlas_pipeline.store.database import Connection, dedicated, translated

LOCK_CLASS = 4711


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
        yield taken


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
