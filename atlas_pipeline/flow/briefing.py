"""What an agent is told about one message, gathered from the tables: who it is, what it may do, the facts, the errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from atlas_pipeline.agents.designate import designate
from atlas_pipeline.agents.persona import Persona, format_briefing
from atlas_pipeline.errors import PermanentError
from atlas_pipeline.flow.teaching import Lessons
from atlas_pipeline.mailbox.trust import match_tenant
from atlas_pipeline.model import Address, Intent, Profile, Tenant
from atlas_pipeline.release.decide import feedback
from atlas_pipeline.spawn import prompts
from atlas_pipeline.spawn.profile import choose_profile, confined
from atlas_pipeline.store import messages, phases, registry, releases, tenants, work
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.store.tracking import Tracking

_WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class Briefing:
    """Everything that the prompts of one start are made of."""

    agent: str
    reason: str
    profile: Profile
    intent: Intent
    persona: str
    language: str
    message: Row
    state: Tracking
    topology: Tenant | None
    http_errors: tuple[str, ...]
    browser_errors: tuple[str, ...]
    mission: str = ""
    lessons: Lessons = field(default_factory=Lessons)

    @property
    def tenant(self) -> str | None:
        """Slug of the tenant, or None."""
        return self.topology.slug if self.topology else None

    @property
    def repository(self) -> str | None:
        """The tenant's repository, or None."""
        return self.topology.repository if self.topology else None

    @property
    def branch(self) -> str:
        """The trusted branch that the agent's own branch starts from."""
        return self.topology.branch if self.topology else "main"

    @property
    def zones(self) -> tuple[str, ...]:
        """Where the agent may change something."""
        return self.topology.zones if self.topology else ()

    def system_prompt(self, *, result_path: Path) -> str:
        """Role, borders, contract."""
        return prompts.system_prompt(
            persona=self.persona,
            zones=self.zones,
            result_path=result_path,
            language=self.language,
            profile=self.profile,
            mission=self.mission,
            lessons=self.lessons.texts,
            lessons_by=self.lessons.how,
        )

    def user_prompt(self, *, attempt: int, result_path: Path, previous_commits: Sequence[str], marker: str) -> str:
        """The message, and on a later attempt what the one before left."""
        told = None
        if attempt > 1:
            told = prompts.Feedback(tuple(previous_commits), self.http_errors, self.browser_errors)
        facts = prompts.PromptFacts(
            sender=self.message["from_address"] or "",
            subject=self.message["subject"] or "",
            body=self.message["body_text"] or "",
            forward=messages.forward_of(self.message),
            tenant=self.topology,
            tenant_how=self.state.tenant_method or "none",
            intent=self.intent,
            confidence=self.state.confidence or 0.0,
            reasoning=self.state.reasoning or "",
            profile=self.profile,
            result_path=result_path,
            attempt=attempt,
            feedback=told,
        )
        return prompts.user_prompt(facts, marker)


def brief(conn: Connection, state: Tracking, attempt: int, *, language: str) -> Briefing:
    """Gather the briefing. Raises PermanentError ``message_missing`` or ``agent_unknown``."""
    message = messages.load(conn, state.message_key)
    if message is None or state.intent is None:
        raise PermanentError("message_missing")
    topology = tenants.get(conn, state.tenant) if state.tenant else None
    agents = registry.active(conn)
    words = frozenset(_WORD.findall((message["subject"] or "").lower()))
    chosen = designate(state.intent, state.tenant, agents, words)
    row = next((agent for agent in agents if agent["codename"] == chosen.codename), None)
    if row is None:
        raise PermanentError("agent_unknown", codename=chosen.codename)
    before = (
        releases.qa(conn, state.message_key, state.round, attempt - 1),
        releases.deployment(conn, state.message_key, state.round, attempt - 1),
    )
    http_errors, browser_errors = feedback(*before, releases.before(conn, state.message_key))
    return Briefing(
        agent=chosen.codename,
        reason=chosen.reason,
        profile=_profile(conn, state, state.intent, message, topology),
        intent=state.intent,
        persona=_persona(conn, row, language),
        mission=_mission(conn, state, language),
        language=language,
        message=message,
        state=state,
        topology=topology,
        http_errors=tuple(http_errors),
        browser_errors=tuple(browser_errors),
    )


def profile_of(conn: Connection, state: Tracking) -> Profile:
    """What an agent would be allowed for this message. Raises PermanentError ``message_missing``."""
    message = messages.load(conn, state.message_key)
    if message is None or state.intent is None:
        raise PermanentError("message_missing")
    return _profile(conn, state, state.intent, message, tenants.get(conn, state.tenant) if state.tenant else None)


def _profile(conn: Connection, state: Tracking, intent: Intent, message: Row, topology: Tenant | None) -> Profile:
    requester = Address(message["requester_name"], message["requester_address"])
    own, _how = match_tenant(requester, tenants.all_tenants(conn))
    matches = own is not None and own.slug == state.tenant
    widest = choose_profile(messages.trust_of(message), topology, matches, intent)
    return confined(widest, topology, open_to_clients=phases.current(conn)["phase"] == phases.OPEN)


def _mission(conn: Connection, state: Tracking, language: str) -> str:
    """The chantier that the message belongs to, where there is one."""
    if state.work_kind != "chantiers":
        return ""
    found = work.live(conn, state.message_key, "chantiers")
    if found is None:
        return ""
    client = f" ({found['tenant']})" if found["tenant"] else ""
    # Its title is the mail's subject, which stands among the data of the user prompt: the sender worded it.
    if language == "en":
        return f"Chantier {found['id']}{client}, {found['status']}. Its title is the subject of the mail."
    return f"Chantier {found['id']}{client}, {found['status']}. Son titre est l'objet du mail."


def _persona(conn: Connection, row: Row, language: str) -> str:
    """Identity, the house's doctrines, the operator's preferences: the stable part, in one order."""
    persona = format_briefing(Persona.from_row(row, language))
    rules = [f"- {rule}" for rule in registry.doctrines(conn)]
    preferences = registry.preferences(conn)
    return "\n".join([persona, *(["", *rules] if rules else []), *(["", preferences] if preferences else [])])
