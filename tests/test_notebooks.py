"""Notebooks run from top to bottom on a real database, and are kept without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

from atlas_pipeline.store.migrate import migrate

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(notebook: Path) -> list[dict[str, Any]]:
    """The code cells."""
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(
    notebook: Path, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened in bad months, too: an empty database must not break it."""
    mpl.use("Agg")
    migrate(empty_database)
    monkeypatch.setenv("ATLAS_DATABASE_URL", empty_database)
    names: dict[str, Any] = {}
    for cell in cells(notebook):
        exec(compile("".join(cell["source"]), str(notebook), "exec"), names)  # noqa: S102  # our own file
    assert names["metrics"].classifications == 0
    names["plt"].close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    """Outputs are data of a real agency."""
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells(notebook))
