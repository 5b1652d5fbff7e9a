"""Real servers for tests: one embedded PostgreSQL and one embedded clamd for the whole session."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from atlas_pipeline.embedded.clamd import EmbeddedClamd
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.scan.client import ClamdClient

CLAMD_STREAM_MAX_BYTES = 1_000_000  # small, so that tests of limits stay fast


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A running server, stopped at the end of the session."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("postgres"))
    server.ensure()
    yield server
    server.stop()


@pytest.fixture
def empty_database(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """The URL of a new, empty database; dropped afterwards, connections and all."""
    name = f"test_{secrets.token_hex(6)}"
    yield postgres_server.ensure_database(name)
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def clamd() -> Iterator[str]:
    """``unix:/path`` of a clamd that knows EICAR alone, and takes streams of up to a million bytes."""
    folder = Path(tempfile.mkdtemp(prefix="atlas-"))
    server = EmbeddedClamd(folder, stream_max_bytes=CLAMD_STREAM_MAX_BYTES)
    yield server.ensure()
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def clamd_client(clamd: str) -> ClamdClient:
    """A client of it that knows its limit."""
    return ClamdClient(clamd, stream_max_bytes=CLAMD_STREAM_MAX_BYTES)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A private folder with a short path: the path of a Unix socket has to stay under 108 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="atlas-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
