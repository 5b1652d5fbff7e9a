"""What an agent's hooks can do in the database: note their own events while their start runs, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.store import spawns
from atlas_pipeline.store.database import Row

Conn = psycopg.Connection[Row]
KEY = "20261201-000001"


@pytest.fixture
def start(conn: Conn) -> int:
    """An agent at work."""
    conn.execute(
        "insert into atlas.mailbox_ledger (mailbox, uid_validity, uid, message_key, internal_date, size_bytes) "
        "values ('m', 1, '1', %s, now(), 1)",
        (KEY,),
    )
    conn.execute(
        "insert into atlas.messages (message_key, raw, raw_sha256, fingerprint) values (%s, '', '', 'f')", (KEY,)
    )
    row = conn.execute(
        "insert into atlas.spawns (message_key, round, attempt, try, profile, agent, model, status) "
        "values (%s, 1, 1, 1, 'write', 'backend', 'm', 'running') returning id",
        (KEY,),
    ).fetchone()
    assert row is not None
    return int(row["id"])


@pytest.fixture
def agent_url(conn: Conn, database_url: str) -> str:
    """The database as the agents' role, whose password an operator has set."""
    conn.execute("alter role atlas_agent password 'not-a-secret'")
    return make_conninfo(database_url, user="atlas_agent", password="not-a-secret")


@pytest.fixture
def hook(conn: Conn, start: int, agent_url: str) -> Iterator[tuple[psycopg.Connection[Any], str]]:
    """A hook's own connection, made of what it is given, and its token."""
    access = spawns.hook_access(conn, start, agent_url)
    assert access["ATLAS_MESSAGE_KEY"] == KEY
    with psycopg.connect(
        host=access["PGHOST"],
        port=access["PGPORT"],
        dbname=access["PGDATABASE"],
        user=access["PGUSER"],
        password=access["PGPASSWORD"],
        autocommit=True,
    ) as connection:
        yield connection, access["ATLAS_HOOK_TOKEN"]


def note(connection: psycopg.Connection[Any], token: str, payload: str = "{}") -> None:
    connection.execute("select atlas.note_hook(%s, 'Stop', %s::jsonb)", (token, payload))


def test_a_hook_notes_events_of_its_own_start(
    conn: Conn, start: int, hook: tuple[psycopg.Connection[Any], str]
) -> None:
    note(*hook, '{"reason": "done"}')
    assert conn.execute("select spawn_id, event_type, payload from atlas.hook_events").fetchall() == [
        {"spawn_id": start, "event_type": "Stop", "payload": {"reason": "done"}}
    ]


@pytest.mark.parametrize("statement", [
    "select * from atlas.inbox",
    "select raw from atlas.messages",
    "select * from atlas.hook_events",
    "insert into atlas.hook_events (spawn_id, event_type, payload) values (1, 'x', '{}')",
    "update atlas.spawns set status = 'ok'",
    "insert into atlas.audit_log (action, actor) values ('x', 'y')",
    "create table atlas.mine ()",
    "create table public.mine ()",
    "set role postgres",
    "copy (select 1) to program 'true'",
])  # fmt: skip
def test_a_hook_can_do_nothing_else(hook: tuple[psycopg.Connection[Any], str], statement: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        hook[0].execute(statement.encode())


def test_a_token_is_worth_nothing_to_others_and_after_the_start_has_ended(
    conn: Conn, start: int, hook: tuple[psycopg.Connection[Any], str]
) -> None:
    connection, token = hook
    for wrong in ("", "x", token[:-1]):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="hook_token_unknown"):
            note(connection, wrong)
    conn.execute("update atlas.spawns set status = 'ok' where id = %s", (start,))
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="hook_token_unknown"):
        note(connection, token)


def test_a_hook_can_not_fill_the_disk(conn: Conn, start: int, hook: tuple[psycopg.Connection[Any], str]) -> None:
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="hook_payload_too_large"):
        note(*hook, '"' + "x" * 70_000 + '"')
    conn.execute(
        "insert into atlas.hook_events (spawn_id, event_type, payload) select %s, 'x', '{}' from generate_series(1, 10000)",
        (start,),
    )
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="hook_events_too_many"):
        note(*hook)


@pytest.mark.parametrize(
    ("url", "code"),
    [("not a url", "agent_database_url_invalid"), ("postgresql://atlas:x@h/d", "agent_database_role_wrong")],
)
def test_no_other_role_is_ever_handed_to_an_agent(conn: Conn, start: int, url: str, code: str) -> None:
    with pytest.raises(NotConfigured, match=code):
        spawns.hook_access(conn, start, url)
