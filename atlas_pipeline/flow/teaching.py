"""Who acts and what they learnt: the registry loaded from its file, scars embedded. Both idempotent."""

from __future__ import annotations

from atlas_pipeline.agents.load import load_registry
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.store import registry
from atlas_pipeline.store.database import Row

DISPLAY_RING = {"direction": 1, "cadrage": 2, "execution": 2, "validation": 3}
_BATCH = 64


def load_agents(parts: Parts) -> tuple[int, list[Row]]:
    """Bring the registry up to its file; how many rows changed, and the rows by ring and family."""
    with parts.db.transaction() as conn:
        changed = registry.load(conn, load_registry())
        return changed, registry.rings(conn)


def lessons(
    parts: Parts, codename: str, tenant: str | None, about: str, *, key: str, limit: int = 3
) -> tuple[str, ...]:
    """The lessons nearest to what message ``key`` is about: the agent's own first, then global ones, none of another tenant."""
    with parts.db.transaction() as conn:
        if not registry.scar_count(conn):
            return ()
    embedded = parts.router.embed([about], message_key=key)
    with parts.db.transaction() as conn:
        return tuple(registry.scars_for(conn, codename, tenant, embedded.model, embedded.vectors[0], limit))


def index_scars(parts: Parts) -> tuple[int, str]:
    """Embed the scars that the current model has not embedded yet; how many, and the model's name."""
    model = parts.router.embed([]).model
    count = 0
    while True:
        with parts.db.transaction() as conn:
            batch = registry.scars_without_vector(conn, model, _BATCH)
        if not batch:
            return count, model
        vectors = parts.router.embed([scar["lesson"] for scar in batch]).vectors
        with parts.db.transaction() as conn:
            for scar, vector in zip(batch, vectors, strict=True):
                registry.store_vector(conn, scar, model, vector)
        count += len(batch)
