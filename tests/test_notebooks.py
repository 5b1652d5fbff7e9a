"""Notebooks run from top to bottom on real databases, and are kept without outputs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import dict_row

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.flow.calibrating import calibrate
from atlas_pipeline.flow.parts import opened
from atlas_pipeline.model import Intent
from atlas_pipeline.settings import Settings
from atlas_pipeline.store.migrate import migrate
from tests.fixtures_flow import Bench, letter
from tests.fixtures_orchestration import set_environment
from tests.generated_year import generate
from tests.notebook_runs import FOLDER, cells, run

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def year(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A database with a made-up year."""
    url = postgres_server.ensure_database("generated_year")
    migrate(url)
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        generate(connection, cases=2000)
    yield url
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute("drop database generated_year with (force)")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_on_an_empty_database(
    notebook: Path, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened in bad months, too."""
    migrate(empty_database)
    monkeypatch.setenv("ATLAS_DATABASE_URL", empty_database)
    _names, shown = run(notebook)
    assert all(hasattr(one, "_repr_svg_") or hasattr(one, "_repr_html_") for one in shown)


def test_the_calibration_notebook_shows_the_reports_own_numbers_and_pictures(
    year: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ATLAS_DATABASE_URL", year)
    names, shown = run(FOLDER / "calibration.ipynb", month="2024-08")
    with opened(Settings(home=tmp_path), year) as parts:
        assert names["metrics"] == calibrate(parts, "2024-08")[0]
    drawn = [one for one in shown if hasattr(one, "_repr_svg_")]
    assert [one.name for one in drawn] == ["volume", "reliability", "success", "guards", "cost", "latency"]
    assert all("<svg " in one._repr_svg_() and "2024-08" in one._repr_svg_() for one in drawn)


def test_the_message_notebook_tells_the_story_and_no_content_unless_asked(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of the pipeline's own, the way the demo's come."""
    set_environment(monkeypatch, bench)
    key = bench.take_in(letter("Zinnober", "Bonjour, un mot rare : zinnober.\n"), Intent.QUESTION)
    names, shown = run(FOLDER / "message.ipynb", key=key)
    told = "".join(one.to_string() for one in shown)
    assert all(word in told for word in ("question", "classified", "mistral/", key))
    assert "innober" not in told + str({name: names[name] for name in ("story", "decisions", "events", "text")})
    _names, asked = run(FOLDER / "message.ipynb", key=key, content=True)
    assert "Zinnober" in "".join(one.to_string() for one in asked)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    """Outputs are data of a real agency."""
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells(notebook))
