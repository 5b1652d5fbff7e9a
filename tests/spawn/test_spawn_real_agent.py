"""The real Claude CLI through the wrapper, and whether the stand-in prints what it prints.

Where the program is found only (``make test-claude`` installs it); its model is a Messages API on loopback.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atlas_pipeline.embedded.tenant import ensure_demo_tenant
from atlas_pipeline.model import Profile, SpawnResult, Tenant
from atlas_pipeline.spawn.events import AgentEvent
from atlas_pipeline.spawn.prompts import PromptFacts, new_marker, system_prompt, user_prompt
from atlas_pipeline.spawn.session import AgentSpec, run_agent
from atlas_pipeline.spawn.worktree import prepare
from tests.fixtures_claude import MessagesApi, real_claude, text, use
from tests.fixtures_spawn import Runs, git

REAL = real_claude()
pytestmark = pytest.mark.skipif(REAL is None, reason="the Claude CLI is not installed; make test-claude does")


class Claude:
    """Runs of the real program, in a HOME of its own."""

    def __init__(self, runs: Runs, api: MessagesApi, folder: Path) -> None:
        self.runs, self.api, self.home = runs, api, folder / "claude-home"
        self.home.mkdir()

    def spec(self, prompt: str, profile: Profile = Profile.WRITE, cwd: Path | None = None) -> AgentSpec:
        """A run of it."""
        assert REAL is not None
        spec = self.runs.spec(prompt, profile, cwd)
        return replace(spec, agent_bin=REAL, model="sonnet", timeout_seconds=60, start_timeout_seconds=30)

    def environment(self) -> dict[str, str]:
        """Ours, and what leads it to the loopback API."""
        return {
            **self.runs.environment("ok"),
            "HOME": str(self.home),
            "ANTHROPIC_BASE_URL": self.api.url,
            "ANTHROPIC_API_KEY": "not-a-key",
            "CLAUDE_CODE_MAX_RETRIES": "1",
        }

    def run(self, spec: AgentSpec) -> tuple[SpawnResult, list[AgentEvent]]:
        """To its end."""
        events: list[AgentEvent] = []
        return run_agent(spec, events.extend, lambda: False, environment=self.environment()), events


@pytest.fixture
def claude(runs: Runs, messages_api: MessagesApi, tmp_path: Path) -> Claude:
    return Claude(runs, messages_api, tmp_path)


def test_a_run_with_edits_a_commit_and_a_result_file_is_ok(claude: Claude, repository: Path, tmp_path: Path) -> None:
    tree = prepare(repository, "main", "20261201-000001", tmp_path / "trees")
    spec = claude.spec("Change the page.", cwd=tree.path)
    result_file = json.dumps({"status": "ok", "routes": ["/"]})
    claude.api.script = [
        [text("I look."), use("Read", file_path=str(tree.path / "site" / "page.txt"))],
        [use("Edit", file_path=str(tree.path / "site" / "page.txt"), old_string="one", new_string="two")],
        [use("Bash", command="git commit -qam 'Two' && git log --oneline | head -1", description="commit")],
        [use("Write", file_path=str(spec.result_path), content=result_file)],
        [text("It is done: « é » 🙂")],
    ]
    result, events = claude.run(spec)
    assert (result.ok, result.code, result.exit_status, result.denials) == (True, "ok", 0, 0)
    assert spec.result_path.read_text() == result_file
    assert git(tree.path, "log", "-1", "--format=%an %s") == "Atlas Two"
    assert result.tokens_in is not None
    assert result.tokens_in >= 5 * 11
    assert result.tokens_cache_read == 5 * 7
    assert {event.tool for event in events} >= {"Read", "Edit", "Bash", "Write"}
    assert [event.type for event in events][-2:] == ["result.success", "node_pty_exit"]
    system = json.dumps(claude.api.asked[0]["system"])
    assert "You are tested." in system
    assert "Change the page." in json.dumps(claude.api.asked[0]["messages"])


def test_a_reader_can_write_its_result_file_and_nothing_else(claude: Claude, repository: Path) -> None:
    spec = claude.spec("Read.", Profile.READ, repository)
    claude.api.script = [
        [use("Bash", command="touch made-by-bash", description="x")],
        [use("Write", file_path=str(repository / "site" / "made.txt"), content="x")],
        [use("Edit", file_path=str(repository / "site" / "page.txt"), old_string="one", new_string="two")],
        [use("Write", file_path=str(spec.result_path), content="{}")],
        [text("Denied, and ended well.")],
    ]
    result, events = claude.run(spec)
    assert result.ok
    assert result.denials >= 1
    assert spec.result_path.read_text() == "{}"
    assert git(repository, "status", "--porcelain") == ""
    assert {event.type for event in events} >= {"system.permission_denied"}
    offered = {tool["name"] for tool in claude.api.asked[0]["tools"]}
    assert not offered & {"Bash", "WebFetch", "WebSearch", "Task", "NotebookEdit"}


@pytest.mark.parametrize(("status", "code"), [(500, "api_unavailable"), (401, "not_logged_in"), (400, "api_error")])
def test_an_error_of_the_api_is_no_success(claude: Claude, status: int, code: str) -> None:
    """The program says ``success`` there, with ``is_error``."""
    claude.api.script = [status] * 20
    result, _events = claude.run(claude.spec("Anything."))
    assert (result.ok, result.code) == (False, code)


def test_told_to_stop_it_ends_with_its_tools(claude: Claude) -> None:
    claude.api.script = [[use("Bash", command="tail -f /dev/null", description="wait")]]
    begun = time.monotonic()
    events: list[AgentEvent] = []

    def started() -> bool:
        return any(event.tool == "Bash" and event.type == "assistant.tool_use" for event in events)

    result = run_agent(claude.spec("Wait."), events.extend, started, environment=claude.environment())
    assert result.code == "cancelled"
    assert time.monotonic() - begun < 30


# The stand-in beside it
# ----------------------

# What differs by nature: the arguments and results of tools, the names of models, which tools there are.
OPAQUE = {"input", "tool_use_result", "modelUsage", "tool_input", "content_block"}


def kinds(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every field below an event, dotted, with its JSON type."""
    names = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    yield path, names.get(type(value), "null")
    if isinstance(value, dict) and path.rpartition(".")[2] not in OPAQUE:
        for name, inner in value.items():
            yield from kinds(inner, f"{path}.{name}")
    if isinstance(value, list):
        for inner in value:
            yield from kinds(inner, f"{path}[]")


def shapes(events: list[AgentEvent]) -> dict[str, dict[str, set[str]]]:
    """By type of event: the JSON types that each field was seen with."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for event in events:
        if not event.type.startswith(("node_pty", "wrapper")):
            for path, kind in kinds(event.payload):
                found[event.type][path].add(kind)
    return found


def standin_events(runs: Runs, facts: PromptFacts, tenant: Tenant, trees: Path) -> list[AgentEvent]:
    """A chantier that is edited and committed, what a reader is denied, and the errors."""
    events: list[AgentEvent] = []
    for profile in (Profile.WRITE, Profile.READ):
        tree = prepare(Path(tenant.repository or ""), tenant.branch, f"20261201-{profile.value}", trees)
        spec = runs.spec(profile=profile, cwd=tree.path)
        told = replace(facts, tenant=tenant, result_path=spec.result_path, profile=Profile.WRITE)
        system = system_prompt(persona="Ada", zones=tenant.zones, result_path=spec.result_path, language="fr")
        spec = replace(spec, prompt=user_prompt(told, new_marker()), system_prompt=system)
        events += runs.run("ok", spec)[1]
    for mode in ("api_error", "max_turns"):
        events += runs.run(mode)[1]
    return events


def test_what_the_stand_in_prints_the_real_program_prints_too(
    claude: Claude, runs: Runs, facts: PromptFacts, tmp_path: Path
) -> None:
    """Types and sub-types, and each field of the stand-in's with its type: the tests beside this one would else prove little."""
    tenant = ensure_demo_tenant(tmp_path / "demo", 1)
    ours = shapes(standin_events(runs, facts, tenant, tmp_path / "trees"))
    page = tmp_path / "page.txt"
    page.write_text("one\n")
    real: list[AgentEvent] = []
    for profile, script in (
        (
            Profile.WRITE,
            [
                [text("I look."), use("Read", file_path=str(page))],
                [use("Bash", command="false", description="fails")],
                [text("Done.")],
            ],
        ),
        (Profile.READ, [[use("Write", file_path=str(page), content="x")], [text("Denied.")]]),
        (Profile.WRITE, [500] * 20),
    ):
        claude.api.script = list(script)
        real += claude.run(claude.spec("Go.", profile))[1]
    theirs = shapes(real)
    assert set(ours) >= {
        "system.init",
        "assistant.tool_use",
        "user.tool_result",
        "system.permission_denied",
        "result.success",
    }
    # The only one that can't be had here: turns are limited by a flag that Atlas does not use.
    unheard = set(ours) - set(theirs) - {"result.error_max_turns"}
    assert unheard == set()
    differing = {
        f"{kind}{path}": (sorted(seen), sorted(theirs[kind].get(path, ())))
        for kind, fields in ours.items()
        if kind in theirs
        for path, seen in fields.items()
        if not seen <= theirs[kind].get(path, set()) | {"null"}
    }
    assert differing == {}
