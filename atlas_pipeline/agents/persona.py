"""An agent as a model reads it, in three tiers. Pure text; choosing the agent is ``designate``'s, reading its row the store's.

The cognitive frame stands first in every tier, since it is what should weigh most. A tier begins with the smaller one, to the
letter, and nothing in it changes from call to call: a provider's prompt cache hits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

# Tokens, about; checked for every agent with a real tokenizer.
BUDGETS = {"core": 150, "metier": 350, "full": 600}
_WORDS = {
    "fr": {
        "frame": "Façon de penser",
        "you": "Tu es {nickname} ({codename}).",
        "role": "Rôle : {role} (famille {group_name}).",
        "mission": "Mission",
        "perimeter": "Périmètre",
        "checks": "Points de contrôle",
        "who": "Qui tu es",
        "heritage": "Héritage : {heritage}.",
        "inspiration": "Inspiration : {inspiration}",
        "proof": "On te reconnaît à ceci : {proof}",
    },
    "en": {
        "frame": "Way of thinking",
        "you": "You are {nickname} ({codename}).",
        "role": "Role: {role} (family {group_name}).",
        "mission": "Mission",
        "perimeter": "Scope",
        "checks": "Key checks",
        "who": "Who you are",
        "heritage": "Heritage: {heritage}.",
        "inspiration": "Inspiration: {inspiration}",
        "proof": "You are recognised by this: {proof}",
    },
}
_TWINNED = (
    "role",
    "heritage",
    "cognitive_frame",
    "personality",
    "quote",
    "inspiration",
    "proof",
    "job_mission",
    "job_perimeter",
    "job_key_checks",
)


@dataclass(frozen=True)
class Persona:
    """The columns of an agent that are rendered, in one language; ``language`` is ``fr`` or ``en``."""

    codename: str
    nickname: str
    group_name: str
    orbite: int
    role: str
    heritage: str
    cognitive_frame: str
    personality: str
    quote: str
    inspiration: str
    proof: str
    job_mission: str
    job_perimeter: str
    job_key_checks: str
    language: str = "fr"

    @classmethod
    def from_row(cls, row: Mapping[str, object], language: str = "fr") -> Persona:
        """From a row of ``personas`` or an entry of the registry; other columns are ignored, NULL reads as empty.

        A text that lacks its English twin stays French. Raises KeyError where a column is missing from the row altogether.
        """
        texts = {
            name.name: str(row[name.name] or "") for name in fields(cls) if name.name not in ("orbite", "language")
        }
        if language == "en":
            texts |= {name: str(row.get(f"{name}_en") or texts[name]) for name in _TWINNED}
        return cls(**texts, orbite=int(str(row["orbite"])), language=language)

    def say(self, name: str) -> str:
        """One of the fixed phrases, filled in."""
        phrase = _WORDS.get(self.language, _WORDS["fr"])[name]
        return phrase.format(**{item.name: getattr(self, item.name) for item in fields(self)})


def format_core(persona: Persona) -> str:
    """About 150 tokens: how the agent thinks, and the least of who it is."""
    return f"## {persona.say('frame')}\n{persona.cognitive_frame.strip()}\n\n{persona.say('you')}"


def format_metier(persona: Persona) -> str:
    """About 350 tokens: the core, the role and the scope of the job. The default of a spawn."""
    scope = (
        ("mission", persona.job_mission),
        ("perimeter", persona.job_perimeter),
        ("checks", persona.job_key_checks),
    )
    lines = [format_core(persona), persona.say("role")]
    lines.extend(f"## {persona.say(title)}\n{text.strip()}" for title, text in scope if text.strip())
    return "\n\n".join(lines)


def format_full(persona: Persona) -> str:
    """About 600 tokens: the métier tier and the whole identity, for reviews and mission briefs."""
    who = [
        persona.say("heritage") if persona.heritage else "",
        persona.personality,
        f"« {persona.quote} »" if persona.quote else "",
        persona.say("inspiration") if persona.inspiration else "",
        persona.say("proof") if persona.proof else "",
    ]
    told = "\n".join(line.strip() for line in who if line.strip())
    return f"{format_metier(persona)}\n\n## {persona.say('who')}\n{told}" if told else format_metier(persona)


TIERS = {"core": format_core, "metier": format_metier, "full": format_full}
# The name that older callers use.
format_briefing = format_metier
