"""Notebooks from top to bottom in this process, as a headless run of CI does it: no kernel, no Jupyter."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"


def cells(notebook: Path) -> list[dict[str, Any]]:
    """The code cells."""
    return [cell for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]


def run(notebook: Path, **parameters: object) -> tuple[dict[str, Any], list[Any]]:
    """Run all cells, the parameters put in after their cell; the names they leave, and what each cell shows."""
    names: dict[str, Any] = {}
    shown: list[Any] = []
    for cell in cells(notebook):
        tree = ast.parse("".join(cell["source"]), str(notebook))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(notebook), "exec"), names)  # noqa: S102  # our own file
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), str(notebook), "eval"), names))  # noqa: S307
        if "parameters" in cell["metadata"].get("tags", []):
            names.update(parameters)
    return names, shown
