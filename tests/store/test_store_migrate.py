"""Migrations: each once, in order, whole or not at all."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest

from atlas_pipeline.errors import DatabaseUnavailable, PermanentError
from atlas_pipeline.store.migrate import MIGRATIONS, migrate, pending
from tests.fixtures_flow import ROOT, ended
from tests.fixtures_release import wait_until


def folder_with(folder: Path, **files: str) -> Path:
    """A folder of migrations, named in the order given."""
    folder.mkdir(exist_ok=True)
    for number, (name, text) in enumerate(files.items(), start=1):
        (folder / f"{number:04d}_{name}.sql").write_text(text)
    return folder


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        found = connection.execute("select tablename from pg_tables where schemaname = 'public'")
        return {name for (name,) in found}


def test_every_migration_is_applied_once_and_in_order(empty_database: str) -> None:
    names = sorted(file.name for file in MIGRATIONS.glob("*.sql"))
    assert pending(empty_database) == names
    assert migrate(empty_database) == names
    assert migrate(empty_database) == []
    assert pending(empty_database) == []


def test_a_file_edited_after_it_was_applied_is_refused_and_the_next_is_not_applied(
    empty_database: str, tmp_path: Path
) -> None:
    folder = folder_with(tmp_path / "sql", one="create table one ();")
    migrate(empty_database, folder)
    folder_with(folder, one="create table one (id int);", two="create table two ();")
    with pytest.raises(PermanentError) as refused:
        migrate(empty_database, folder)
    assert (refused.value.code, refused.value.detail) == ("migration_edited", {"name": "0001_one.sql"})
    assert tables(empty_database) == {"schema_migration", "one"}


def test_a_folder_without_migrations_is_an_error_and_not_an_empty_success(empty_database: str, tmp_path: Path) -> None:
    with pytest.raises(PermanentError) as refused:
        migrate(empty_database, tmp_path)
    assert refused.value.code == "migrations_missing"


def test_a_database_that_does_not_answer_is_a_coded_error(unused_port: int) -> None:
    with pytest.raises(DatabaseUnavailable):
        migrate(f"postgresql://postgres@127.0.0.1:{unused_port}/atlas")


def test_a_file_that_fails_leaves_nothing_of_itself_and_keeps_what_came_before(
    empty_database: str, tmp_path: Path
) -> None:
    folder = folder_with(tmp_path / "sql", one="create table one ();", two="create table two (); select 1 / 0;")
    with pytest.raises(PermanentError) as refused:
        migrate(empty_database, folder)
    assert (refused.value.code, refused.value.detail) == ("database_refused", {"sqlstate": "22012"})
    assert tables(empty_database) == {"schema_migration", "one"}
    folder_with(folder, one="create table one ();", two="create table two ();")
    assert migrate(empty_database, folder) == ["0002_two.sql"]


def test_a_runner_killed_inside_a_file_leaves_nothing_and_does_not_hold_up_the_next(
    empty_database: str, tmp_path: Path
) -> None:
    slow = "create table one (); select pg_sleep(600);"
    folder = folder_with(tmp_path / "sql", one=slow)
    code = f"from pathlib import Path; from atlas_pipeline.store.migrate import migrate; migrate({empty_database!r}, Path({str(folder)!r}))"
    runner = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
    with psycopg.connect(empty_database, autocommit=True) as watching:
        sleeping = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"
        wait_until(lambda: watching.execute(sleeping).fetchone() == (1,))
        runner.send_signal(signal.SIGKILL)
        ended(runner)
        folder_with(folder, one="create table one ();")
        assert migrate(empty_database, folder) == ["0001_one.sql"]
    assert tables(empty_database) == {"schema_migration", "one"}


def test_runners_that_start_together_apply_each_file_once(empty_database: str, tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "sql", one="create table one (); select pg_sleep(0.3);", two="create table two ();")
    applied: list[list[str]] = []
    threads = [threading.Thread(target=lambda: applied.append(migrate(empty_database, folder))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(applied) == [[], [], [], ["0001_one.sql", "0002_two.sql"]]


def test_an_index_built_outside_a_transaction_does_not_deadlock_with_waiting_runners(
    empty_database: str, tmp_path: Path
) -> None:
    folder = folder_with(
        tmp_path / "sql",
        one="create table one (id int);",
        two="-- no-transaction\ncreate index concurrently one_id on one (id)",
    )
    applied: list[list[str]] = []
    threads = [threading.Thread(target=lambda: applied.append(migrate(empty_database, folder))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(applied) == [[], ["0001_one.sql", "0002_two.sql"]]
