"""The same house on a real IMAP server: what a cut, a refusal or a death in the middle leaves, and that rows are the same."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from imapclient import IMAPClient
from pydantic import SecretStr

from atlas_pipeline.embedded.mails import DEMO_MAILS, Scene
from atlas_pipeline.errors import AccessRefused, MailboxUnavailable
from atlas_pipeline.flow import discovery, watching
from atlas_pipeline.model import Intent, Status
from tests.fixtures_flow import (
    AUTHSERV,
    Bench,
    NewDatabase,
    Row,
    Tap,
    failures,
    judged,
    killed_at_the_end,
    letter,
    outcomes,
)
from tests.fixtures_mailbox import PASSWORD, Dovecot

MakeTap = Callable[[int], Tap]


def on_imap(bench: Bench, dovecot: Dovecot, user: str, **changes: Any) -> Bench:
    """The house reading this user's mailbox over TLS."""
    bench.model.script = [judged(Intent.QUESTION)]
    facts = {"imap_url": SecretStr(dovecot.url(user)), "imap_ca_file": dovecot.ca_file, "imap_timeout_seconds": 5.0}
    return bench.again(maildir=None, **{**facts, **changes})


def through(dovecot: Dovecot, user: str, relay: Tap) -> str:
    """The user's mailbox behind a relay, in plain text, so that the relay can read along."""
    return dovecot.url(user, plain=True).replace(f":{dovecot.plain_port}/", f":{relay.port}/")


def flags(dovecot: Dovecot, user: str) -> dict[int, bool]:
    """Which UIDs are read, as another client sees it."""
    with IMAPClient("127.0.0.1", dovecot.plain_port, ssl=False) as client:
        client.login(user, PASSWORD)
        client.select_folder("INBOX", readonly=True)
        found = client.fetch(client.search(["ALL"]), ["FLAGS"]) if client.search(["ALL"]) else {}
        return {uid: b"\\Seen" in answer[b"FLAGS"] for uid, answer in found.items()}


def test_mails_come_in_over_imap_and_are_read_afterwards(bench: Bench, dovecot: Dovecot) -> None:
    user = dovecot.new_user()
    house = on_imap(bench, dovecot, user)
    for body in ("Un\n", "Deux\n"):
        dovecot.deliver(user, letter(body=body))
    keys = house.discover()
    assert set(flags(dovecot, user).values()) == {False}  # looking flags nothing
    assert failures(house.intake(keys)) == []
    assert (len(keys), flags(dovecot, user)) == (2, {1: True, 2: True})
    assert house.discover() == []


@pytest.mark.parametrize("imap", [True, False])
def test_more_mails_than_one_look_takes_are_listed_by_the_next_looks_and_each_once(
    bench: Bench, dovecot: Dovecot, monkeypatch: pytest.MonkeyPatch, imap: bool
) -> None:
    """Ten thousand unread must not keep the sensor's tick from ending; those that are read meanwhile by a human count too."""
    monkeypatch.setattr(discovery, "MOST_LISTED", 3)
    user = dovecot.new_user()
    house = on_imap(bench, dovecot, user) if imap else bench
    house.model.script = [judged(Intent.QUESTION)]
    for number in range(7):
        raw = letter(f"Mail {number}", f"{number}\n")
        _ = dovecot.deliver(user, raw) if imap else house.put(raw)
    looks = [house.discover() for _ in range(4)]
    assert [len(look) for look in looks] == [3, 3, 1, 0]
    assert failures(house.intake([key for look in looks for key in look])) == []
    assert [row["subject"] for row in house.rows("select subject from atlas.messages order by message_key")] == [
        f"Mail {number}" for number in range(7)
    ]


def test_a_wrong_password_is_a_coded_alarm_and_the_right_one_finds_everything(bench: Bench, dovecot: Dovecot) -> None:
    user = dovecot.new_user()
    dovecot.deliver(user, letter())
    wrong = on_imap(bench, dovecot, user, imap_url=SecretStr(dovecot.url(user, password="wrong")))
    # Once: Dovecot makes each further failure wait longer.
    with pytest.raises(AccessRefused) as refused:
        wrong.discover()
    assert (refused.value.code, wrong.alarms()) == ("imap_login_refused", ["imap_login_refused"])
    house = on_imap(bench, dovecot, user)
    keys = house.discover()
    assert [outcomes(house.intake(keys), key) for key in keys] == [["done", "done", "not_needed", "done"]]


def test_a_server_that_is_gone_is_a_coded_alarm_and_costs_no_mail(
    bench: Bench, dovecot: Dovecot, unused_port: int
) -> None:
    user = dovecot.new_user()
    dovecot.deliver(user, letter())
    house = on_imap(bench, dovecot, user)
    gone = house.again(imap_url=SecretStr(dovecot.url(user).replace(f":{dovecot.port}/", f":{unused_port}/")))
    for _ in range(2):
        with pytest.raises(MailboxUnavailable):
            gone.discover()
    assert gone.alarms() == ["imap_unreachable"]
    (key,) = house.discover()
    assert outcomes(gone.intake([key]), key) == ["imap_unreachable", "waiting", "waiting", "waiting"]
    assert house.codes(key, "intake_waiting") == ["imap_unreachable"]
    house.later()
    assert failures(house.intake(watching.intake_due(house.parts, []), run_id="run-2")) == []
    assert house.status(key) is Status.CLASSIFIED


def test_a_connection_cut_inside_a_fetch_keeps_what_was_whole_and_the_next_run_takes_the_rest(
    bench: Bench, dovecot: Dovecot, tap: MakeTap
) -> None:
    """Casebook C09: the server hangs up in the third literal of five; an aborted connection is never used again."""
    user = dovecot.new_user()
    for number in range(5):
        dovecot.deliver(user, letter(body=f"{number}\n" + "Une ligne.\n" * 500))
    house = on_imap(bench, dovecot, user)
    keys = house.discover()
    relay = tap(dovecot.plain_port)
    relay.cut_after = 18_000
    cut = house.again(imap_url=SecretStr(through(dovecot, user, relay)), imap_ca_file=None)
    # The mailbox's name holds the port: let the relay pass for the server that was listed.
    house.change("update atlas.mailbox_ledger set mailbox = %s", cut.parts.source().mailbox)
    house.change("update atlas.mailboxes set mailbox = %s", cut.parts.source().mailbox)
    reports = cut.intake(keys)
    assert [(key, code) for _stage, key, code in failures(reports)] == [
        (key, "imap_connection_lost") for key in keys[2:]
    ]
    assert [house.status(key) for key in keys[:2]] == [Status.CLASSIFIED] * 2
    assert set(flags(dovecot, user).values()) == {False}
    relay.cut_after = None
    house.later()
    assert failures(cut.intake(watching.intake_due(cut.parts, []), run_id="run-2")) == []
    assert set(flags(dovecot, user).values()) == {True}
    assert house.rows("select count(*) as n, count(distinct raw_sha256) as mails from atlas.messages") == [
        {"n": 5, "mails": 5}
    ]


def test_a_worker_killed_between_commit_and_flag_loses_and_doubles_nothing(
    bench: Bench, dovecot: Dovecot, tap: MakeTap
) -> None:
    """Casebook C07. The relay holds back the STORE, so the worker dies after its commit and before the mail is flagged."""
    user = dovecot.new_user()
    for body in ("Un\n", "Deux\n"):
        dovecot.deliver(user, letter(body=body))
    relay = tap(dovecot.plain_port)
    relay.stall_on = b"STORE"
    house = on_imap(
        bench,
        dovecot,
        user,
        imap_url=SecretStr(through(dovecot, user, relay)),
        imap_ca_file=None,
        imap_timeout_seconds=60.0,
    )
    keys = house.discover()
    worker = house.worker("intake", "worker", *keys)
    with killed_at_the_end(worker):
        assert relay.stalled.wait(30)
        assert house.one("select count(*) from atlas.messages") == 2
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=10)
    assert set(flags(dovecot, user).values()) == {False}

    relay.stall_on = None
    assert house.discover() == []
    assert watching.intake_due(house.parts, []) == keys
    assert failures(house.intake(keys, run_id="run-2")) == []
    assert house.rows("select count(*) as n, count(distinct raw_sha256) as mails from atlas.messages") == [
        {"n": 2, "mails": 2}
    ]
    assert house.one("select count(*) from atlas.questions") == 2


def test_a_flag_that_a_crash_left_out_is_set_by_the_next_run_that_fetches(bench: Bench, dovecot: Dovecot) -> None:
    user = dovecot.new_user()
    house = on_imap(bench, dovecot, user)
    dovecot.deliver(user, letter("Avant"))
    house.intake(house.discover())
    house.change("update atlas.mailbox_ledger set flagged_at = null")
    with IMAPClient("127.0.0.1", dovecot.plain_port, ssl=False) as client:
        client.login(user, PASSWORD)
        client.select_folder("INBOX")
        client.remove_flags([1], [b"\\Seen"])
    dovecot.deliver(user, letter("Après"))
    assert failures(house.intake(house.discover(), run_id="run-2")) == []
    assert flags(dovecot, user) == {1: True, 2: True}


def renumber(dovecot: Dovecot, user: str) -> None:
    """Make the server forget its UIDs, as a rebuild or a migration does: it starts a new UIDVALIDITY."""
    for name in ("dovecot-uidlist", "dovecot.index", "dovecot.index.cache", "dovecot.index.log"):
        (dovecot.maildir(user) / name).unlink(missing_ok=True)
    uid_list = dovecot.maildir(user) / "dovecot-uidlist"
    uid_list.write_text("3 V1999999999 N1 Gffffffffffffffffffffffffffffffff\n")
    os.chown(uid_list, *dovecot.owner)


def test_after_a_renumbering_known_mails_keep_their_keys_and_exactly_the_new_ones_come_in(
    bench: Bench, dovecot: Dovecot
) -> None:
    """Casebook C01. Three are known and read, two are listed and not fetched yet, one is new, one new and read by a human."""
    user = dovecot.new_user()
    house = on_imap(bench, dovecot, user)
    for number in range(5):
        dovecot.deliver(user, letter(f"Mail {number}", f"{number}\n", message_id=f"<m{number}@x.example>"))
    keys = house.discover()
    assert failures(house.intake(keys[:3])) == []
    renumber(dovecot, user)
    for number in (5, 6):
        dovecot.deliver(user, letter(f"Mail {number}", f"{number}\n", message_id=f"<m{number}@x.example>"))
    with IMAPClient("127.0.0.1", dovecot.plain_port, ssl=False) as client:
        client.login(user, PASSWORD)
        client.select_folder("INBOX")
        client.add_flags(client.search(["SUBJECT", "Mail 6"]), [b"\\Seen"])
    # Under the old numbers nothing is fetched and nothing is flagged.
    assert outcomes(house.intake([keys[3]], run_id="run-2"), keys[3])[0] == "uid_validity_changed"
    new = house.discover()
    assert len(new) == 2
    house.later()
    due = watching.intake_due(house.parts, [])
    assert due == [*keys[3:], *new]
    assert failures(house.intake(due, run_id="run-3")) == []
    assert set(flags(dovecot, user).values()) == {True}
    assert house.one("select count(distinct message_id) from atlas.messages") == 7
    assert house.one("select count(*) from atlas.mailbox_ledger") == 7
    assert house.alarms() == ["uid_validity_changed", "mailbox_renumbered"]
    assert house.discover() == []


def test_a_mail_that_a_renumbering_lost_is_gone_and_an_old_number_hides_no_new_mail(
    bench: Bench, dovecot: Dovecot
) -> None:
    """A server may come back to a numbering that it had before, with another mail under the same UID."""
    user = dovecot.new_user()
    house = on_imap(bench, dovecot, user)
    name = dovecot.deliver(user, letter("Perdu", "0\n"))
    (lost,) = house.discover()
    validity = house.one("select uid_validity from atlas.mailboxes")
    next((dovecot.maildir(user) / "cur").glob(f"{name}*"), dovecot.maildir(user) / "new" / name).unlink()
    renumber(dovecot, user)
    assert house.discover() == []
    assert house.one("select gone_at is not null from atlas.mailbox_ledger where message_key = %s", lost)
    (dovecot.maildir(user) / "dovecot-uidlist").write_text(f"3 V{validity} N1 Gffffffffffffffffffffffffffffffff\n")
    for index in dovecot.maildir(user).glob("dovecot.index*"):
        index.unlink()
    dovecot.deliver(user, letter("Nouveau", "1\n"))
    (new,) = house.discover()
    assert failures(house.intake([new])) == []
    assert house.one("select subject from atlas.messages where message_key = %s", new) == "Nouveau"


def test_a_mail_that_is_too_large_is_never_downloaded(bench: Bench, dovecot: Dovecot) -> None:
    user = dovecot.new_user()
    house = on_imap(bench, dovecot, user, max_message_bytes=2000)
    dovecot.deliver(user, letter(body="x" * 3000))
    (key,) = house.discover()
    assert outcomes(house.intake([key]), key) == ["gone"] * 4
    assert flags(dovecot, user) == {1: False}


_COMPARED = (
    "select l.size_bytes, l.duplicate_of is not null as duplicate, m.message_id, m.fingerprint, m.from_name, m.from_address, m.recipients, "
    "m.subject, m.sent_at, m.body_text, m.body_html, m.headers, m.forward, m.automatic, m.trust_level, m.trust_reason, m.requester_name, "
    "m.requester_address, m.requester_claimed, m.remarks, i.status, i.reason_code, i.intent, i.confidence, i.model, i.tenant, i.work_kind "
    "from atlas.mailbox_ledger l left join atlas.messages m using (message_key) left join atlas.inbox i using (message_key) order by l.seq"
)
_COMPARED_PARTS = (
    "select l.seq, a.part_index, a.name, a.declared_type, a.sniffed_type, a.size_bytes, a.sha256, a.inline, a.verdict, a.signature "
    "from atlas.attachments a join atlas.mailbox_ledger l using (message_key) order by 1, 2"
)


def test_the_same_mails_through_imap_and_through_a_maildir_give_the_same_rows(
    bench: Bench, dovecot: Dovecot, new_database: NewDatabase
) -> None:
    """Stored with CRLF, as mails travel: Dovecot hands out nothing else, and a Maildir's file is taken as it is."""
    user = dovecot.new_user()
    scene = Scene(authserv_id=AUTHSERV, start=datetime(2026, 12, 1, 8, 0, tzinfo=UTC), canary="ZBAKUTEMUDA")
    house = on_imap(bench, dovecot, user)
    for mail in DEMO_MAILS:
        raw = mail.raw(scene).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        dovecot.deliver(user, raw)
        bench.put(raw)
    imap = rows_of(house)
    other = Bench(bench.values, new_database(), bench.model, bench.tenant, bench.folder, made=bench.made)
    other.change(
        "insert into atlas.tenants select * from jsonb_populate_record(null::atlas.tenants, %s::jsonb)",
        tenant_row(bench),
    )
    maildir = rows_of(other)
    assert len(imap[0]) == len(DEMO_MAILS)
    assert imap == maildir


def rows_of(house: Bench) -> tuple[list[Row], list[Row]]:
    keys = house.discover()
    house.model.script = [judged(Intent.QUESTION)]
    assert failures(house.intake(keys)) == []
    return house.rows(_COMPARED), house.rows(_COMPARED_PARTS)


def tenant_row(house: Bench) -> str:
    return str(house.one("select to_jsonb(t)::text from atlas.tenants t"))
