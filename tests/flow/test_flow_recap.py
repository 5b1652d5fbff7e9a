"""The outbox: one mail a decision, to the team, and what becomes of it when the way out is shut."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from atlas_pipeline.flow import recapping
from atlas_pipeline.flow.stage import StageDone
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.recap.facts import facts_from_json
from atlas_pipeline.store import outbox, overview
from tests.fixtures_flow import FOUNDER, TEAM_INBOX, Bench, Row, failures, judged, killed_at_the_end, letter
from tests.fixtures_recap import StartServer
from tests.fixtures_release import wait_until


def answered(bench: Bench) -> str:
    """A question whose agent ended well and whose recap is still to be written; its key."""
    key = bench.take_in(
        letter("Une question", "menuiserie-lorme.example ?\n", message_id="<q1@x.example>"), Intent.QUESTION
    )
    assert isinstance(bench.spawn(key), StageDone)
    return key


def over_smtp(bench: Bench, port: int, **changes: Any) -> Bench:
    """The house with a mail server on loopback in place of the folder."""
    return bench.again(outbox_dir=None, smtp_url=SecretStr(f"smtp://127.0.0.1:{port}"), **changes)


def the_recap(bench: Bench) -> Row:
    (row,) = bench.rows(
        "select state, code, tries, recipients, round(extract(epoch from next_try_at - now())) as wait from atlas.notifications"
    )
    return row


def test_the_last_decision_and_its_recap_are_written_together_and_sent_at_once(
    bench: Bench, smtp_server: StartServer
) -> None:
    inbox = smtp_server()
    house = over_smtp(bench, inbox.port)
    key = answered(house)
    report = recapping.recap(house.parts, key, 1)
    assert report.facts == {"code": "no_code", "sent": 1}
    assert house.actions(key)[-2:] == ["actioned", "recap_sent"]
    ((sender, recipients, content),) = inbox.mails
    assert (sender, recipients) == ("atlas@atelier-rivage.example", [TEAM_INBOX])
    assert b"In-Reply-To: <q1@x.example>" in content
    assert (the_recap(house)["state"], the_recap(house)["recipients"]) == ("sent", [TEAM_INBOX])
    assert recapping.recap(house.parts, key, 1).facts == {"sent": 0}
    assert (recapping.deliver_due(house.parts), len(inbox.mails)) == (0, 1)


def test_two_senders_at_once_send_one_mail(bench: Bench, smtp_server: StartServer) -> None:
    """Casebook C89."""
    inbox = smtp_server()
    key = answered(bench)
    bench.change("update atlas.inbox set attempt = attempt")
    shut = bench.again(outbox_dir=None)
    recapping.recap(shut.parts, key, 1)
    bench.later()
    houses = [over_smtp(bench, inbox.port) for _ in range(4)]
    sent: list[int] = []
    threads = [
        threading.Thread(target=lambda house=house: sent.append(recapping.deliver_due(house.parts))) for house in houses
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert (sorted(sent), len(inbox.mails)) == ([0, 0, 0, 1], 1)


def test_a_server_that_refuses_for_good_is_an_alarm_and_is_not_asked_again(
    bench: Bench, smtp_server: StartServer
) -> None:
    inbox = smtp_server()
    inbox.answer_data = "554 5.7.1 no"
    house = over_smtp(bench, inbox.port)
    key = answered(house)
    recapping.recap(house.parts, key, 1)
    assert (house.status(key), the_recap(house)["state"], the_recap(house)["code"]) == (
        Status.ACTIONED,
        "refused",
        "smtp_refused",
    )
    assert (house.codes(key, "recap_refused"), house.alarms()) == (["smtp_refused"], ["smtp_refused"])
    inbox.answer_data = "250 ok"
    house.later()
    assert (recapping.deliver_due(house.parts), inbox.mails) == (0, [])


def test_a_server_that_asks_to_come_back_is_asked_again_later_and_later(bench: Bench, smtp_server: StartServer) -> None:
    inbox = smtp_server()
    inbox.answer_data = "451 4.3.0 later"
    house = over_smtp(bench, inbox.port)
    key = answered(house)
    recapping.recap(house.parts, key, 1)
    assert (the_recap(house)["state"], the_recap(house)["code"], the_recap(house)["wait"]) == (
        "pending",
        "smtp_deferred",
        60,
    )
    assert recapping.deliver_due(house.parts) == 0  # not before its time
    house.later()
    recapping.deliver_due(house.parts)
    assert (the_recap(house)["tries"], the_recap(house)["wait"]) == (2, 120)
    inbox.answer_data = "250 ok"
    house.later()
    assert recapping.deliver_due(house.parts) == 1
    assert (the_recap(house)["state"], house.codes(key, "recap_deferred")) == ("sent", ["smtp_deferred"] * 2)


def test_a_server_that_put_a_mail_off_for_a_day_is_given_up_with_an_alarm(bench: Bench, unused_port: int) -> None:
    house = over_smtp(bench, unused_port)
    key = answered(house)
    recapping.recap(house.parts, key, 1)
    assert (the_recap(house)["state"], the_recap(house)["code"]) == ("pending", "smtp_unreachable")
    house.later()
    house.change("update atlas.notifications set created_at = now() - interval '25 hours'")
    recapping.deliver_due(house.parts)
    assert (the_recap(house)["state"], house.alarms()) == ("refused", ["smtp_unreachable"])


def test_a_server_that_says_later_is_asked_each_hour_for_a_day_and_then_the_house_says_so_elsewhere(
    bench: Bench, smtp_server: StartServer
) -> None:
    """A whole day of 451: the waits grow to an hour, then the recap stops, and the alarm and the list show it."""
    inbox = smtp_server()
    inbox.answer_data = "451 4.3.0 later"
    house = over_smtp(bench, inbox.port)
    key = answered(house)
    recapping.recap(house.parts, key, 1)
    waits, day = [], 0.0
    while the_recap(house)["state"] == "pending":
        waits.append(int(the_recap(house)["wait"]))
        day += waits[-1]
        house.change(
            "update atlas.notifications set next_try_at = now(), created_at = now() - %s * interval '1 second'", day
        )
        assert recapping.deliver_due(house.parts) == 0
    assert waits[:8] == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert 86_400 < day < 86_400 + 3601
    assert (the_recap(house)["state"], the_recap(house)["code"], inbox.mails) == ("refused", "smtp_deferred", [])
    with house.parts.db.transaction() as conn:
        assert [row["state"] for row in outbox.for_people(conn)] == ["refused"]
        assert overview.health(conn)["recaps_not_sent"] == 1
    assert house.alarms() == ["smtp_deferred"]
    inbox.answer_data = "250 ok"
    assert recapping.deliver_due(house.parts) == 0


def test_a_mail_of_which_nobody_knows_whether_it_was_taken_is_never_sent_again(
    bench: Bench, smtp_server: StartServer
) -> None:
    inbox = smtp_server()
    inbox.drop_after_taking = True
    house = over_smtp(bench, inbox.port)
    key = answered(house)
    recapping.recap(house.parts, key, 1)
    assert (the_recap(house)["state"], house.codes(key, "recap_uncertain")) == ("uncertain", ["smtp_uncertain"])
    inbox.drop_after_taking = False
    house.later()
    assert (recapping.deliver_due(house.parts), len(inbox.mails)) == (0, 1)


def test_a_sender_killed_in_the_middle_of_sending_leaves_an_uncertain_recap(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        key = answered(bench)
        shut = bench.again(outbox_dir=None)
        recapping.recap(shut.parts, key, 1)
        bench.later()
        house = over_smtp(bench, silent.getsockname()[1])
        with killed_at_the_end(house.worker("deliver")) as worker:
            wait_until(lambda: the_recap(bench)["state"] == "sending", 20)
            worker.send_signal(signal.SIGKILL)
            worker.wait(timeout=10)
    assert recapping.deliver_due(bench.parts) == 0
    bench.later()
    assert recapping.deliver_due(bench.parts) == 0
    assert (the_recap(bench)["state"], bench.recaps(), bench.alarms()[-1]) == ("uncertain", [], "sender_died")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"outbox_dir": None}, "mail_exit_not_configured"),
        ({"mail_from": None}, "mail_from_not_configured"),
        ({"team_recipients": None}, "team_recipients_not_configured"),
    ],
    ids=["no_exit", "no_sender", "no_recipients"],
)
def test_what_is_not_set_up_makes_the_recap_wait_with_an_alarm(
    bench: Bench, changes: dict[str, Any], code: str
) -> None:
    key = answered(bench)
    house = bench.again(**changes)
    recapping.recap(house.parts, key, 1)
    assert (house.status(key), the_recap(house)["state"], the_recap(house)["code"]) == (
        Status.ACTIONED,
        "pending",
        code,
    )
    assert code in house.alarms()
    bench.later()
    assert (recapping.deliver_due(bench.parts), len(bench.recaps())) == (1, 1)


def test_a_folder_that_can_not_be_written_makes_the_recap_wait(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    key = answered(bench)
    recapping.recap(bench.again(outbox_dir=tmp_path / "file").parts, key, 1)
    assert (the_recap(bench)["state"], the_recap(bench)["code"]) == ("pending", "outbox_not_writable")


def test_a_recipient_who_is_not_of_the_team_is_refused_with_the_whole_mail(bench: Bench) -> None:
    key = answered(bench)
    house = bench.again(team_recipients=(TEAM_INBOX, "claire.lorme@menuiserie-lorme.example"))
    recapping.recap(house.parts, key, 1)
    assert (the_recap(house)["state"], the_recap(house)["code"], house.recaps()) == (
        "refused",
        "recipient_not_team",
        [],
    )


def test_the_facts_of_a_recap_are_what_the_tables_said_when_it_was_queued(bench: Bench) -> None:
    bench.model.script = [judged(Intent.QUESTION, 0.9, "Parce que.")]
    key = answered(bench)
    recapping.recap(bench.again(outbox_dir=None).parts, key, 1)
    facts = facts_from_json(bench.one("select facts from atlas.notifications"))
    assert (facts.message_key, facts.status, facts.code, facts.intent) == (
        key,
        Status.ACTIONED,
        "no_code",
        Intent.QUESTION,
    )
    assert (facts.subject, facts.tenant, facts.attempts, facts.requester_claimed) == (
        "Une question",
        "Menuiserie Lorme",
        1,
        False,
    )
    bench.later()
    bench.change("update atlas.messages set subject = 'Autre chose'")
    recapping.deliver_due(bench.parts)
    assert "Une question" in bench.recaps()[0]["Subject"]


@pytest.mark.parametrize(
    "subject",
    [
        b"=?UTF-8?Q?=0ABcc:_victim@x.example?= export",
        "é =?UTF-8?Q?=0A?=Bcc: victim@x.example".encode(),
        b"=?utf-8?q?un=E2=80=A8deux=0D=0Atrois?=",
        b"R\xe9union \xe0 Saint-Aubin",
        b"=?latin-1?q?R=E9union_=3D=3F?= \xff\xfe",
    ],
    ids=[
        "encoded_newline",
        "encoded_newline_beside_an_accent",
        "line_separator",
        "raw_latin_1",
        "bytes_that_are_no_text",
    ],
)
def test_whatever_the_subject_of_a_mail_the_recap_leaves_with_our_headers_alone(
    bench: Bench, smtp_server: StartServer, subject: bytes
) -> None:
    """Casebook C88 and C92, from the mail's bytes to the server's, which knows no SMTPUTF8."""
    inbox = smtp_server()
    house = over_smtp(bench, inbox.port)
    raw = letter("SUBJECT", message_id="<q1@x.example>").replace(b"Subject: SUBJECT", b"Subject: " + subject)
    assert subject in raw
    key = house.take_in(raw, Intent.QUESTION)
    house.spawn(key)
    recapping.recap(house.parts, key, 1)
    assert the_recap(house)["state"] == "sent"
    ((_sender, recipients, content),) = inbox.mails
    names = [line.split(b":")[0] for line in content.split(b"\r\n\r\n")[0].split(b"\r\n") if not line.startswith(b" ")]
    assert recipients == [TEAM_INBOX]
    assert [name.decode() for name in names] == [
        "From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References", "Auto-Submitted",
        "X-Auto-Response-Suppress", "X-Atlas-Key", "MIME-Version", "Content-Type",
    ]  # fmt: skip
    assert content.isascii()
    assert max(map(len, content.split(b"\r\n"))) <= 998


def test_a_recap_that_comes_back_is_no_task_and_one_that_a_person_forwards_is(bench: Bench) -> None:
    """Casebook C90: each answer would start an agent whose recap is answered; what a person wants done about it counts."""
    key = answered(bench)
    recapping.recap(bench.parts, key, 1)
    (recap,) = bench.recaps()
    bench.put(recap.as_bytes())
    (back,) = bench.discover()
    assert failures(bench.intake([back])) == []
    assert (bench.status(back), bench.state(back).intent) == (Status.CLOSED, Intent.NOISE)
    text = recap.get_body(("plain",))
    assert text is not None
    quoted = f"Peux-tu préciser ?\n\n---------- Forwarded message ---------\n{text.get_content()}"
    # The founder's own forward is the one exception, by rule; an answer of the founder's is none.
    for subject, sender in (
        (f"Fwd: {recap['Subject']}", "paul@atelier-rivage.example"),
        (f"Re: {recap['Subject']}", FOUNDER),
    ):
        person = bench.take_in(letter(subject, quoted, sender=sender), Intent.QUESTION)
        assert (bench.status(person), bench.state(person).intent) == (Status.CLASSIFIED, Intent.QUESTION)
    assert bench.one("select count(*) from atlas.notifications") == 1


def test_a_recap_that_bounces_is_told_to_its_message_and_starts_nothing(bench: Bench) -> None:
    """Casebook C91: the report is a fact about the recap; an answer to it would bounce again."""
    key = answered(bench)
    recapping.recap(bench.parts, key, 1)
    (sent,) = bench.recaps()
    report = (
        f"From: MAILER-DAEMON@mx.example\r\nTo: atlas@atelier-rivage.example\r\nSubject: Undelivered\r\n"
        f"Return-Path: <>\r\nMIME-Version: 1.0\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n"
        f"--b\r\nContent-Type: text/plain\r\n\r\nMailbox full\r\n--b\r\nContent-Type: message/delivery-status\r\n\r\n"
        f"Reporting-MTA: dns; mx.example\r\n\r\nFinal-Recipient: rfc822; team@atelier-rivage.example\r\nAction: failed\r\n"
        f"--b\r\nContent-Type: text/rfc822-headers\r\n\r\nMessage-ID: {sent['Message-ID']}\r\nSubject: x\r\n--b--\r\n"
    ).encode()
    bench.put(report)
    (bounce,) = bench.discover()
    assert failures(bench.intake([bounce])) == []
    assert (bench.status(bounce), bench.state(bounce).intent) == (Status.CLOSED, Intent.NOISE)
    assert (
        bench.one(
            "select detail->>'report' from atlas.audit_log where message_key = %s and action = 'recap_bounced'", key
        )
        == bounce
    )
    assert "recap_bounced" in bench.alarms()
    assert bench.one("select bounced_at is not null from atlas.notifications where message_key = %s", key)
    assert bench.one("select count(*) from atlas.notifications") == 1
