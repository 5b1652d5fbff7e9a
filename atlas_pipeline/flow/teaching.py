"""Who acts and what they learnt: the registry loaded from its file, scars embedded. Both idempotent."""

from __future__ import annotations

from dataclasses import dataclass, field

from atlas_pipeline.agents.load import load_registry
from atlas_pipeline.agents.ranking import best_first
from atlas_pipeline.agents.reactor import DISPLAY_RING, reactor_svg
from atlas_pipeline.errors import AtlasError, DatabaseUnavailable
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.model import Embeddings
from atlas_pipeline.store import registry
from atlas_pipeline.store.database import Connection, Row

_BATCH = 64
_LOOKED_AT = 30  # lessons of each search


def load_agents(parts: Parts) -> tuple[int, list[Row]]:
    """Bring the registry up to its file; how many rows changed, and the rows by ring and family."""
    with parts.db.transaction() as conn:
        changed = registry.load(conn, load_registry())
        return changed, registry.rings(conn)


@dataclass(frozen=True)
class Lessons:
    """What an agent learnt about such missions.

    ``how``: ``vectors and words``, ``words`` alone, or ``none`` where there is nothing to search; ``code`` says why no vectors.
    """

    texts: tuple[str, ...] = field(default=(), repr=False)
    how: str = "none"
    code: str | None = None


def lessons(parts: Parts, codename: str, tenant: str | None, about: str, *, key: str | None, limit: int = 3) -> Lessons:
    """The lessons nearest to what message ``key`` is about: the agent's own first, then global ones, none of another tenant.

    By vectors and words together; by words alone where no vector can be had, or none was made by the model of now. Raises
    DatabaseUnavailable alone.
    """
    with parts.db.transaction() as conn:
        if not registry.scar_count(conn):
            return Lessons()
    embedded, code = None, None
    try:
        embedded = parts.router.embed([about], message_key=key)
    except DatabaseUnavailable:
        raise
    except AtlasError as error:
        code = error.code
    with parts.db.transaction() as conn:
        if embedded is not None:
            length = registry.embedded_length(conn, embedded.model)
            if length != len(embedded.vectors[0]):
                # A provider may change what stands behind a name.
                code = "scars_not_embedded" if length is None else "embedding_length_changed"
                embedded = None
        found = search(conn, codename, tenant, about, embedded, limit)
    return Lessons(tuple(found), "words" if embedded is None else "vectors and words", code)


def search(
    conn: Connection, codename: str, tenant: str | None, about: str, embedded: Embeddings | None, limit: int
) -> list[str]:
    """The agent's own lessons, best first; those of everybody only where its own are fewer than ``limit``."""
    found = list[str]()
    for owner in (codename, None):
        if len(found) < limit:
            found += _best(conn, owner, tenant, about, embedded)[: limit - len(found)]
    return found


def _best(
    conn: Connection, owner: str | None, tenant: str | None, about: str, embedded: Embeddings | None
) -> list[str]:
    """One owner's lessons, best first."""
    by_words = registry.scars_by_words(conn, owner, tenant, about, _LOOKED_AT)
    near = (
        {}
        if embedded is None
        else registry.scars_near(conn, owner, tenant, embedded.model, embedded.vectors[0], _LOOKED_AT)
    )
    return best_first(about, near, by_words)


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


@dataclass(frozen=True)
class Reactor:
    """The agents as a picture, and those whose ring column is another than the ring they are shown on."""

    svg: str
    differing: tuple[str, ...]


def reactor(parts: Parts) -> Reactor:
    """Three rings, names, activity of the last thirty days as size."""
    with parts.db.transaction() as conn:
        agents = registry.active(conn)
        activity = registry.activity(conn)
    differing = [agent["codename"] for agent in agents if DISPLAY_RING[agent["group_name"]] != agent["orbite"]]
    return Reactor(reactor_svg(agents, activity), tuple(differing))
