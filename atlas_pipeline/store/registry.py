"""The agents' registry, their scars and the embeddings that make scars searchable."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pgvector import Vector
from psycopg import sql
from psycopg.types.json import Jsonb

from atlas_pipeline.errors import Refused
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_json, clean_text


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
        "where e.owner_kind = 'scar' and e.owner_id = s.id and e.model = %s "
        "and e.text_sha256 = encode(sha256(convert_to(s.lesson, 'UTF8')), 'hex')) order by s.id limit %s",
        (model, limit),
    ).fetchall()


def embedded_length(conn: Connection, model: str) -> int | None:
    """How long the vectors are that this model made of scars; None where it made none."""
    row = conn.execute(
        "select vector_dims(vector) as length from atlas.embeddings where owner_kind = 'scar' and model = %s limit 1",
        (model,),
    ).fetchone()
    return int(row["length"]) if row else None


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


LESSON_CHARACTERS = 1_000
_SERVED = "(s.tenant is null or s.tenant = %(tenant)s) and (s.expires_at is null or s.expires_at > now())"


def _owned(table: str, owner: str | None) -> str:
    """A condition that an index can answer, which ``is not distinct from`` is not."""
    return f"{table}.codename is null" if owner is None else f"{table}.codename = %(owner)s"


def scars_near(
    conn: Connection, owner: str | None, tenant: str | None, model: str, vector: Sequence[float], limit: int
) -> dict[int, tuple[str, float]]:
    """Lessons of one owner (None: everybody's) and how far they are, nearest within one model first; none of another tenant.

    Whether a lesson is served is asked of the nearest alone; should too few of them be, of all.
    """
    values = {"model": model, "owner": owner, "tenant": tenant, "near": Vector(list(vector)).to_text(), "limit": limit}
    found = dict[int, tuple[str, float]]()
    window = 10 * limit
    for looked_at in (window, None):
        rows = conn.execute(
            "with near as materialized (select e.owner_id, e.vector <=> %(near)s::vector as away from atlas.embeddings e "  # noqa: S608  # our own words
            f"where e.owner_kind = 'scar' and e.model = %(model)s and {_owned('e', owner)} order by away limit %(looked_at)s) "
            "select s.id, s.lesson, near.away, (select count(*) from near) as seen from near join atlas.scars s on s.id = near.owner_id "
            f"where {_SERVED} order by near.away, s.id limit %(limit)s",
            {**values, "looked_at": looked_at},
        ).fetchall()
        found = {row["id"]: (row["lesson"], row["away"]) for row in rows}
        if len(found) == limit or (rows and rows[0]["seen"] < window):  # there are no others
            break
    return found


def scars_by_words(conn: Connection, owner: str | None, tenant: str | None, about: str, limit: int) -> dict[int, str]:
    """The same by full-text search: lessons that share words with ``about``, in either language, the most telling first."""
    rows = conn.execute(
        "with asked as (select string_agg(distinct quote_literal(lexeme), ' | ')::tsquery as query from "  # noqa: S608  # our own words
        "(select lexeme from unnest(to_tsvector('french', %(about)s)) union select lexeme from unnest(to_tsvector('english', %(about)s))) l) "
        f"select s.id, s.lesson from atlas.scars s, asked where s.words @@ asked.query and {_owned('s', owner)} "
        f"and {_SERVED} order by ts_rank_cd(s.words, asked.query) desc, s.id limit %(limit)s",
        {"about": about[:4_000], "owner": owner, "tenant": tenant, "limit": limit},
    )
    return {row["id"]: row["lesson"] for row in rows}


def add_scar(
    conn: Connection,
    lesson: str,
    *,
    author: str,
    provenance: str,
    codename: str | None,
    tenant: str | None,
    days: int | None,
) -> int:
    """A lesson that a person wrote down; its id.

    Raises Refused: ``agent_unknown``, ``tenant_unknown``, ``lesson_empty``, ``lesson_too_long``: an agent is told a lesson whole.
    """
    told = clean_text(lesson).strip()
    if not any(sign.isalnum() for sign in told):
        raise Refused("lesson_empty")
    if len(told) > LESSON_CHARACTERS:
        raise Refused("lesson_too_long", characters=len(told), most=LESSON_CHARACTERS)
    for table, column, value in (("agents", "codename", codename), ("tenants", "slug", tenant)):
        query = sql.SQL("select 1 as there from {} where {} = %s").format(
            sql.Identifier("atlas", table), sql.Identifier(column)
        )
        if value is not None and conn.execute(query, (value,)).fetchone() is None:
            raise Refused(f"{table[:-1]}_unknown", name=value)
    row = conn.execute(
        "insert into atlas.scars (codename, tenant, lesson, provenance, author, expires_at) "
        "values (%s, %s, %s, %s, %s, now() + %s * interval '1 day') returning id",
        (codename, tenant, told, clean_text(provenance), author, days),
    ).fetchone()
    return int(row["id"]) if row else 0


def expire_scar(conn: Connection, scar: int) -> bool:
    """A lesson is served no more from now on; False where there is none that still was."""
    cursor = conn.execute(
        "update atlas.scars set expires_at = now() where id = %s and (expires_at is null or expires_at > now())",
        (scar,),
    )
    return cursor.rowcount == 1


def scars(conn: Connection, *, expired: bool = False) -> list[Row]:
    """Every lesson that is served, the newest first; ``expired`` ones too where asked for."""
    which = "" if expired else "where expires_at is null or expires_at > now()"
    return conn.execute(
        f"select id, at, codename, tenant, lesson, provenance, author, expires_at from atlas.scars {which} order by id desc"  # noqa: S608  # our own words
    ).fetchall()


def active(conn: Connection) -> list[Row]:
    """Every agent that can be designated, by codename."""
    return conn.execute("select * from atlas.personas where active = 1 order by codename").fetchall()


def activity(conn: Connection, days: int = 30) -> dict[str, int]:
    """How often each agent was at work lately, by codename."""
    rows = conn.execute(
        "select codename, count(*) as n from atlas.agent_activity where at > now() - %s * interval '1 day' group by codename",
        (days,),
    )
    return {row["codename"]: row["n"] for row in rows}


def learn_from(
    conn: Connection, codename: str, *, key: str, event: str, points: int, skill: str, tools: Collection[str]
) -> None:
    """What an agent has of a start that ended: an event, experience and its history, the skill and tools it used."""
    conn.execute(
        "insert into atlas.agent_events (codename, event, detail) values (%s, %s, jsonb_build_object('message_key', %s::text))",
        (codename, event, key),
    )
    conn.execute(
        "insert into atlas.agent_experience (codename, points) values (%s, %s) on conflict (codename) do update "
        "set points = agent_experience.points + excluded.points, level = 1 + (agent_experience.points + excluded.points) / 100",
        (codename, points),
    )
    conn.execute(
        "insert into atlas.agent_experience_history (codename, points, reason, message_key) values (%s, %s, %s, %s)",
        (codename, points, event, key),
    )
    conn.execute(
        "insert into atlas.agent_skills (codename, skill) values (%s, %s) on conflict do nothing", (codename, skill)
    )
    for tool in sorted(tools):
        conn.execute(
            "insert into atlas.agent_tools (codename, tool) values (%s, %s) on conflict do nothing", (codename, tool)
        )


def note_event(conn: Connection, codename: str, event: str, detail: Mapping[str, object]) -> None:
    """One event of an agent."""
    conn.execute(
        "insert into atlas.agent_events (codename, event, detail) values (%s, %s, %s)",
        (codename, event, Jsonb(clean_json(dict(detail)))),
    )


def relate(conn: Connection, codename: str, other: str, relation: str) -> None:
    """Two agents had to do with each other."""
    conn.execute(
        "insert into atlas.agent_relations (codename, other, relation) values (%s, %s, %s) on conflict do nothing",
        (codename, other, relation),
    )


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
