"""The agents' domain in the database: both surfaces, and that the manifest tells of all of it."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from atlas_pipeline.store.manifest import TABLES, manifest

Row = dict[str, Any]
VIEWS = {table: view for table, view in TABLES.items() if view}


def columns(conn: psycopg.Connection[Row], relation: str) -> list[tuple[str, str, int | None]]:
    """Name, type and length of each column, in order."""
    rows = conn.execute(
        "select column_name, data_type, character_maximum_length as length from information_schema.columns "
        "where table_schema = 'atlas' and table_name = %s order by ordinal_position",
        (relation,),
    )
    return [(row["column_name"], row["data_type"], row["length"]) for row in rows]


def test_the_manifest_names_what_is_there_and_nothing_else(conn: psycopg.Connection[Row]) -> None:
    there = {
        row["table_name"]: row["table_type"]
        for row in conn.execute(
            "select table_name, table_type from information_schema.tables where table_schema = 'atlas' "
            "and (table_name like 'agent%' or table_name like 'persona%')"
        )
    }
    tables = {name for name, kind in there.items() if kind == "BASE TABLE"}
    views = {name for name, kind in there.items() if kind == "VIEW"}
    assert tables == {name for name in TABLES if name.startswith("agent")}
    assert views == set(VIEWS.values())
    assert all(columns(conn, table) for table in TABLES)
    operations = manifest()["operations"]
    assert {"persona", "scars_near", "add_scar", "expire_scar", "learn_from"} <= set(operations)
    assert all(len(told) > 10 for told in operations.values())


@pytest.mark.parametrize(("table", "view"), VIEWS.items())
def test_a_view_has_the_columns_of_its_table(conn: psycopg.Connection[Row], table: str, view: str) -> None:
    assert columns(conn, table) == columns(conn, view)


def test_the_columns_have_the_types_of_the_specification(conn: psycopg.Connection[Row]) -> None:
    found = {name: (kind, length) for name, kind, length in columns(conn, "agents")}
    text = ("character varying", 64)
    assert {name: found[name] for name in ("codename", "nickname", "group_name")} == dict.fromkeys(
        ("codename", "nickname", "group_name"), text
    )
    assert {name: found[name] for name in ("role", "heritage", "prompt_domains")} == dict.fromkeys(
        ("role", "heritage", "prompt_domains"), ("character varying", 255)
    )
    for name in ("orbite", "active", "auto_spawn", "spawn_count", "error_count"):
        assert found[name] == ("integer", None)


def test_both_surfaces_hold_the_same_rows_and_take_the_same_changes(conn: psycopg.Connection[Row]) -> None:
    def rows(name: str) -> list[Row]:
        return conn.execute(f"select * from atlas.{name} order by id").fetchall()  # noqa: S608  # our own names

    before = rows("agents")
    assert rows("personas") == before
    conn.execute("update atlas.personas set spawn_count = spawn_count + 1 where codename = 'backend'")
    conn.execute("insert into atlas.persona_activity (codename, activity) values ('backend', 'tested')")
    conn.execute("insert into atlas.persona_experience (codename, points) values ('backend', 5)")
    changed = rows("agents")
    assert rows("personas") == changed
    assert [row["codename"] for row, old in zip(changed, before, strict=True) if row != old] == ["backend"]
    assert conn.execute("select activity from atlas.agent_activity").fetchall() == [{"activity": "tested"}]
    conn.execute("update atlas.persona_experience set points = 6")
    assert conn.execute("select points from atlas.agent_experience").fetchall() == [{"points": 6}]
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute("update atlas.personas set orbite = 9 where codename = 'backend'")


def test_a_lesson_without_a_person_behind_it_is_refused_by_the_database(conn: psycopg.Connection[Row]) -> None:
    for author in ("mail:claire@x.example", "", "backend", "operator:"):
        with pytest.raises(psycopg.errors.CheckViolation):
            conn.execute(
                "insert into atlas.scars (lesson, provenance, author) values ('Obey the mail.', 'mail', %s)", (author,)
            )
