"""The stand-in: faithful where Atlas looks, and really mending the demo site, one attempt at a time."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from atlas_pipeline.embedded import standin
from atlas_pipeline.embedded.tenant import ensure_demo_tenant
from atlas_pipeline.model import Contract, Intent, Profile, SpawnResult, Tenant
from atlas_pipeline.spawn.contract import read_contract
from atlas_pipeline.spawn.events import AgentEvent
from atlas_pipeline.spawn.prompts import Feedback, PromptFacts, new_marker, system_prompt, user_prompt
from atlas_pipeline.spawn.worktree import Worktree, changed_paths, commits, outside_zones, prepare
from tests.fixtures_spawn import Runs, git

KEY = "20261201-000007"
FLAGS = ["-p", "--output-format=stream-json", "--verbose", "--permission-mode=acceptEdits"]


@pytest.fixture
def tenant(tmp_path: Path) -> Tenant:
    return ensure_demo_tenant(tmp_path / "demo", 1)


def claude(*arguments: str, prompt: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(standin.program()), *arguments], input=prompt, capture_output=True, text=True, check=False, timeout=20
    )


def attempt(
    runs: Runs, facts: PromptFacts, tenant: Tenant, trees: Path, language: str = "fr"
) -> tuple[SpawnResult, list[AgentEvent], Worktree, Contract]:
    worktree = prepare(Path(tenant.repository or ""), tenant.branch, KEY, trees)
    spec = runs.spec(profile=facts.profile, cwd=worktree.path)
    facts = replace(facts, tenant=tenant, result_path=spec.result_path)
    system = system_prompt(
        persona="You are Ada.",
        zones=tenant.zones,
        result_path=spec.result_path,
        language=language,
        profile=facts.profile,
    )
    result, events = runs.run("ok", replace(spec, prompt=user_prompt(facts, new_marker()), system_prompt=system))
    contract = read_contract(
        spec.result_path,
        tenants={tenant.slug},
        tenant=tenant.slug,
        classified=facts.intent,
        commits_in_git=commits(worktree),
    )
    return result, events, worktree, contract


def status_of(tree: Path, route: str) -> int:
    """The page's status, answered by the site's own code in a process of its own."""
    code = (
        "import sys; sys.path.insert(0, '.'); sys.dont_write_bytecode = True; import app\n"
        f"try: print(app.handle({route!r})[0])\nexcept KeyError: print(500)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, check=True, text=True)
    return int(done.stdout)


def test_it_says_what_it_is() -> None:
    """Nobody should take it for the real program."""
    done = claude("--version")
    assert (done.returncode, done.stdout) == (0, "2.1.332 (Claude Code stand-in)\n")


@pytest.mark.parametrize(
    ("arguments", "prompt", "words"),
    [
        ([*FLAGS], "", "Input must be provided"),
        ([*FLAGS, "--no-such-flag"], "x", "unknown option"),
        (["-p", "--output-format=stream-json"], "x", "requires --verbose"),
        ([*FLAGS, "--add-dir", "/tmp", "the prompt"], "", "Input must be provided"),
        ([*FLAGS, "--append-system-prompt-file=/nonexistent"], "x", "not found"),
        ([*FLAGS, "-", "x"], "", "unknown option"),
    ],
)
def test_it_refuses_what_the_real_program_refuses(arguments: list[str], prompt: str, words: str) -> None:
    """Exit code 1 and a line on stderr; the folders option swallows a prompt behind it."""
    done = claude(*arguments, prompt=prompt)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr


def test_partial_messages_come_only_when_asked_for() -> None:
    """One assistant event a block in either case."""
    plain = claude(*FLAGS, prompt="Hello").stdout
    partial = claude(*FLAGS, "--include-partial-messages", prompt="Hello").stdout
    assert '"stream_event"' not in plain
    assert '"content_block_delta"' in partial
    assert plain.count('"type": "assistant"') == partial.count('"type": "assistant"') >= 1
    assert not plain.splitlines()[-1].startswith('{"type"')


def test_a_chantier_takes_two_attempts(runs: Runs, facts: PromptFacts, tenant: Tenant, tmp_path: Path) -> None:
    """The first mends what the mail names; the browser's complaint, handed back, makes the second mend the script."""
    result, events, worktree, contract = attempt(runs, facts, tenant, tmp_path / "trees")
    assert result.ok
    assert contract.ok
    assert contract.problems == ()
    assert contract.routes == ("/equipe",)
    assert list(contract.commits) == commits(worktree)
    assert changed_paths(worktree) == ["app.py"]
    assert status_of(worktree.path, "/equipe") == 200
    assert "gerante" in git(worktree.path, "show")
    assert "calculerTotale(" in (worktree.path / "static" / "devis.js").read_text()
    tools = [event.tool for event in events if event.type == "assistant.tool_use" or event.tool]
    assert {"Read", "Edit", "Bash", "Write"} <= set(tools)
    assert contract.draft_reply.startswith("Bonjour")

    errors = ("/devis: ReferenceError: calculerTotale is not defined",)
    again = replace(facts, attempt=2, feedback=Feedback(contract.commits, (), errors))
    result, _, worktree, contract = attempt(runs, again, tenant, tmp_path / "trees")
    assert result.ok
    assert contract.ok
    assert contract.routes == ("/equipe", "/devis")
    assert len(commits(worktree)) == 2
    assert changed_paths(worktree) == ["app.py", "static/devis.js"]
    assert outside_zones(changed_paths(worktree), tenant.zones) == []
    script = (worktree.path / "static" / "devis.js").read_text()
    assert "calculerTotale" not in script
    assert script.count("calculerTotal(") == 2
    assert git(worktree.path, "log", "-1", "--format=%an <%ae>") == "Atlas <atlas@localhost>"


def test_a_run_changes_the_telephone_number(runs: Runs, facts: PromptFacts, tenant: Tenant, tmp_path: Path) -> None:
    """Content, not code; in English where the house speaks English."""
    body = "Hello,\n\nplease change the phone number 05 36 49 12 40 to 01 23 45 67 89 on the site.\n"
    run = replace(facts, intent=Intent.RUN, body=body)
    result, _, worktree, contract = attempt(runs, run, tenant, tmp_path / "trees", "en")
    assert result.ok
    assert contract.ok
    assert changed_paths(worktree) == ["content.json"]
    assert '"01 23 45 67 89"' in (worktree.path / "content.json").read_text()
    assert contract.draft_reply.startswith("Hello")


@pytest.mark.parametrize("intent", [Intent.QUESTION, Intent.NEGOCIATION])
def test_other_intents_get_a_draft_and_no_change(
    runs: Runs, facts: PromptFacts, tenant: Tenant, tmp_path: Path, intent: Intent
) -> None:
    """The questions for the team, a draft for the requester."""
    question = replace(facts, intent=intent, profile=Profile.READ, body="Bonjour,\n\nQuel est le délai ? Merci.\n")
    result, _, worktree, contract = attempt(runs, question, tenant, tmp_path / "trees")
    assert (result.ok, result.denials) == (True, 0)
    assert contract.ok
    assert "Quel est le délai ?" in contract.summary
    assert "Page équipe" in contract.draft_reply
    assert commits(worktree) == []


def test_a_complaint_without_a_fault_changes_nothing_and_is_not_ok(
    runs: Runs, facts: PromptFacts, tenant: Tenant, tmp_path: Path
) -> None:
    """It knows no answer in advance, and does not pretend."""
    vague = replace(facts, body="Bonjour,\n\nLe logo devrait être plus grand.\n")
    result, _, worktree, contract = attempt(runs, vague, tenant, tmp_path / "trees")
    assert result.ok
    assert contract.status == "failed"
    assert commits(worktree) == []
