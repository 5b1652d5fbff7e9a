"""The outbox's rows: each belongs to the sender that claimed it, until it is settled; then to people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from atlas_pipeline.errors import Refused
from atlas_pipeline.store import outbox

Conn = psycopg.Connection[dict[str, Any]]
Settle = Callable[[Conn, outbox.Queued], bool]


def queued(conn: Conn, name: str = "one") -> None:
    outbox.queue_alert(conn, kind="alert", message_id=f"<{name}@x.example>", facts={"code": "c", "detail": {}})


def claimed(conn: Conn) -> outbox.Queued:
    row = outbox.claim(conn)
    assert row is not None
    return row


def stale(conn: Conn) -> None:
    """The row's sender is thought dead."""
    conn.execute("update atlas.notifications set claimed_at = now() - interval '1 hour' where state = 'sending'")
    outbox.give_up_stale(conn)


def the_row(conn: Conn) -> dict[str, Any]:
    (row,) = conn.execute("select * from atlas.notifications").fetchall()
    return row


def late(conn: Conn) -> list[str]:
    rows = conn.execute(
        "select detail->>'outcome' as outcome from atlas.audit_log where action = 'recap_late' order by id"
    )
    return [row["outcome"] for row in rows]


def was_sent(conn: Conn, row: outbox.Queued) -> bool:
    return outbox.sent(conn, row, ["team@x.example"], [])


def was_deferred(conn: Conn, row: outbox.Queued) -> bool:
    return outbox.defer(conn, row, "smtp_deferred", seconds=60)


def was_refused(conn: Conn, row: outbox.Queued) -> bool:
    return outbox.give_up(conn, row, "refused", "smtp_refused")


def was_uncertain(conn: Conn, row: outbox.Queued) -> bool:
    return outbox.give_up(conn, row, "uncertain", "smtp_uncertain")


SETTLES = [was_sent, was_deferred, was_refused, was_uncertain]


@pytest.mark.parametrize(
    ("settle", "state"),
    [(was_sent, "sent"), (was_deferred, "pending"), (was_refused, "refused"), (was_uncertain, "uncertain")],
    ids=["sent", "deferred", "refused", "uncertain"],
)
def test_a_sender_settles_its_own_row(conn: Conn, settle: Settle, state: str) -> None:
    queued(conn)
    assert settle(conn, claimed(conn))
    assert (the_row(conn)["state"], late(conn)) == (state, [])


@pytest.mark.parametrize("settle", SETTLES, ids=["sent", "deferred", "refused", "uncertain"])
def test_a_late_sender_does_not_touch_what_a_person_has_settled(conn: Conn, settle: Settle) -> None:
    """It was thought dead, its row uncertain; a person saw the mail arrive. What it says now is only noted."""
    queued(conn)
    row = claimed(conn)
    stale(conn)
    outbox.confirm(conn, row.id, actor="operator:lea")
    assert not settle(conn, row)
    assert the_row(conn)["state"] == "sent"
    assert len(late(conn)) == 1


@pytest.mark.parametrize("settle", SETTLES, ids=["sent", "deferred", "refused", "uncertain"])
def test_a_late_sender_does_not_touch_another_senders_row(conn: Conn, settle: Settle) -> None:
    """The same row, asked for again and claimed anew: two claims of it are two."""
    queued(conn)
    first = claimed(conn)
    stale(conn)
    outbox.ask_again(conn, first.id, actor="operator:lea")
    second = claimed(conn)
    assert second.id == first.id
    assert not settle(conn, first)
    assert (the_row(conn)["state"], the_row(conn)["code"]) == ("sending", None)
    assert was_sent(conn, second)


def test_a_late_sender_that_knows_that_the_mail_was_taken_ends_the_doubt(conn: Conn) -> None:
    """Nobody has decided yet: it need not be a person's work. That it was not taken may be told by a person alone."""
    queued(conn)
    row = claimed(conn)
    stale(conn)
    assert not was_deferred(conn, row)
    assert the_row(conn)["state"] == "uncertain"
    assert was_sent(conn, row)
    assert the_row(conn)["state"] == "sent"


# What people decide
# ------------------


def test_a_person_confirms_that_an_uncertain_mail_came(conn: Conn) -> None:
    queued(conn)
    row = claimed(conn)
    was_uncertain(conn, row)
    outbox.confirm(conn, row.id, actor="operator:lea")
    found = the_row(conn)
    assert (found["state"], found["code"], found["sent_at"]) == ("sent", None, found["claimed_at"])
    line = conn.execute("select actor, action from atlas.audit_log order by id desc limit 1").fetchone()
    assert line == {"actor": "operator:lea", "action": "recap_confirmed"}


@pytest.mark.parametrize("settle", [was_uncertain, was_refused], ids=["uncertain", "refused"])
def test_a_person_asks_for_another_try_of_the_same_mail(conn: Conn, settle: Settle) -> None:
    """The Message-ID stays, so that a mailbox which has it already knows it again; the day of tries begins anew."""
    queued(conn)
    row = claimed(conn)
    settle(conn, row)
    conn.execute("update atlas.notifications set created_at = now() - interval '3 days'")
    outbox.ask_again(conn, row.id, actor="operator:lea")
    again = claimed(conn)
    assert (again.message_id, again.tries) == (row.message_id, 2)
    assert again.age_seconds < 60
    assert the_row(conn)["asked_again_at"] is not None
    line = conn.execute("select actor, action from atlas.audit_log order by id desc limit 1").fetchone()
    assert line == {"actor": "operator:lea", "action": "recap_asked_again"}


def test_what_is_not_in_doubt_is_nobodys_to_decide(conn: Conn) -> None:
    """Neither a mail that waits, nor one under way, nor one that was taken; and a refused one did not come."""
    queued(conn)
    number = the_row(conn)["id"]

    def refused(decide: Callable[..., None]) -> tuple[str, object]:
        with pytest.raises(Refused) as caught:
            decide(conn, number, actor="operator:lea")
        return caught.value.code, caught.value.detail["state"]

    for decide in (outbox.confirm, outbox.ask_again):
        assert refused(decide) == ("recap_not_open", "pending")
    row = claimed(conn)
    for decide in (outbox.confirm, outbox.ask_again):
        assert refused(decide) == ("recap_not_open", "sending")
    was_refused(conn, row)
    assert refused(outbox.confirm) == ("recap_not_open", "refused")
    outbox.ask_again(conn, number, actor="operator:lea")
    was_sent(conn, claimed(conn))
    for decide in (outbox.confirm, outbox.ask_again):
        assert refused(decide) == ("recap_not_open", "sent")
    with pytest.raises(Refused, match="recap_unknown"):
        outbox.confirm(conn, number + 1, actor="operator:lea")


def test_recipients_that_were_not_taken_are_kept_with_their_codes_and_raise_one_alarm_a_day(conn: Conn) -> None:
    """The others have the mail, so nothing is sent again; but somebody of the team is not told any more."""
    for name in ("one", "two"):
        queued(conn, name)
        outbox.sent(conn, claimed(conn), ["a@x.example"], [("b@x.example", 550)])
    rows = conn.execute("select recipients, refused_recipients from atlas.notifications").fetchall()
    assert rows == [{"recipients": ["a@x.example"], "refused_recipients": ["b@x.example 550"]}] * 2
    assert conn.execute("select code from atlas.alerts").fetchall() == [{"code": "recap_partly_refused"}]
    assert [row["state"] for row in outbox.for_people(conn)] == ["sent", "sent"]


def test_what_waits_for_a_person_is_listed_newest_first_and_what_was_sent_whole_is_not(conn: Conn) -> None:
    for name, settle in (("one", was_sent), ("two", was_uncertain), ("three", was_refused), ("four", was_deferred)):
        queued(conn, name)
        settle(conn, claimed(conn))
    assert [row["state"] for row in outbox.for_people(conn)] == ["refused", "uncertain"]
