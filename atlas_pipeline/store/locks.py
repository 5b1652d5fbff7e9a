"""Session advisory locks of a message and of a tenant, each on a connection of its own: they end with the process, whatever happens.

A holder that is frozen, or cut off from the server, ends nothing. So the session of each says a word a minute: what has
been silent for long has no living holder, and the guard may end it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psycopg

from atlas_pipeline.store.database import Connection, dedicated, translated

LOCK_CLASS, TENANT_CLASS = 4711, 4712
BEAT_SECONDS = 60.0
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Holder:
    """Who holds a message's lock: its process in the server, and for how many seconds nothing was heard from it."""

    seq: int
    backend: int
    silent_seconds: float


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
        with _beating(connection):
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
        with _beating(connection):
            yield taken


@contextmanager
def _beating(connection: Connection) -> Iterator[None]:
    over = threading.Event()

    def beat() -> None:
        while not over.wait(BEAT_SECONDS):
            try:
                connection.execute("select 1")
            except psycopg.Error:
                # The lock went with its session. The work goes on: its own heartbeat keeps others away.
                return

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=1)
        with suppress(psycopg.Error):  # a session that is gone holds nothing
            # A closed connection is noticed a little later, and our own next stage would find the lock held.
            connection.execute("select pg_advisory_unlock_all()")


def _try_tenant(connection: Connection, slug: str) -> bool:
    row = connection.execute("select pg_try_advisory_lock(%s, hashtext(%s)) as taken", (TENANT_CLASS, slug)).fetchone()
    return bool(row and row["taken"])


def _try(connection: Connection, seq: int) -> bool:
    row = connection.execute("select pg_try_advisory_lock(%s, %s) as taken", (LOCK_CLASS, seq)).fetchone()
    return bool(row and row["taken"])


def holders(conn: Connection) -> list[Holder]:
    """All message locks held in this database now, by anyone."""
    rows = conn.execute(
        "select l.objid::bigint as seq, l.pid as backend, "
        "coalesce(extract(epoch from clock_timestamp() - a.state_change), 0)::float as silent_seconds "
        "from pg_locks l join pg_stat_activity a using (pid) "
        "where l.locktype = 'advisory' and l.classid = %s and l.objsubid = 2 and l.granted "
        "and l.database = (select oid from pg_database where datname = current_database())",
        (LOCK_CLASS,),
    )
    return [Holder(**row) for row in rows]


def end_session(conn: Connection, holder: Holder) -> bool:
    """End a holder's session, and its locks with it, unless the lock has another holder by now; True once it has ended."""
    row = conn.execute(
        "select pg_terminate_backend(pid, 5000) as ended from pg_locks where locktype = 'advisory' and classid = %s "
        "and objid::bigint = %s and objsubid = 2 and granted and pid = %s "
        "and database = (select oid from pg_database where datname = current_database())",
        (LOCK_CLASS, holder.seq, holder.backend),
    ).fetchone()
    return bool(row and row["ended"])
