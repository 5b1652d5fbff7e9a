"""The demo, from the outside: the program is started as `make demo-once` does and looked at when it has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from atlas_pipeline.embedded.demo import canary_of
from atlas_pipeline.embedded.house import MARKER, PROJECT
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.embedded.process import free_port, processes_with_marker
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.ocr.engine import Tesseract
from atlas_pipeline.ocr.mail import read_images
from atlas_pipeline.ocr.reader import Reader
from tests.fixtures_orchestration import clean_environment
from tests.notebook_runs import FOLDER, run

SECONDS = 600


@dataclass
class Ended:
    """A demo that has run to its end."""

    home: Path
    temporary: Path
    summary: dict[str, Any]
    errors: str

    @property
    def canary(self) -> str:
        """The word that exists in a screenshot alone."""
        return canary_of(datetime.fromisoformat((self.home / "demo" / "scene").read_text()))


def run_demo(home: Path, temporary: Path) -> tuple[int, str, str]:
    """`atlas demo --once` with nothing set but its folders and a free port for the UI."""
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment |= {
        "ATLAS_DEMO": "1",
        "ATLAS_HOME": str(home),
        "TMPDIR": str(temporary),
        "ATLAS_UI_PORT": str(free_port()),
    }
    done = subprocess.run(
        [sys.executable, "-m", "atlas_pipeline", "demo", "--once"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """One demo for all tests of this file."""
    home, temporary = tmp_path_factory.mktemp("house"), tmp_path_factory.mktemp("t")
    code, out, errors = run_demo(home, temporary)
    assert code == 0, f"{out}\n{errors}"
    return Ended(home, temporary, json.loads(out), errors)


@pytest.mark.timeout(SECONDS + 60)
def test_every_mail_of_the_demo_comes_to_its_expected_end(demo: Ended) -> None:
    """The whole way of a mail, on real components."""
    assert demo.summary["ok"] is True
    assert demo.summary["unexpected"] == []
    assert demo.summary["messages"] == {"actioned": 7, "blocked": 1, "closed": 3}
    assert demo.summary["qa"] == {"failed": 1, "passed": 1}
    assert demo.summary["ledger"]["duplicates"] == 1
    assert demo.summary["recaps"] == {"sent": 7}


def test_nothing_is_left_running(demo: Ended) -> None:
    """Neither Dagster nor a server, nor the database."""
    everyone = [
        pid
        for folder in Path("/proc").glob("[0-9]*")
        if (pid := folder.name) and _command(folder) and str(demo.home) in _command(folder)
    ]
    assert everyone == []
    assert processes_with_marker("ATLAS_HOME", str(demo.home)) == []
    assert MARKER not in os.environ


def test_a_second_start_goes_on_from_where_it_was(demo: Ended) -> None:
    """Nothing is delivered, started or sent again."""
    code, out, errors = run_demo(demo.home, demo.temporary)
    assert code == 0, errors
    again = json.loads(out)
    assert {**again, "seconds": 0} == {**demo.summary, "seconds": 0}
    assert "mailbox: as it was left" in errors


def test_a_word_that_only_a_screenshot_holds_is_in_no_row_file_or_log(demo: Ended) -> None:
    """The text of pictures is used in memory and kept nowhere. The control shows that the search would find it."""
    assert demo.errors.count(demo.canary) == 0
    assert list(files_holding(demo.canary, demo.home, demo.temporary)) == []
    server = EmbeddedPostgres(demo.home / "postgres")
    server.ensure()
    try:
        assert rows_holding(server, demo.canary) == []
        # The control: a word of a mail's subject is found, and so is the canary once it is planted in a row and a file.
        assert any("atlas.messages" in place for place in rows_holding(server, "Menuiserie Lorme"))
        with psycopg.connect(server.url("atlas"), autocommit=True) as conn:
            conn.execute("insert into atlas.doctrines (code, body) values ('control', %s)", (f"… {demo.canary} …",))
            assert rows_holding(server, demo.canary) == ["atlas: atlas.doctrines"]
            conn.execute("delete from atlas.doctrines where code = 'control'")
    finally:
        server.stop()
    planted = demo.home / "logs" / "control.log"
    planted.write_text(f"… {demo.canary} …")
    assert planted in files_holding(demo.canary, demo.home)
    planted.unlink()


def test_the_picture_with_the_word_was_read(demo: Ended) -> None:
    """Otherwise its absence would prove nothing: the audit says how many characters were read, and nothing of them."""
    (file,) = (file for file in (demo.home / "demo" / "maildir").rglob("*capture*"))
    read = read_images(
        parse(file.read_bytes()).parts,
        Reader(Tesseract("tesseract", "fra+eng", 20), max_pixels=40_000_000),
        max_images=5,
    )
    assert demo.canary in read.text.reveal()
    server = EmbeddedPostgres(demo.home / "postgres")
    server.ensure()
    try:
        with psycopg.connect(server.url("atlas")) as conn:
            details = [
                row[0] for row in conn.execute("select detail from atlas.audit_log where action = 'ocr_extracted'")
            ]
    finally:
        server.stop()
    assert len(details) == 1
    assert set(details[0]) == {"characters", "images"}
    assert details[0]["images"] == 1
    assert details[0]["characters"] > 100


@pytest.mark.timeout(SECONDS + 60)
def test_the_notebooks_run_on_the_demos_data(demo: Ended, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a reader of the demo opens next: the month's pictures, and the chantier's story without its content."""
    clean_environment(monkeypatch)
    server = EmbeddedPostgres(demo.home / "postgres")
    server.ensure()
    try:
        monkeypatch.setenv("ATLAS_DATABASE_URL", server.url("atlas"))
        with psycopg.connect(server.url("atlas")) as conn:
            (key, month), = conn.execute(
                "select c.message_key, to_char(c.created_at at time zone 'Europe/Paris', 'YYYY-MM') from atlas.chantiers c"
            ).fetchall()  # fmt: skip
        names, shown = run(FOLDER / "calibration.ipynb", month=month)
        _names, story = run(FOLDER / "message.ipynb", key=key)
    finally:
        server.stop()
    metrics = names["metrics"]
    assert (metrics.classifications, metrics.recaps.sent, metrics.blocked) == (10, 7, 1)
    assert metrics.attempts.by_attempt == ((2, 1),)
    drawn = [one for one in shown if hasattr(one, "_repr_svg_")]
    assert [one.name for one in drawn] == ["volume", "reliability", "success", "guards", "cost", "latency"]
    told = "".join(one.to_string() for one in story)
    assert "qa_passed" in told
    # The browser's findings are told; the mail's subject and words are not.
    assert "calculerTotale is not defined" in told
    assert all(word not in told for word in ("deux pages", "Peux-tu", "navigateur"))


def files_holding(word: str, *folders: Path) -> Iterator[Path]:
    """Files below these folders whose bytes hold the word; the database's own are searched as rows as well."""
    for folder in folders:
        for file in folder.rglob("*"):
            if file.is_file() and not file.is_symlink() and word.encode() in file.read_bytes():
                yield file


def rows_holding(server: EmbeddedPostgres, word: str) -> list[str]:
    """Tables of both databases with a row that holds the word as text, compressed columns included."""
    found = []
    for database in ("atlas", "dagster"):
        with psycopg.connect(server.url(database)) as conn:
            tables = conn.execute(
                "select table_schema || '.' || table_name from information_schema.tables "
                "where table_schema not in ('pg_catalog', 'information_schema') and table_type = 'BASE TABLE' order by 1"
            ).fetchall()
            for (table,) in tables:
                query = sql.SQL("select exists (select from {} t where t::text like %s)")
                row = conn.execute(query.format(sql.Identifier(*table.split(".", 1))), (f"%{word}%",)).fetchone()
                if row and row[0]:
                    found.append(f"{database}: {table}")
    return found


def _command(folder: Path) -> str:
    try:
        return (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
