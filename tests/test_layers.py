"""Who may import whom. Read from the source, imports inside functions included."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import atlas_pipeline
from atlas_pipeline.settings import Settings

PACKAGE = Path(atlas_pipeline.__file__).parent
README = PACKAGE.parent / "README.md"

# In flow order: none may import a later one.
STAGES = ("mailbox", "scan", "ocr", "ai", "classify", "agents", "spawn", "release", "recap", "calibration")
FREE = {"errors", "model", "text"}
# What each part may import, and nothing else. A stage imports no other stage at all: ``flow`` chains them, and hands each
# plain values; nor does it know the settings or the store.
MAY = {
    "errors": set[str](),
    "model": set[str](),
    "text": set[str](),
    "settings": set[str](),
    **dict.fromkeys(STAGES, FREE),
    "store": FREE,
    # scan: the embedded clamd is asked as the real one; store: the demo's outcome is read from the tables
    "embedded": FREE | {"settings", "scan", "store"},
    "flow": FREE | set(STAGES) | {"settings", "store", "embedded"},
    # spawn: one dataclass, what the choice of candidates counts as live
    "orchestration": {"errors", "settings", "flow", "store", "spawn"},
    # orchestration: see IMPORTERS_OF_ORCHESTRATION
    "cli": FREE
    | {"settings", "store", "embedded", "flow", "orchestration"}
    | {"mailbox", "scan", "ocr", "classify", "release", "calibration"},
    "definitions": {"orchestration"},
    "__main__": {"cli"},
}
# Dagster's entry point, and ``atlas up``, which ends the runs that a killed house left before it starts Dagster.
IMPORTERS_OF_ORCHESTRATION = {"definitions.py", "cli/house.py"}
# Libraries that belong to one place.
ONLY_IN = {
    "dagster": {"orchestration/"},
    "smtplib": {"recap/send.py"},
    "imapclient": {"mailbox/"},
    "playwright": {"release/"},
    # doctor and the embedded server ask a server before there is a pool; flow knows one error by name
    "psycopg": {"store/", "embedded/postgres.py", "cli/doctor.py", "flow/understanding.py"},
    "psycopg_pool": {"store/database.py"},
    "click": {"cli/"},
    "rich": {"cli/"},
}


@cache
def imports() -> dict[str, set[str]]:
    """The full names imported by each file of the package, by its path below it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("embedded/site/template/"):  # the demo tenant's site, not ours
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found[name].add(str(node.module))
                if node.module == "atlas_pipeline":
                    found[name] |= {f"atlas_pipeline.{alias.name}" for alias in node.names}
    return found


def part(name: str) -> str:
    """The package or module a file belongs to."""
    return name.partition("/")[0].removesuffix(".py")


@cache
def edges() -> set[tuple[str, str, str]]:
    """(part, part it imports, file) wherever the two differ."""
    found = set()
    for name, modules in imports().items():
        for module in modules:
            if module.startswith("atlas_pipeline."):
                target = module.split(".")[1]
                if target != part(name):
                    found.add((part(name), target, name))
    return found


def test_every_part_imports_only_what_it_may() -> None:
    """A new edge is a decision: it is made in this file."""
    assert [(name, target) for source, target, name in sorted(edges()) if target not in MAY[source]] == []


def test_every_part_is_in_the_table_and_the_table_names_no_part_that_is_gone() -> None:
    """A new package has to say what it may import."""
    assert {part(name) for name in imports()} - {"__init__"} <= set(MAY)
    assert all((PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file() for name in MAY)


def test_no_stage_imports_a_later_one() -> None:
    """This holds even where the table is loosened one day."""
    order = {stage: place for place, stage in enumerate(STAGES)}
    assert [edge for edge in edges() if edge[0] in order and edge[1] in order and order[edge[1]] > order[edge[0]]] == []


def test_what_may_be_imported_forms_no_circle() -> None:
    """Every part can be understood before those above it."""
    assert len(list(TopologicalSorter(MAY).static_order())) == len(MAY)


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_stays_where_it_belongs(library: str) -> None:
    """Dagster in ``orchestration``, the one way out in ``recap/send.py``, SQL in ``store``."""
    users = {n for n, modules in imports().items() if library in {module.partition(".")[0] for module in modules}}
    places = ONLY_IN[library]
    assert [name for name in users if not any(name.startswith(place) for place in places)] == []
    assert [place for place in places if not any(name.startswith(place) for name in users)] == []


def test_only_the_entry_point_and_the_house_import_the_orchestration() -> None:
    """Whoever imports it imports Dagster."""
    assert {name for _source, target, name in edges() if target == "orchestration"} == IMPORTERS_OF_ORCHESTRATION


def test_the_command_line_starts_without_dagster() -> None:
    """Half a second for every verb that doesn't need it."""
    said = _python("import sys, atlas_pipeline.cli; print('dagster' in sys.modules)")
    assert said == "False"


_NO_IO = """
import importlib, os, pkgutil, sys
import pydantic
import atlas_pipeline

pydantic.create_model("First")  # at a process's first model it looks for plug-ins, whoever defines that model

ROOT = os.path.dirname(atlas_pipeline.__file__)
WORLD = ("socket.connect", "socket.bind", "socket.getaddrinfo", "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn",
         "os.fork", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.chmod", "shutil.rmtree", "sqlite3.connect")
seen = []

def ours():
    # Called by code of ours, through whatever library; what a library does at its own import is its own affair.
    frame = sys._getframe(2)
    while frame and not frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_code.co_filename.startswith(ROOT):
            return True
        frame = frame.f_back
    return False

def hook(event, arguments):
    if event in WORLD and ours():
        seen.append(event)
    if event == "open" and isinstance(arguments[0], (str, bytes)) and ours():
        path = os.fsdecode(arguments[0])
        # A schedule's time zone is looked up when the schedule is made.
        if arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) or not (path.endswith((".py", ".pyc")) or "zoneinfo" in path):
            seen.append(f"open {path}")

sys.addaudithook(hook)
for module in pkgutil.walk_packages(atlas_pipeline.__path__, "atlas_pipeline."):
    # Two are programs: they do their work when they are run, and one of them is imported under its own name alone.
    if module.name not in {"atlas_pipeline.__main__", "atlas_pipeline.embedded.standin.claude"}:
        importlib.import_module(module.name)
if len(sys.argv) > 1:
    exec(compile(sys.argv[1], ROOT + "/control.py", "exec"))
print(seen)
"""


def test_importing_any_module_does_no_input_or_output() -> None:
    """A code server, a test, a tool may import what it likes: files, sockets and processes belong to calls."""
    assert _python(_NO_IO) == "[]"


def test_input_and_output_at_import_would_be_seen() -> None:
    """The control of the test above."""
    careless = "import subprocess; open('/etc/hostname').close(); subprocess.run(['true'])"
    seen = _python(_NO_IO, careless)
    assert "open /etc/hostname" in seen
    assert "subprocess.Popen" in seen


def _python(code: str, *arguments: str) -> str:
    """What a fresh interpreter prints, without a variable of ours and without writing bytecode."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ATLAS_", "DAGSTER_"))}
    command = [sys.executable, "-B", "-W", "ignore", "-c", code, *arguments]
    done = subprocess.run(command, cwd=PACKAGE.parent, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# Settings and their table
# ------------------------

# Variables that are no settings: Dagster's own folder is read by dagster.yaml, the corpus by tests.
OTHER_VARIABLES = {"ATLAS_DAGSTER_DIR", "ATLAS_CORPUS"}


def variables() -> dict[str, str]:
    """Every environment variable of the settings, with its description."""
    names = {}
    for name, field in Settings.model_fields.items():
        alias = getattr(field.validation_alias, "choices", [f"ATLAS_{name.upper()}"])[0]
        names[str(alias)] = field.description or ""
    return names


def test_every_setting_says_what_it_is() -> None:
    """Docs are made from it."""
    assert [name for name, description in variables().items() if not description] == []


def test_the_readmes_table_names_every_variable_and_no_other() -> None:
    """A setting nobody can find is none, and one that is gone misleads."""
    text = README.read_text("utf-8") if README.exists() else ""
    rows = [line for line in text.splitlines() if re.match(r"\|\s*`[A-Z]+_[A-Z_]+`", line)]
    if not rows:  # the table is part of the README, which is written last
        return
    named = set(re.findall(r"`([A-Z]+_[A-Z_]+)`", "\n".join(row.split("|")[1] for row in rows)))
    assert sorted(set(variables()) - named) == []
    assert sorted(named - set(variables()) - OTHER_VARIABLES) == []
