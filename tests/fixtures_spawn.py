"""Fixtures of the spawn stage: a repository, facts for prompts, runs of the stand-in that must leave nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import atlas_pipeline
from atlas_pipeline.embedded import standin
from atlas_pipeline.model import Forward, Intent, Profile, SpawnResult, Tenant
from atlas_pipeline.spawn.events import AgentEvent
from atlas_pipeline.spawn.processes import kill_marked, marked
from atlas_pipeline.spawn.prompts import PromptFacts
from atlas_pipeline.spawn.session import AgentSpec, run_agent

ROOT = Path(atlas_pipeline.__file__).parent.parent


def git(folder: Path, *arguments: str) -> str:
    """Run git for a test, with an identity of its own."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@agency.example"]
    done = subprocess.run(["git", *identity, "-C", str(folder), *arguments], capture_output=True, check=True, text=True)
    return done.stdout.strip()


@dataclass
class Runs:
    """Runs of an agent in a test; every spawn id is remembered, so that left-overs are found."""

    folder: Path
    ids: list[str] = field(default_factory=list)

    def new_id(self) -> str:
        """A fresh spawn id."""
        self.ids.append(f"test-{uuid.uuid4().hex}")
        return self.ids[-1]

    def spec(
        self, prompt: str = "Say something.", profile: Profile = Profile.WRITE, cwd: Path | None = None
    ) -> AgentSpec:
        """A run of the stand-in with short limits."""
        spawn_id = self.new_id()
        work = self.folder / spawn_id
        tree = cwd or work / "tree"
        tree.mkdir(parents=True, exist_ok=True)
        return AgentSpec(
            spawn_id=spawn_id,
            agent_bin=standin.program(),
            cwd=tree,
            prompt=prompt,
            system_prompt="You are tested.",
            model="stand-in",
            work_dir=work,
            profile=profile,
            timeout_seconds=30,
            start_timeout_seconds=10,
            idle_timeout_seconds=10,
        )

    def environment(self, mode: str) -> dict[str, str]:
        """What the wrapper is given; with secrets in it that must not reach the agent."""
        names = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        secrets = {"ATLAS_SMTP_URL": "smtp://x", "ATLAS_DATABASE_URL": "postgresql://x", "MISTRAL_API_KEY": "x"}
        return {**names, **secrets, "ATLAS_STANDIN_MODE": mode}

    def run(
        self,
        mode: str = "ok",
        spec: AgentSpec | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> tuple[SpawnResult, list[AgentEvent]]:
        """Run to the end; gives the result and every event."""
        events: list[AgentEvent] = []
        result = run_agent(spec or self.spec(), events.extend, should_stop, environment=self.environment(mode))
        return result, events

    def wrapper(
        self, mode: str = "ok", options: Mapping[str, str] | None = None, *, spec: AgentSpec | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the wrapper itself, as a shell would; ``options`` replace or add flags."""
        spec = spec or self.spec()
        spec.result_path.parent.mkdir(parents=True, exist_ok=True)
        prompt, system = spec.work_dir / "p.txt", spec.work_dir / "s.txt"
        prompt.write_text(spec.prompt, "utf-8")
        system.write_text(spec.system_prompt, "utf-8")
        flags = {
            "id": spec.spawn_id,
            "prompt-file": str(prompt),
            "system-prompt-file": str(system),
            "model": "stand-in",
            "stream-log": str(spec.stream_log),
            "add-dir": str(spec.result_path.parent),
            "timeout-sec": "30",
            "agent-bin": str(spec.agent_bin),
            "cwd": str(spec.cwd),
            **(options or {}),
        }
        command = [sys.executable, "-m", "atlas_pipeline.spawn.pty", *(f"--{n}={v}" for n, v in flags.items() if v)]
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environment(mode), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """Runs of the stand-in. After the test no process may carry the marker of any of them."""
    made = Runs(tmp_path / "runs")
    yield made
    left = [process.pid for spawn_id in made.ids for process in marked(spawn_id)]
    for spawn_id in made.ids:
        kill_marked(spawn_id)
    assert left == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit on ``main``, agent configuration included."""
    folder = tmp_path / "repository"
    (folder / "site").mkdir(parents=True)
    (folder / ".claude").mkdir()
    (folder / "site" / "page.txt").write_text("one\n")
    (folder / "shared.txt").write_text("shared\n")
    (folder / "CLAUDE.md").write_text("House rules.\n")
    (folder / ".claude" / "settings.json").write_text("{}\n")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "First")
    return folder


@pytest.fixture
def facts(tmp_path: Path) -> PromptFacts:
    """A chantier of a known tenant."""
    tenant = Tenant("lorme", "Menuiserie Lorme", True, False, ("lorme.example",), (), ("site/",))
    return PromptFacts(
        sender="claire@lorme.example",
        subject="Page équipe",
        body="Bonjour,\n\nLa page /equipe affiche une erreur 500.\n",
        forward=Forward(found=False),
        tenant=tenant,
        tenant_how="domain",
        intent=Intent.CHANTIER,
        confidence=0.93,
        reasoning="A page is broken.",
        profile=Profile.WRITE,
        result_path=tmp_path / "result.json",
    )
