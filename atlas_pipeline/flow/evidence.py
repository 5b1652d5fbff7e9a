"""What the tables say once an agent has ended, and the decision that follows: read by the release and the recap alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from atlas_pipeline.model import DeployResult, Intent, Profile, QaResult, Tenant
from atlas_pipeline.release.decide import Past, ReleaseDecision, decide
from atlas_pipeline.store import releases, spawns, tenants
from atlas_pipeline.store.database import Connection
from atlas_pipeline.store.spawns import Spawn
from atlas_pipeline.store.tracking import Tracking


@dataclass(frozen=True)
class Evidence:
    """One attempt as far as it has come."""

    state: Tracking
    spawn: Spawn
    tenant: Tenant | None
    deploy: DeployResult | None
    qa: QaResult | None
    before: QaResult | None = None
    past: Past | None = None
    # Commits that the attempts before this one left on the branch: an agent's start counts all that the branch holds.
    known_commits: frozenset[str] = frozenset()

    @property
    def new_commits(self) -> tuple[str, ...]:
        """The commits that this attempt added, oldest first."""
        return tuple(commit for commit in self.spawn.commits if commit not in self.known_commits)

    @property
    def commit(self) -> str:
        """What is to be deployed: the agent's last commit, or the attempt before's where this one added none."""
        if self.spawn.commits:
            return self.spawn.commits[-1]
        assert self.past is not None  # noqa: S101  # without either nothing is ever deployed
        assert self.past.deploy.commit is not None  # noqa: S101  # a deployment's row has one
        return self.past.deploy.commit

    @property
    def intent(self) -> Intent:
        """The final intent: the agent's downgrade where it made one."""
        assert self.state.intent is not None  # noqa: S101  # a spawned message has an intent
        corrected = self.spawn.contract.intent if self.spawn.contract else None
        return corrected or self.state.intent

    def decide(self, max_attempts: int) -> ReleaseDecision:
        """What follows now."""
        assert self.spawn.contract is not None  # noqa: S101  # stored in the transaction that ends a spawn ok
        problems = self.spawn.contract.problems
        return decide(
            intent=self.intent,
            profile=self.spawn.profile if self.tenant else Profile.DRAFT,
            contract=self.spawn.contract,
            commits=len(self.new_commits if self.past else self.spawn.commits),
            zones_ok="commit_outside_zones" not in problems and "commit_without_right" not in problems,
            deploy=self.deploy,
            qa=self.qa,
            attempt=self.spawn.attempt,
            max_attempts=max_attempts,
            before=self.before,
            past=self.past,
        )


def gather(conn: Connection, state: Tracking, attempt: int) -> Evidence | None:
    """The evidence of this attempt, or None where no agent has ended ok in it."""
    spawn = spawns.latest(conn, state.message_key, state.round, attempt)
    if spawn is None or spawn.status != "ok" or spawn.contract is None:
        return None
    return Evidence(
        state=state,
        spawn=spawn,
        tenant=tenants.get(conn, state.tenant) if state.tenant else None,
        deploy=releases.deployment(conn, state.message_key, state.round, attempt),
        qa=releases.qa(conn, state.message_key, state.round, attempt),
        before=releases.before(conn, state.message_key),
        past=_past(conn, state, attempt - 1),
        known_commits=commits_before(spawns.of_round(conn, state.message_key, state.round), attempt),
    )


def commits_before(starts: Iterable[Spawn], attempt: int) -> frozenset[str]:
    """What the attempts before this one of the same round left on the branch."""
    return frozenset(commit for start in starts if start.attempt < attempt for commit in start.commits)


def _past(conn: Connection, state: Tracking, attempt: int) -> Past | None:
    deploy = releases.deployment(conn, state.message_key, state.round, attempt)
    return Past(deploy, releases.qa(conn, state.message_key, state.round, attempt)) if deploy else None
