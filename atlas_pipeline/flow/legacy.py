"""The older way to call an agent: one question, one answer, the exchange in the agent's events. Raises where it fails."""

from __future__ import annotations

from atlas_pipeline.ai.agent import AgentProvider
from atlas_pipeline.errors import AtlasError, Refused
from atlas_pipeline.flow.models import agent_ask
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.teaching import lessons
from atlas_pipeline.model import Completion, CompletionRequest
from atlas_pipeline.spawn.prompts import lessons_section
from atlas_pipeline.store import registry

TIMEOUT_SECONDS = 600.0
_KEPT_CHARACTERS = 4_000


def call_agent(
    parts: Parts, codename: str, question: str, *, tenant: str | None = None, timeout_seconds: float = TIMEOUT_SECONDS
) -> Completion:
    """Ask an agent in a process of its own, as who its long profile says it is, with its lessons and the house's doctrines.

    Raises Refused("agent_unknown", "agent_without_profile"), NotConfigured (no agent program), ProviderUnavailable,
    InvalidAnswer. Both the question and what
    came of it are events of the agent.
    """
    with parts.db.transaction() as conn:
        row = registry.persona(conn, codename)
        if row is None:
            raise Refused("agent_unknown", agent=codename)
        if not str(row["content_md"] or "").strip():
            raise Refused("agent_without_profile", agent=codename)
        doctrines = registry.doctrines(conn)
    learnt = lessons(parts, codename, tenant, question, key=None)
    told = [str(row["content_md"]).strip()]
    told += ["# Doctrines\n" + "\n".join(f"- {rule}" for rule in doctrines)] if doctrines else []
    told += [lessons_section(learnt.texts, learnt.how)] if learnt.texts else []
    with parts.db.transaction() as conn:
        registry.note_event(conn, codename, "called", {"question": question[:_KEPT_CHARACTERS], "lessons": learnt.how})
    try:
        done = AgentProvider(agent_ask(parts.agent_bin)).complete(
            CompletionRequest("call", "\n\n".join(told), question),
            model=parts.settings.agent_model,
            timeout_seconds=timeout_seconds,
        )
    except AtlasError as error:
        with parts.db.transaction() as conn:
            registry.note_event(conn, codename, "call_failed", {"code": error.code})
        raise
    with parts.db.transaction() as conn:
        registry.note_event(
            conn, codename, "answered", {"answer": done.content[:_KEPT_CHARACTERS], "model": done.model}
        )
    return done
