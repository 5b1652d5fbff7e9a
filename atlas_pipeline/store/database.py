"""The connection pool, and the one place where a psycopg error becomes a coded one. No queries here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from atlas_pipeline.errors import AtlasError, DatabaseUnavailable, PermanentError

Row = dict[str, Any]
Connection = psycopg.Connection[Row]


# What the server says for ever of this statement, though psycopg calls it operational: limits of a row, index or value.
_PROGRAM_LIMIT = "54"


def translated(error: psycopg.Error) -> AtlasError:
    """The coded twin of a psycopg error. The original's text may quote a row, so it is never chained."""
    limit = (error.sqlstate or "").startswith(_PROGRAM_LIMIT)
    if isinstance(error, psycopg.OperationalError) and not limit:
        return DatabaseUnavailable("database_unreachable", sqlstate=error.sqlstate)
    return PermanentError("database_refused", sqlstate=error.sqlstate)


@contextmanager
def dedicated(url: str) -> Iterator[Connection]:
    """A connection of its own, autocommit, for session advisory locks. Raises DatabaseUnavailable.

    The check interval makes the server notice within a second that we died, even inside a running statement.
    """
    try:
        connection = psycopg.connect(
            url,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=10,
            options="-c client_connection_check_interval=1s",
        )
    except psycopg.Error as error:
        raise translated(error) from None
    try:
        yield connection
    finally:
        connection.close()


class Database:
    """Atlas's database: a small pool that is opened on first use and survives a restart of the server."""

    def __init__(self, url: str, *, max_size: int = 4, timeout_seconds: float = 15.0) -> None:
        """``timeout_seconds`` is how long a connection is waited for before the server counts as gone."""
        self.url = url
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            url,
            connection_class=psycopg.Connection[Row],
            min_size=0,
            max_size=max_size,
            open=False,
            timeout=timeout_seconds,
            kwargs={"row_factory": dict_row, "connect_timeout": 10},
            check=ConnectionPool.check_connection,
        )

    def close(self) -> None:
        """Close the pool; the object can't be used again."""
        self._pool.close()

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction: committed at the end, rolled back on any exception.

        Raises DatabaseUnavailable where the server is gone and PermanentError("database_refused") where it said no.
        """
        try:
            self._pool.open()
            with self._pool.connection() as connection:
                yield connection
        except PoolTimeout:
            raise DatabaseUnavailable("database_unreachable", sqlstate=None) from None
        except psycopg.Error as error:
            raise translated(error) from None
