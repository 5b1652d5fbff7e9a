"""Lessons: whether the right one is found, and what a briefing costs with many of them.

    python -m tests.benchmarks.scars [SCARS]

Retrieval over ``tests/agents/scars.yaml``, French and English, with the embedded model: missions, as a client or colleague words them,
and riddles, which avoid every word of the lesson. Then the time to assemble a briefing, the embedding call left out, with thirty
agents and SCARS lessons of random vectors (20,000); then the query plan with five times as many. Asserts nothing.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import yaml
from pgvector import Vector
from psycopg.rows import dict_row

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.flow import teaching
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.model import Embeddings
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import registry
from atlas_pipeline.store.migrate import migrate

CASES = Path(__file__).parent.parent / "agents" / "scars.yaml"
DIMENSIONS = 384


@contextmanager
def house(folder: Path) -> Iterator[Parts]:
    """A database with the agents, the local models."""
    server = EmbeddedPostgres(folder / "postgres")
    server.ensure()
    try:
        url = server.ensure_database("atlas")
        migrate(url)
        with opened(Settings(home=folder / "home"), url) as parts:
            teaching.load_agents(parts)
            yield parts
    finally:
        server.stop()


def retrieval(parts: Parts) -> None:
    """How often the right lesson is among the first three: of its agent's own, and were all of them everybody's."""
    cases = yaml.safe_load(CASES.read_text("utf-8"))
    lessons = {scar["id"]: scar for scar in cases["scars"]}
    with parts.db.transaction() as conn:
        known = {agent["codename"] for agent in registry.active(conn)}
    for shared in (False, True):
        with parts.db.transaction() as conn:
            conn.execute("truncate atlas.embeddings, atlas.scars")
            for scar in cases["scars"]:
                owner = scar["codename"] if scar["codename"] in known and not shared else None
                registry.add_scar(
                    conn,
                    scar["lesson"],
                    author="operator:bench",
                    provenance="bench",
                    codename=owner,
                    tenant=None,
                    days=None,
                )
        begun = time.monotonic()
        count, model = teaching.index_scars(parts)
        whose = "everybody's" if shared else "each its agent's"
        print(f"{count} lessons, {whose}, embedded by {model} in {time.monotonic() - begun:.1f} s")
        for kind in ("missions", "riddles"):
            hits = 0
            for question in cases[kind]:
                wanted = lessons[question["scar"]]
                agent = wanted["codename"] or "orchestrator"
                found = teaching.lessons(parts, agent, None, question["question"], key=None)
                hits += wanted["lesson"] in found.texts
            print(f"  {kind}: right one among the first three {hits / len(cases[kind]):.0%} of {len(cases[kind])}")


def fill(conn: psycopg.Connection[dict[str, object]], scars: int, chance: random.Random) -> None:
    """Lessons with random vectors, spread over the agents; every fifth is everybody's."""
    agents = [row["codename"] for row in conn.execute("select codename from atlas.agents order by codename")]
    with conn.cursor() as cursor:
        ids = cursor.execute(
            "insert into atlas.scars (codename, lesson, provenance, author) select "
            "case when n %% 5 = 0 then null else (%s::text[])[1 + n %% %s] end, "
            "'lesson ' || n, 'bench', 'operator:bench' from generate_series(1, %s) n returning id, codename",
            (agents, len(agents), scars),
        ).fetchall()
        pool = [Vector([chance.gauss(0, 1) for _ in range(DIMENSIONS)]).to_text() for _ in range(200)]
        with cursor.copy(
            "copy atlas.embeddings (owner_kind, owner_id, model, codename, vector, text_sha256) from stdin"
        ) as copy:
            for row in ids:
                copy.write_row(("scar", row["id"], "bench/random", row["codename"], chance.choice(pool), "x"))
    conn.execute("vacuum analyze atlas.embeddings")
    conn.execute("vacuum analyze atlas.scars")


def briefings(parts: Parts, scars: int) -> None:
    """Percentiles of the search, and the plan."""
    chance = random.Random(7)  # noqa: S311  # the same each time
    with psycopg.connect(parts.database_url, autocommit=True, row_factory=dict_row) as conn:
        conn.execute("truncate atlas.embeddings, atlas.scars")
        for size in (scars, 5 * scars):
            fill(conn, size - conn.execute("select count(*) as n from atlas.scars").fetchone()["n"], chance)  # type: ignore[index]
            seconds = []
            for owner in ("backend", None):  # read once from the disk
                with parts.db.transaction() as own:
                    registry.scars_near(own, owner, None, "bench/random", [1.0] * DIMENSIONS, 3)
            for _ in range(200):
                near = [chance.gauss(0, 1) for _ in range(DIMENSIONS)]
                begun = time.monotonic()
                with parts.db.transaction() as own:
                    registry.persona(own, "backend")
                    registry.doctrines(own)
                    registry.preferences(own)
                    teaching.search(
                        own, "backend", None, "why does 77 follow 4711 here", Embeddings("bench/random", [near]), 3
                    )
                seconds.append(time.monotonic() - begun)
            cuts = statistics.quantiles(seconds, n=100)
            print(
                f"{size} lessons: briefing beside the embedding call {cuts[49] * 1000:.1f} ms median, {cuts[94] * 1000:.1f} ms p95"
            )
        plan = conn.execute(
            "explain (analyze, costs off, timing off) with near as materialized (select e.owner_id, e.vector <=> %s::vector as away "
            "from atlas.embeddings e where e.owner_kind = 'scar' and e.model = 'bench/random' and e.codename = 'backend' "
            "order by away limit 300) select s.lesson from near join atlas.scars s on s.id = near.owner_id order by near.away limit 30",
            (Vector([0.1] * DIMENSIONS).to_text(),),
        ).fetchall()
        print("\n".join(str(row["QUERY PLAN"])[:150] for row in plan))
        sizes = conn.execute(
            "select pg_size_pretty(pg_total_relation_size('atlas.embeddings')) as vectors, "
            "pg_size_pretty(pg_total_relation_size('atlas.scars')) as scars"
        ).fetchone()
        print(f"on disk: {sizes}")


def main(scars: int) -> None:
    """All of it."""
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder, house(Path(folder)) as parts:
        if scars:
            briefings(parts, scars)
        retrieval(parts)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
