"""Which agent takes a message. Pure; whether an agent is started at all is decided in ``spawn``."""

from __future__ import annotations

from atlas_pipeline.errors import Refused
from atlas_pipeline.model import Intent

ORCHESTRATOR = "orchestrator"
EXECUTION = "backend"
COMMERCE = "commerce"


def designate(intent: Intent, tenant: str | None) -> tuple[str, str]:
    """The agent's codename, and why, as a code; ``tenant`` is a slug. Raises Refused ``no_agent_for_noise``."""
    if intent in {Intent.CHANTIER, Intent.RUN}:
        return EXECUTION, "code_of_tenant" if tenant is not None else "plan_without_tenant"
    if intent is Intent.NEGOCIATION:
        return COMMERCE, "commercial_request"
    if intent in {Intent.QUESTION, Intent.CONSEIL}:
        return ORCHESTRATOR, "opinion_asked"
    raise Refused("no_agent_for_noise")
