"""What the agents' domain exposes: tables, their compatibility views, and the operations on them. Made from the code."""

from __future__ import annotations

import inspect
from typing import Any

from atlas_pipeline.store import registry

# Table → its compatibility view. Events, skills and tools came after the views and have none.
TABLES: dict[str, str | None] = {
    "agents": "personas",
    "agent_activity": "persona_activity",
    "agent_heartbeats": "persona_heartbeats",
    "agent_relations": "persona_relations",
    "agent_experience": "persona_experience",
    "agent_experience_history": "persona_experience_history",
    "agent_events": None,
    "agent_skills": None,
    "agent_tools": None,
    "scars": None,
    "doctrines": None,
    "operator_preferences": None,
    "embeddings": None,
    "briefings": None,
}


def manifest() -> dict[str, Any]:
    """``tables`` with their views, and ``operations``: each public function of the registry with what it does."""
    operations = {
        name: str(inspect.getdoc(function)).splitlines()[0]
        for name, function in inspect.getmembers(registry, inspect.isfunction)
        if function.__module__ == registry.__name__ and not name.startswith("_")
    }
    return {"tables": dict(TABLES), "operations": operations}
