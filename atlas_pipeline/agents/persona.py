"""An agent as a model reads it: the core tier and the métier tier. Pure text; choosing the agent is ``designate``'s,
reading its row the store's.

The cognitive frame stands first in every tier, since it is what should weigh most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Persona:
    """The columns of an agent that are rendered."""

    codename: str
    nickname: str
    role: str
    group_name: str
    orbite: int
    cognitive_frame: str
    job_mission: str
    job_perimeter: str
    job_key_checks: str

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> Persona:
        """From a row of ``personas`` or an entry of the registry; other columns are ignored, NULL reads as empty.

        Raises KeyError where a column is missing from the row altogether.
        """
        texts = {name.name: str(row[name.name] or "") for name in fields(cls) if name.name != "orbite"}
        return cls(**texts, orbite=int(str(row["orbite"])))


def format_core(persona: Persona) -> str:
    """About 150 tokens: how the agent thinks, and the least of who it is."""
    return f"## Façon de penser\n{persona.cognitive_frame.strip()}\n\nTu es {persona.nickname} ({persona.codename})."


def format_metier(persona: Persona) -> str:
    """About 350 tokens: the core, the role and the scope of the job. The default of a spawn."""
    scope = (
        ("Mission", persona.job_mission),
        ("Périmètre", persona.job_perimeter),
        ("Points de contrôle", persona.job_key_checks),
    )
    lines = [format_core(persona), f"Rôle : {persona.role} (famille {persona.group_name})."]
    lines.extend(f"## {title}\n{text.strip()}" for title, text in scope if text.strip())
    return "\n\n".join(lines)


# The name that older callers use.
format_briefing = format_metier
