"""Work records, leases, the outbox, the message lock, and the door that text from outside passes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.rows import dict_row

from atlas_pipeline.errors import DatabaseUnavailable, PermanentError, Refused
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import Address, Contract, ListedMail, Listing, Profile, SpawnResult, Trust, TrustLevel
from atlas_pipeline.store import claims, ledger, messages, outbox, spawns, tracking, verdicts, work
from atlas_pipeline.store.database import Database
from atlas_pipeline.store.locks import holders, message_lock
from tests.fixtures_flow import ROOT, Row, killed_at_the_end, letter
from tests.fixtures_release import wait_until

Conn = psycopg.Connection[Row]
NASTY = "a\x00b \ud800 c \ud83d\ude42"
CLEANED = "ab \ufffd c 🙂"


def a_message(conn: Conn, uid: str = "1") -> str:
    listed = ListedMail(uid, datetime(2026, 12, 1, tzinfo=UTC), 10, seen=False)
    (key,) = ledger.record_listing(conn, Listing("box", 1, 9, (listed,)), max_bytes=100)
    messages.store_raw(conn, [(key, b"raw")])
    return key


# Work records
# ------------


def live(conn: Conn) -> list[tuple[str, str]]:
    """(table, status) of all live records."""
    found = []
    for table in work.TABLES:
        rows = conn.execute(f"select status from atlas.{table} where superseded_at is null".encode())  # noqa: S608
        found += [(table, row["status"]) for row in rows]
    return found


def test_a_message_has_one_live_work_record_however_often_it_is_made(conn: Conn) -> None:
    key = a_message(conn)
    first = work.create(conn, key, table="runs", title="Un titre\x00", tenant=None)
    assert work.create(conn, key, table="runs", title="Un titre", tenant=None) == first
    state = tracking.require(conn, key)
    assert (state.work_kind, state.work_id, live(conn)) == ("runs", first, [("runs", "draft")])


def test_a_second_record_in_another_table_is_refused_by_the_database(conn: Conn) -> None:
    key = a_message(conn)
    work.create(conn, key, table="runs", title="Un titre", tenant=None)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        conn.execute("insert into atlas.chantiers (message_key, title) values (%s, 'Un autre')", (key,))
    with pytest.raises(psycopg.errors.ForeignKeyViolation), conn.transaction():
        work.create(conn, key, table="chantiers", title="Un autre", tenant=None)
    assert (live(conn), tracking.require(conn, key).work_kind) == ([("runs", "draft")], "runs")


def test_a_superseded_record_is_kept_and_makes_room_for_one_of_another_kind(conn: Conn) -> None:
    key = a_message(conn)
    work.create(conn, key, table="runs", title="Un titre", tenant=None)
    with conn.transaction():
        work.supersede(conn, key)
        work.create(conn, key, table="questions", title="Un titre", tenant=None)
    assert live(conn) == [("questions", "draft")]
    kept = conn.execute("select live_key, superseded_at from atlas.runs").fetchall()
    assert [(row["live_key"], row["superseded_at"] is not None) for row in kept] == [(None, True)]


@pytest.mark.parametrize(("verb", "status"), [("accept", "accepted"), ("cancel", "cancelled")])
def test_an_operators_decision_stands_on_the_record_with_who_gave_it(conn: Conn, verb: str, status: str) -> None:
    key = a_message(conn)
    with pytest.raises(Refused) as refused:
        work.decide(conn, key, verb, actor="lea")
    assert refused.value.code == "no_work_record"
    work.create(conn, key, table="conseils", title="Un titre", tenant=None)
    assert work.decide(conn, key, verb, actor="lea") == "conseils"
    row = conn.execute("select status, decided_by, decided_at is not null as dated from atlas.conseils").fetchone()
    assert row == {"status": status, "decided_by": "lea", "dated": True}


def test_a_table_that_holds_no_work_is_refused(conn: Conn) -> None:
    with pytest.raises(Refused) as refused:
        work.create(conn, a_message(conn), table="audit_log", title="x", tenant=None)
    assert refused.value.code == "work_table_unknown"


# Leases
# ------


def test_a_second_run_passes_over_what_is_leased_and_takes_the_rest(conn: Conn) -> None:
    assert claims.lease(conn, ["a", "b"], run_id="one", seconds=60) == ["a", "b"]
    assert claims.lease(conn, ["a", "b", "c"], run_id="two", seconds=60) == ["c"]
    assert claims.lease(conn, ["a", "c"], run_id="one", seconds=60) == ["a"]


def test_a_lease_that_ran_out_is_taken_over_and_the_first_run_learns_that_it_is_not_its_own_any_more(
    conn: Conn,
) -> None:
    claims.lease(conn, ["a"], run_id="one", seconds=0)
    assert claims.lease(conn, ["a"], run_id="two", seconds=60) == ["a"]
    assert claims.begin(conn, "a", run_id="one", stage="intake", seconds=60) == 0
    claims.release(conn, ["a"], run_id="one")
    assert claims.begin(conn, "a", run_id="two", stage="intake", seconds=60) == 1


def test_tries_are_counted_a_message_and_survive_the_death_of_their_run(conn: Conn) -> None:
    claims.lease(conn, ["a", "b"], run_id="one", seconds=60)
    assert claims.begin(conn, "a", run_id="one", stage="intake", seconds=60) == 1
    assert claims.expire_dead(conn, ["other"]) == ["a", "b"]
    claims.lease(conn, ["a", "b"], run_id="two", seconds=60)
    assert claims.begin(conn, "a", run_id="two", stage="intake", seconds=60) == 2
    assert claims.begin(conn, "b", run_id="two", stage="intake", seconds=60) == 1
    claims.release(conn, ["b"], run_id="two")
    claims.lease(conn, ["b"], run_id="three", seconds=60)
    assert claims.begin(conn, "b", run_id="three", stage="intake", seconds=60) == 1
    claims.forget(conn, "a")
    assert claims.lease(conn, ["a"], run_id="three", seconds=60) == ["a"]


def test_leases_of_living_runs_are_left_alone(conn: Conn) -> None:
    claims.lease(conn, ["a"], run_id="one", seconds=60)
    assert claims.expire_dead(conn, ["one"]) == []
    assert claims.lease(conn, ["a"], run_id="two", seconds=60) == []


# The outbox
# ----------


def queue(conn: Conn, key: str, attempt: int = 1, **facts: object) -> None:
    outbox.queue(conn, key, round_=1, attempt=attempt, kind="recap", message_id=f"<{key}.{attempt}@x>", facts=facts)


def test_a_recap_is_queued_once_an_attempt_and_claimed_by_one_of_two_senders(database_url: str, conn: Conn) -> None:
    """Casebook C89: select, send, update is how two schedulers send the same mail."""
    key = a_message(conn)
    queue(conn, key)
    queue(conn, key)
    taken: list[outbox.Queued | None] = []
    gate = threading.Barrier(4)

    def sender() -> None:
        with psycopg.connect(database_url, row_factory=dict_row) as mine:
            gate.wait(timeout=10)
            taken.append(outbox.claim(mine))

    threads = [threading.Thread(target=sender) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert [row.message_key for row in taken if row is not None] == [key]
    assert outbox.claim(conn) is None
    assert outbox.counts(conn) == {"sending": 1}


def test_a_sender_in_the_middle_of_its_claim_does_not_hold_up_the_next_recap(database_url: str, conn: Conn) -> None:
    key = a_message(conn)
    for attempt in (1, 2):
        queue(conn, key, attempt)
    with psycopg.connect(database_url, row_factory=dict_row) as first:
        one, two = outbox.claim(first), outbox.claim(conn)
    assert one is not None and two is not None  # noqa: PT018
    assert (one.attempt, two.attempt) == (1, 2)


def test_a_recap_whose_sender_died_is_uncertain_and_never_sent_again_by_itself(conn: Conn) -> None:
    queue(conn, a_message(conn))
    assert outbox.claim(conn) is not None
    assert (outbox.due(conn), outbox.give_up_stale(conn)) == (False, 0)
    conn.execute("update atlas.notifications set claimed_at = now() - interval '11 minutes'")
    assert outbox.due(conn)
    assert outbox.give_up_stale(conn) == 1
    assert (outbox.counts(conn), outbox.claim(conn), outbox.due(conn)) == ({"uncertain": 1}, None, False)
    alarms = conn.execute("select code from atlas.alerts").fetchall()
    assert [row["code"] for row in alarms] == ["sender_died"]


# The message lock
# ----------------

_HOLDER = """
import sys, time
from atlas_pipeline.store.locks import message_lock
with message_lock(sys.argv[1], 42) as taken:
    print(taken, flush=True)
    time.sleep(600)
"""
_BUSY_HOLDER = """
import sys
from atlas_pipeline.store.database import dedicated
from atlas_pipeline.store.locks import LOCK_CLASS
with dedicated(sys.argv[1]) as connection:
    connection.execute("select pg_advisory_lock(%s, 42)", (LOCK_CLASS,))
    print(True, flush=True)
    connection.execute("select pg_sleep(600)")
"""


def test_the_lock_of_a_message_is_refused_to_a_second_holder_without_waiting(database_url: str, conn: Conn) -> None:
    with (
        message_lock(database_url, 42) as first,
        message_lock(database_url, 42) as second,
        message_lock(database_url, 43) as other,
    ):
        assert (first, second, other) == (True, False, True)
        assert {holder.seq for holder in holders(conn)} == {42, 43}
    with message_lock(database_url, 42) as again:
        assert again


@pytest.fixture
def patient_server(conn: Conn) -> Iterator[None]:
    """As most servers are: one that doesn't look after its clients unless a connection asks for it."""
    name = sql.Identifier(conn.info.dbname)
    conn.execute(sql.SQL("alter database {} set client_connection_check_interval = 0").format(name))
    yield
    conn.execute(sql.SQL("alter database {} reset client_connection_check_interval").format(name))


@pytest.mark.parametrize("holder", [_HOLDER, _BUSY_HOLDER], ids=["idle", "inside_a_statement"])
def test_the_lock_is_free_soon_after_its_holder_was_killed(
    database_url: str, conn: Conn, patient_server: None, holder: str
) -> None:
    """Casebook C102: a backend inside a statement notices its client's death by the check interval alone."""
    process = subprocess.Popen([sys.executable, "-c", holder, database_url], cwd=ROOT, stdout=subprocess.PIPE)
    with killed_at_the_end(process):
        assert process.stdout is not None
        assert process.stdout.readline() == b"True\n"
        with message_lock(database_url, 42) as taken:
            assert not taken
    wait_until(lambda: 42 not in {holder.seq for holder in holders(conn)}, 5)
    with message_lock(database_url, 42) as taken:
        assert taken


def test_a_lock_on_a_database_that_is_gone_is_a_coded_error(unused_port: int) -> None:
    with pytest.raises(DatabaseUnavailable), message_lock(f"postgresql://postgres@127.0.0.1:{unused_port}/x", 1):
        pytest.fail("the block must not run")


# The pool and its errors
# -----------------------


def test_a_transaction_is_rolled_back_on_any_exception_and_a_refusal_quotes_nothing(
    database_url: str, conn: Conn
) -> None:
    database = Database(database_url)

    def claim_and(what: str | KeyboardInterrupt) -> None:
        with database.transaction() as mine:
            claims.lease(mine, ["a"], run_id="one", seconds=60)
            if isinstance(what, KeyboardInterrupt):
                raise what
            mine.execute(what.encode())

    with pytest.raises(PermanentError) as refused:
        claim_and("insert into atlas.inbox (message_key) values ('secret of a mail')")
    assert (str(refused.value), refused.value.__cause__) == ("database_refused (sqlstate=23503)", None)
    with pytest.raises(KeyboardInterrupt):
        claim_and(KeyboardInterrupt())
    database.close()
    assert conn.execute("select * from atlas.inbox_claims").fetchall() == []


def test_what_the_database_will_never_take_is_not_called_an_outage(database_url: str) -> None:
    """An index row that is too long is an OperationalError of psycopg, and no reason to come back later."""
    database = Database(database_url)
    with pytest.raises(PermanentError) as refused, database.transaction() as mine:
        mine.execute("select repeat('a', 1100000000)")
    assert (refused.value.code, refused.value.detail) == ("database_refused", {"sqlstate": "54000"})
    database.close()


def test_a_server_that_is_gone_is_an_outage(unused_port: int) -> None:
    database = Database(f"postgresql://postgres@127.0.0.1:{unused_port}/x", timeout_seconds=0.5)
    with pytest.raises(DatabaseUnavailable), database.transaction():
        pytest.fail("the block must not run")
    database.close()


# Text from outside
# -----------------


def test_every_text_that_comes_from_outside_is_cleaned_on_its_way_in_and_the_bytes_are_not(conn: Conn) -> None:
    key = a_message(conn)
    raw = letter(attachments=[("piece.txt", b"piece", "text/plain")])
    mail = parse(raw)
    part = replace(mail.parts[0], name=NASTY)
    nasty = replace(
        mail, subject=NASTY, body_text=NASTY, body_html=NASTY, message_id=NASTY, sender=Address(NASTY, NASTY),
        recipients=(Address(NASTY, NASTY),), headers={NASTY: [NASTY]}, parts=(part,),
        forward=replace(mail.forward, found=True, subject=NASTY, body=NASTY, sender=Address(NASTY, NASTY), forwarder=Address(None, "g@team.example")),
    )  # fmt: skip
    understanding = messages.Understanding(key, nasty, Trust(TrustLevel.OTHER, "x"), (Address(NASTY, NASTY), True))
    messages.store_understanding(conn, [understanding])
    row = conn.execute("select * from atlas.messages").fetchone()
    assert row is not None
    for column in (
        "subject",
        "body_text",
        "body_html",
        "message_id",
        "from_name",
        "from_address",
        "requester_name",
        "requester_address",
    ):
        assert row[column] == CLEANED, column
    assert row["headers"] == {CLEANED: [CLEANED]}
    assert row["recipients"] == [{"name": CLEANED, "address": CLEANED}]
    stored = messages.forward_of(row)
    assert (stored.body, stored.sender.name, stored.forwarder) == (CLEANED, CLEANED, Address(None, "g@team.example"))
    assert bytes(row["raw"]) == b"raw"
    names = conn.execute("select name from atlas.attachments").fetchall()
    assert names == [{"name": CLEANED}]
    assert messages.originals_of(conn, [("another key", nasty)]) == {"another key": key}
    work.create(conn, key, table="runs", title=NASTY, tenant=None)
    verdicts.add_draft(conn, key, author="atlas", body=NASTY)
    found = conn.execute("select title, body from atlas.runs join atlas.reply_drafts using (message_key)").fetchone()
    assert found == {"title": CLEANED, "body": CLEANED}


def spawned(conn: Conn, key: str) -> int:
    return spawns.claim(
        conn, key, round_=1, attempt=1, try_=1, profile=Profile.READ, tenant=None, agent="atlas", model="m", run_id="r"
    )


class Event:
    """An event as the agent printed it."""

    def __init__(self, seq: int, payload: object) -> None:
        self.seq, self.type, self.tool, self.payload = seq, "assistant", None, payload


def test_an_agents_events_and_contract_are_cleaned_too_and_read_back_as_they_were(conn: Conn) -> None:
    key = a_message(conn)
    spawn_id = spawned(conn, key)
    spawns.add_events(conn, spawn_id, [Event(1, {"text": NASTY, "n": float("nan")}), Event(2, [NASTY])])
    payloads = conn.execute("select payload from atlas.spawn_events order by seq").fetchall()
    assert [row["payload"] for row in payloads] == [{"text": CLEANED, "n": None}, [CLEANED]]
    result = SpawnResult(True, "ok", 0, None, 1.5, 2, result_seen=True, cost_usd=0.25)
    spawns.finish(conn, spawn_id, status="ok", code="ok", result=result)
    contract = Contract("ok", None, ("/a",), ("b" * 40,), NASTY, "", None, ("x",))
    spawns.store_contract(conn, spawn_id, contract, ["c" * 40])
    assert not spawns.finish(conn, spawn_id, status="lost", code="owner_died")  # the first word is the last
    assert not spawns.heartbeat(conn, spawn_id)
    spawns.started(conn, spawn_id, 1, 1.0)
    read = spawns.latest(conn, key, 1, 1)
    assert read is not None
    assert read.contract == replace(contract, summary=CLEANED)
    assert (read.status, read.commits, read.cost_usd, read.seconds) == ("ok", ("c" * 40,), 0.25, 1.5)


def test_a_second_start_of_the_same_try_is_refused_by_the_database(conn: Conn) -> None:
    key = a_message(conn)
    spawned(conn, key)
    with pytest.raises(psycopg.errors.UniqueViolation):
        spawned(conn, key)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=4),
    max_leaves=12,
)


@given(payload=JSON)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_postgresql_takes_whatever_json_an_agent_can_print(conn: Conn, payload: object) -> None:
    with conn.transaction(force_rollback=True):
        spawn_id = spawned(conn, a_message(conn))
        spawns.add_events(conn, spawn_id, [Event(1, payload)])
        assert len(conn.execute("select 1 from atlas.spawn_events").fetchall()) == 1
