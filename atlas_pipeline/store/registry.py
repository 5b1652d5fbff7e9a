"""The agents' registry, their scars and the embeddings that make scars searchable."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from pgvector import Vector
from psycopg import sql

from atlas_pipeline.store.database import Connection, Row


def load(conn: Connection, agents: Sequence[Mapping[str, Any]]) -> int:
    """Add or refresh these agents (idempotent); counters are left alone. Returns how many rows changed."""
    changed = 0
    for agent in agents:
        names = [sql.Identifier(name) for name in agent]
        updates = sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(name) for name in names)
        old = sql.SQL(", ").join(sql.SQL("agents.{}").format(name) for name in names)
        new = sql.SQL(", ").join(sql.SQL("excluded.{}").format(name) for name in names)
        cursor = conn.execute(
            sql.SQL(
                "insert into atlas.agents as agents ({}) values ({}) on conflict (codename) do update set {} where ({}) is distinct from ({})"
            ).format(sql.SQL(", ").join(names), sql.SQL(", ").join(map(sql.Placeholder, agent)), updates, old, new),
            dict(agent),
        )
        changed += cursor.rowcount
    return changed


def persona(conn: Connection, codename: str) -> Row | None:
    """One agent, read through the compatibility view as Python code does."""
    return conn.execute("select * from atlas.personas where codename = %s and active = 1", (codename,)).fetchone()


def rings(conn: Connection) -> list[Row]:
    """Agents by ring column and family, with how many rows differ from the ring that is displayed."""
    return conn.execute(
        "select orbite, group_name, count(*) as agents from atlas.agents where active = 1 group by orbite, group_name order by 1, 2"
    ).fetchall()


def count_spawn(conn: Connection, codename: str, *, failed: bool) -> None:
    """The counters and the activity of an agent after a spawn."""
    conn.execute(
        "update atlas.agents set spawn_count = spawn_count + 1, error_count = error_count + %s where codename = %s",
        (int(failed), codename),
    )


def note_activity(conn: Connection, codename: str, activity: str, key: str) -> None:
    """One line of activity, and the agent's heartbeat."""
    conn.execute(
        "insert into atlas.agent_activity (codename, activity, message_key) values (%s, %s, %s)",
        (codename, activity, key),
    )
    conn.execute(
        "insert into atlas.agent_heartbeats (codename, at, state) values (%s, now(), %s) on conflict (codename) "
        "do update set at = excluded.at, state = excluded.state",
        (codename, activity),
    )


def scars_without_vector(conn: Connection, model: str, limit: int) -> list[Row]:
    """Scars still to be embedded by this model."""
    return conn.execute(
        "select s.id, s.codename, s.lesson from atlas.scars s where not exists (select from atlas.embeddings e "
        "where e.owner_kind = 'scar' and e.owner_id = s.id and e.model = %s) order by s.id limit %s",
        (model, limit),
    ).fetchall()


def store_vector(conn: Connection, scar: Row, model: str, vector: Sequence[float]) -> None:
    """One scar's vector of one model."""
    conn.execute(
        "insert into atlas.embeddings (owner_kind, owner_id, model, codename, vector, text_sha256) values ('scar', %s, %s, %s, %s::vector, %s) "
        "on conflict (owner_kind, owner_id, model) do update set vector = excluded.vector, text_sha256 = excluded.text_sha256, at = now()",
        (
            scar["id"],
            model,
            scar["codename"],
            Vector(list(vector)).to_text(),
            hashlib.sha256(scar["lesson"].encode()).hexdigest(),
        ),
    )


def scars_for(
    conn: Connection, codename: str, tenant: str | None, model: str, vector: Sequence[float], limit: int
) -> list[str]:
    """Lessons nearest to ``vector`` within one model: the agent's own first, then global ones; none of another tenant."""
    rows = conn.execute(
        "select s.lesson from atlas.embeddings e join atlas.scars s on s.id = e.owner_id "
        "where e.owner_kind = 'scar' and e.model = %(model)s and (e.codename = %(agent)s or e.codename is null) "
        "and (s.tenant is null or s.tenant = %(tenant)s) and (s.expires_at is null or s.expires_at > now()) "
        "order by (e.codename is null), e.vector <=> %(vector)s::vector limit %(limit)s",
        {"model": model, "agent": codename, "tenant": tenant, "vector": Vector(list(vector)).to_text(), "limit": limit},
    )
    return [row["lesson"] for row in rows]


def scar_count(conn: Connection) -> int:
    """How many scars there are."""
    row = conn.execute("select count(*) as n from atlas.scars").fetchone()
    return int(row["n"]) if row else 0


def doctrines(conn: Connection) -> list[str]:
    """The house's active rules."""
    return [row["body"] for row in conn.execute("select body from atlas.doctrines where active order by code")]


def preferences(conn: Connection, slice_: str = "core") -> str | None:
    """The operator's preferences, one slice."""
    row = conn.execute("select body from atlas.operator_preferences where slice = %s", (slice_,)).fetchone()
    return row["body"] if row else None
