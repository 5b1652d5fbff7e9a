"""The ledger: every mail once, and the only authority for keys."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.rows import dict_row

from atlas_pipeline.model import ListedMail, Listing
from atlas_pipeline.store import claims, ledger, messages
from tests.fixtures_flow import Row

Conn = psycopg.Connection[Row]
NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def listing(
    *mails: ListedMail, mailbox: str = "imap://atlas@host/INBOX", validity: int = 1, following: int | None = 100
) -> Listing:
    return Listing(mailbox, validity, following, mails)


def listed(uid: str | int, at: datetime = NOON, size: int = 10) -> ListedMail:
    return ListedMail(str(uid), at, size, seen=False)


def record(conn: Conn, found: Listing) -> list[str]:
    return ledger.record_listing(conn, found, max_bytes=1000)


def test_a_key_is_the_utc_day_of_internaldate_and_the_sequence_of_the_ledger(conn: Conn) -> None:
    late_in_paris = datetime(2026, 12, 2, 0, 30, tzinfo=timezone(timedelta(hours=1)))
    assert record(conn, listing(listed(7, late_in_paris))) == ["20261201-000001"]
    assert record(conn, listing(listed(8, NOON + timedelta(days=3)))) == ["20261204-000002"]


def test_keys_are_given_in_the_order_of_arrival_and_a_repeated_listing_gives_none(conn: Conn) -> None:
    mails = [listed(3, NOON + timedelta(minutes=2)), listed(1, NOON + timedelta(minutes=1)), listed(2, NOON)]
    keys = record(conn, listing(*mails))
    assert [row.uid for row in ledger.rows(conn, keys)] == ["2", "1", "3"]
    assert record(conn, listing(*mails)) == []
    assert record(conn, listing(*mails, listed(4))) == ["20261201-000004"]


def test_mails_of_one_second_keep_the_order_of_their_uids(conn: Conn) -> None:
    keys = record(conn, listing(*(listed(uid) for uid in (10, 9, 100, 11))))
    assert [row.uid for row in ledger.rows(conn, keys)] == ["9", "10", "11", "100"]


def test_a_uid_means_another_mail_in_another_mailbox_or_numbering(conn: Conn) -> None:
    assert len(record(conn, listing(listed(1)))) == 1
    assert len(record(conn, listing(listed(1), validity=2))) == 1
    assert len(record(conn, listing(listed(1), mailbox="maildir:other"))) == 1


def test_two_pollers_of_one_new_mail_give_it_one_key(database_url: str, conn: Conn) -> None:
    """Casebook C10: the unique key decides, not a look before the insert."""
    given_keys: list[list[str]] = []
    gate = threading.Barrier(4)

    def poll() -> None:
        with psycopg.connect(database_url, row_factory=dict_row) as mine:
            gate.wait(timeout=10)
            given_keys.append(record(mine, listing(listed(1), listed(2))))

    threads = [threading.Thread(target=poll) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert sorted(len(keys) for keys in given_keys) == [0, 0, 0, 2]
    assert len(conn.execute("select 1 from atlas.mailbox_ledger").fetchall()) == 2


def test_the_mark_of_a_first_sight_is_below_uidnext_and_then_the_highest_uid_listed(conn: Conn) -> None:
    assert ledger.high_water_mark(conn, "imap://atlas@host/INBOX") is None
    record(conn, listing(listed(4), following=41))
    assert ledger.high_water_mark(conn, "imap://atlas@host/INBOX") == 40
    record(conn, listing(listed(57), following=58))
    assert ledger.high_water_mark(conn, "imap://atlas@host/INBOX", 1) == 57
    assert ledger.high_water_mark(conn, "imap://atlas@host/INBOX", 2) is None


def test_a_maildir_has_no_mark_since_its_names_have_no_order(conn: Conn) -> None:
    record(conn, listing(listed("1764.abc.host"), mailbox="maildir:box", following=None))
    assert ledger.high_water_mark(conn, "maildir:box") is None


def test_a_mail_that_is_too_large_has_its_row_and_is_never_due(conn: Conn) -> None:
    keys = record(conn, listing(listed(1, size=1001), listed(2, size=1000)))
    assert [row.refused_code for row in ledger.rows(conn, keys)] == ["message_too_large", None]
    assert ledger.due_keys(conn, 10) == [keys[1]]


def test_due_is_what_is_not_finished_not_leased_not_gone_and_not_waiting(conn: Conn) -> None:
    keys = record(conn, listing(*(listed(uid, NOON + timedelta(minutes=uid)) for uid in range(1, 7))))
    fresh, leased, gone, waiting, done, copy = keys
    claims.lease(conn, [leased], run_id="run", seconds=60)
    ledger.set_gone(conn, gone)
    ledger.wait(conn, waiting, "scanner_refused")
    messages.store_raw(conn, [(done, b"raw")])
    conn.execute("update atlas.inbox set status = 'closed' where message_key = %s", (done,))
    messages.store_raw(conn, [(copy, b"raw")])
    messages.mark_duplicate(conn, copy, done)
    assert ledger.due_keys(conn, 10) == [fresh]
    claims.expire(conn, leased, run_id="run")
    conn.execute("update atlas.mailbox_ledger set not_before = now() where message_key = %s", (waiting,))
    assert ledger.due_keys(conn, 10) == [fresh, leased, waiting]
    assert ledger.due_keys(conn, 2) == [fresh, leased]


def test_waiting_gets_longer_each_time_up_to_an_hour_and_ends_when_settled(conn: Conn) -> None:
    (key,) = record(conn, listing(listed(1)))
    delays = []
    for _ in range(10):
        ledger.wait(conn, key, "scanner_refused")
        row = conn.execute(
            "select extract(epoch from not_before - now())::float as s from atlas.mailbox_ledger"
        ).fetchone()
        assert row is not None
        delays.append(round(row["s"]))
    assert delays == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]
    assert ledger.due_keys(conn, 10) == []
    ledger.settled(conn, key)
    assert ledger.due_keys(conn, 10) == [key]
    assert conn.execute("select waits, wait_code from atlas.mailbox_ledger").fetchall() == [
        {"waits": 0, "wait_code": None}
    ]


MAILS = st.lists(
    st.builds(
        ListedMail,
        uid=st.integers(1, 12).map(str),
        internal_date=st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  # timezones adds it
        size=st.integers(0, 2000),
        seen=st.booleans(),
    ),
    max_size=8,
)


@given(looks=st.lists(st.tuples(st.integers(1, 2), MAILS), max_size=6))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_listed_in_whatever_order_every_mail_has_one_key_for_ever(
    conn: Conn, looks: list[tuple[int, list[ListedMail]]]
) -> None:
    with conn.transaction(force_rollback=True):
        given_keys: list[str] = []
        for validity, mails in looks:
            found = listing(*mails, validity=validity)
            keys = record(conn, found)
            assert record(conn, found) == []
            assert len(keys) == len(ledger.rows(conn, keys))
            given_keys += keys
        everything = {(validity, mail.uid) for validity, mails in looks for mail in mails}
        assert len(given_keys) == len(set(given_keys)) == len(everything)
        for row in conn.execute("select message_key, seq, internal_date from atlas.mailbox_ledger"):
            day, _, number = row["message_key"].partition("-")
            assert (day, int(number)) == (row["internal_date"].astimezone(UTC).strftime("%Y%m%d"), row["seq"])
