"""The status of a message: compare and set, in the picture of the design, never without a word."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest

from atlas_pipeline.errors import Refused
from atlas_pipeline.model import ListedMail, Listing, Status
from atlas_pipeline.store import audit, ledger, messages, tracking
from atlas_pipeline.store.tracking import TRANSITIONS
from tests.fixtures_flow import Row

Conn = psycopg.Connection[Row]
S = Status

# Design §2, read off the picture and the sentences below it.
ARROWS = [
    (S.RECEIVED, S.CLASSIFIED), (S.RECEIVED, S.BLOCKED), (S.RECEIVED, S.FAILED),
    (S.CLASSIFIED, S.SPAWNING), (S.CLASSIFIED, S.CLOSED), (S.CLASSIFIED, S.ESCALATED),
    (S.SPAWNING, S.ACTIONED), (S.SPAWNING, S.QA_FAILED), (S.SPAWNING, S.ESCALATED), (S.SPAWNING, S.CLASSIFIED),
    (S.QA_FAILED, S.SPAWNING), (S.QA_FAILED, S.ESCALATED),
    (S.BLOCKED, S.RECEIVED), (S.FAILED, S.RECEIVED),
    (S.CLOSED, S.CLASSIFIED), (S.ESCALATED, S.CLASSIFIED), (S.ACTIONED, S.CLASSIFIED),
    *((status, S.RECEIVED) for status in S if status not in (S.RECEIVED, S.SPAWNING)),
    *((status, S.BLOCKED) for status in S if status not in (S.BLOCKED, S.SPAWNING)),
]  # fmt: skip
FORBIDDEN = [
    (S.RECEIVED, S.SPAWNING), (S.RECEIVED, S.ACTIONED), (S.CLASSIFIED, S.ACTIONED), (S.SPAWNING, S.RECEIVED),
    (S.BLOCKED, S.CLASSIFIED), (S.FAILED, S.CLASSIFIED), (S.CLOSED, S.SPAWNING), (S.ACTIONED, S.SPAWNING),
]  # fmt: skip


def a_message(conn: Conn, uid: str = "1") -> str:
    """One message in ``received``; its key."""
    listed = ListedMail(uid, datetime(2026, 12, 1, tzinfo=UTC), 10, seen=False)
    (key,) = ledger.record_listing(conn, Listing("box", 1, 9, (listed,)), max_bytes=100)
    messages.store_raw(conn, [(key, b"raw")])
    return key


def put_into(conn: Conn, key: str, status: Status) -> None:
    conn.execute("update atlas.inbox set status = %s where message_key = %s", (status.value, key))


@pytest.mark.parametrize(("old", "new"), ARROWS, ids=lambda status: status.value)
def test_every_arrow_of_the_design_exists(old: Status, new: Status) -> None:
    assert new in TRANSITIONS[old]


@pytest.mark.parametrize(("old", "new"), FORBIDDEN, ids=lambda status: status.value)
def test_an_arrow_that_the_design_does_not_have_is_refused(conn: Conn, old: Status, new: Status) -> None:
    key = a_message(conn)
    put_into(conn, key, old)
    with pytest.raises(Refused) as refused:
        tracking.move(conn, key, expected=[old], to=new, action="moved", actor="test")
    assert refused.value.code == "transition_unknown"
    assert tracking.require(conn, key).status is old


def test_a_move_writes_status_columns_reason_and_audit_together(conn: Conn) -> None:
    key = a_message(conn)
    tracking.move(
        conn, key, expected=[S.RECEIVED], to=S.FAILED, action="intake_failed", actor="test", reason_code="answer_not_json",
        columns={"attempt": 2}, stage="classification",
    )  # fmt: skip
    state = tracking.require(conn, key)
    assert (state.status, state.reason_code, state.attempt) == (S.FAILED, "answer_not_json", 2)
    (line,) = audit.history(conn, key)
    assert (line["action"], line["actor"]) == ("intake_failed", "test")
    assert line["detail"] == {"code": "answer_not_json", "stage": "classification"}


def test_a_move_from_a_status_that_is_no_longer_there_is_refused_and_changes_nothing(conn: Conn) -> None:
    key = a_message(conn)
    tracking.move(conn, key, expected=[S.RECEIVED], to=S.CLASSIFIED, action="classified", actor="first")
    with pytest.raises(Refused) as refused:
        tracking.move(conn, key, expected=[S.RECEIVED], to=S.FAILED, action="intake_failed", actor="second")
    assert refused.value.code == "status_changed"
    assert tracking.require(conn, key).status is S.CLASSIFIED
    assert [line["action"] for line in audit.history(conn, key)] == ["classified"]


def test_of_two_moves_at_once_one_wins_and_the_other_is_refused(database_url: str, conn: Conn) -> None:
    """The loser waits for the winner's row lock and then sees the new status, not the one it had read."""
    key = a_message(conn)
    with psycopg.connect(database_url) as first, psycopg.connect(database_url) as second:
        one, two = (Row_connection(connection) for connection in (first, second))
        tracking.move(one, key, expected=[S.RECEIVED], to=S.CLASSIFIED, action="classified", actor="first")
        second.execute("set lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            tracking.move(two, key, expected=[S.RECEIVED], to=S.FAILED, action="intake_failed", actor="second")
        second.rollback()
        first.commit()
        with pytest.raises(Refused):
            tracking.move(two, key, expected=[S.RECEIVED], to=S.FAILED, action="intake_failed", actor="second")


def Row_connection(connection: psycopg.Connection[tuple[object, ...]]) -> Conn:
    """The same connection, giving rows by name."""
    connection.row_factory = psycopg.rows.dict_row  # type: ignore[assignment]
    return connection  # type: ignore[return-value]


def test_a_message_that_does_not_exist_is_a_coded_refusal(conn: Conn) -> None:
    with pytest.raises(Refused) as refused:
        tracking.require(conn, "20260101-000001")
    assert refused.value.code == "message_unknown"
    with pytest.raises(Refused) as refused:
        tracking.move(conn, "20260101-000001", expected=[S.RECEIVED], to=S.FAILED, action="x", actor="test")
    assert refused.value.code == "status_changed"


@pytest.mark.parametrize("statement", [
    "update atlas.audit_log set actor = 'nobody'",
    "delete from atlas.audit_log",
    "truncate atlas.audit_log",
    "update atlas.alerts set code = 'x'",
    "delete from atlas.scans",
    "truncate atlas.classifications cascade",
    "delete from atlas.ai_calls",
    "update atlas.corrections set actor = 'nobody'",
    "delete from atlas.phase_decisions",
])  # fmt: skip
def test_what_is_append_only_is_kept_so_by_the_database(conn: Conn, statement: str) -> None:
    audit.record(conn, None, "something", actor="test")
    with pytest.raises(psycopg.errors.RestrictViolation):
        conn.execute(statement.encode())
    assert len(conn.execute("select 1 from atlas.audit_log").fetchall()) == 1


def test_the_same_alarm_is_raised_once_an_hour_and_audited_once(conn: Conn) -> None:
    assert audit.alert(conn, "mailbox:gone", "imap_unreachable", waiting=3)
    assert not audit.alert(conn, "mailbox:gone", "imap_unreachable", waiting=4)
    assert audit.alert(conn, "scan:gone", "scanner_refused")
    assert audit.alert(conn, "mailbox:gone", "imap_unreachable", hours=0)
    audited = conn.execute("select detail->>'code' as code from atlas.audit_log order by id").fetchall()
    assert [row["code"] for row in audited] == ["imap_unreachable", "scanner_refused", "imap_unreachable"]
    assert [row["code"] for row in audit.recent_alerts(conn, 2)] == ["imap_unreachable", "scanner_refused"]
