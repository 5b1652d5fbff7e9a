"""Which agent takes a message, and who can write for a prompt domain. Pure; whether an agent is started is decided in ``spawn``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atlas_pipeline.errors import Refused
from atlas_pipeline.model import Intent

DOMAINS = ("contenu", "faq", "cover", "podcast", "linkedin", "reels")
ORCHESTRATOR = "orchestrator"
EXECUTION = "backend"
COMMERCE = "commerce"
# Words of a subject that name a domain, French and English; a whole word, any case. A body's would not do: signatures name networks.
_DOMAIN_WORDS = {
    "faq": {"faq"},
    "podcast": {"podcast", "podcasts"},
    "linkedin": {"linkedin"},
    "reels": {"reel", "reels"},
    "cover": {"cover"},
}


@dataclass(frozen=True)
class Designation:
    """Who, and why: a code that is stored with the start."""

    codename: str
    reason: str


def designate(
    intent: Intent, tenant: str | None, agents: Sequence[Mapping[str, object]] = (), words: frozenset[str] = frozenset()
) -> Designation:
    """The agent for a message of this intent; ``tenant`` is a slug, ``agents`` are active rows of the registry.

    ``words`` are those of the subject, lower case: a question about a domain that an agent writes for goes to that agent. A name
    that is not active falls back to the first active agent of the family that does such work. Raises Refused:
    ``no_agent_for_noise``, ``no_agent_active``.
    """
    if intent is Intent.NOISE:
        raise Refused("no_agent_for_noise")
    known = {str(agent["codename"]): agent for agent in agents}
    domain = next((name for name, telling in _DOMAIN_WORDS.items() if telling & words), None)
    if domain is not None and intent in {Intent.QUESTION, Intent.CONSEIL}:
        able = [one for one in agents_for_domain(agents, domain) if known[one]["group_name"] == "execution"]
        if able:
            return Designation(able[0], f"domain_{domain}")
    if intent in {Intent.CHANTIER, Intent.RUN}:
        wanted = Designation(EXECUTION, "code_of_tenant" if tenant is not None else "plan_without_tenant")
        family = "execution"
    elif intent is Intent.NEGOCIATION:
        wanted, family = Designation(COMMERCE, "commercial_request"), "cadrage"
    else:
        wanted, family = Designation(ORCHESTRATOR, "opinion_asked"), "direction"
    if not known or wanted.codename in known:
        return wanted
    standing_in = sorted(name for name, agent in known.items() if agent["group_name"] == family)
    if not standing_in:
        raise Refused("no_agent_active", family=family)
    return Designation(standing_in[0], f"{wanted.reason}_stand_in")


def agents_for_domain(agents: Sequence[Mapping[str, object]], domain: str) -> list[str]:
    """Codenames of the agents that write for a prompt domain, the executing ones first. Raises Refused("domain_unknown")."""
    if domain not in DOMAINS:
        raise Refused("domain_unknown", domain=domain)
    able = [
        agent for agent in agents if domain in {item.strip() for item in str(agent["prompt_domains"] or "").split(",")}
    ]
    return [
        str(agent["codename"])
        for agent in sorted(able, key=lambda one: (one["group_name"] != "execution", str(one["codename"])))
    ]
