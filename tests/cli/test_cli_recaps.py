"""``atlas recap``: what a person does about a mail of ours that may or may not have arrived."""

from __future__ import annotations

import json

import pytest

from atlas_pipeline.flow import recapping
from atlas_pipeline.model import Intent
from tests.cli.test_cli_verbs import failed
from tests.fixtures_flow import TEAM_INBOX, Bench, letter
from tests.fixtures_orchestration import Atlas
from tests.fixtures_recap import Inbox, StartServer


def uncertain(bench: Bench, inbox: Inbox) -> str:
    """A question whose recap the server took before it vanished; its key."""
    key = bench.take_in(letter("Une question", message_id="<q1@x.example>"), Intent.QUESTION)
    bench.spawn(key)
    inbox.drop_after_taking = True
    recapping.recap(over(bench, inbox).parts, key, 1)
    inbox.drop_after_taking = False
    return key


def over(bench: Bench, inbox: Inbox) -> Bench:
    return bench.again(outbox_dir=None, smtp_url=f"smtp://127.0.0.1:{inbox.port}")


def state(bench: Bench) -> str:
    return str(bench.one("select state from atlas.notifications"))


def test_a_person_who_found_the_mail_confirms_it(house_env: Bench, atlas: Atlas, smtp_server: StartServer) -> None:
    key = uncertain(house_env, smtp_server())
    (row,) = json.loads(atlas("recap", "list", "--json").out)
    assert (row["message_key"], row["state"], row["code"]) == (key, "uncertain", "smtp_uncertain")
    assert f"<recap.{key}.1.1@atlas.atelier-rivage.example>" in atlas("recap", "show", key).out
    assert json.loads(atlas("recap", "show", str(row["id"]), "--json").out) == [row]
    assert atlas("recap", "confirm", key).out == f"{key}: recap {row['id']} counts as sent\n"
    assert (state(house_env), house_env.actions(key)[-1]) == ("sent", "recap_confirmed")
    who = house_env.one("select actor from atlas.audit_log where action = 'recap_confirmed'")
    assert who.startswith("operator:")
    assert atlas("recap", "list").out == "no recap waits for a person\n"


def test_a_person_who_did_not_find_it_has_it_sent_again_under_the_same_id(
    house_env: Bench, atlas: Atlas, smtp_server: StartServer
) -> None:
    inbox = smtp_server()
    key = uncertain(house_env, inbox)
    number = house_env.one("select id from atlas.notifications")
    assert atlas("recap", "resend", str(number)).out == f"{number}: recap {number} goes out again\n"
    assert recapping.deliver_due(over(house_env, inbox).parts) == 1
    assert state(house_env) == "sent"
    ids = [next(line for line in mail[2].split(b"\r\n") if line.startswith(b"Message-ID")) for mail in inbox.mails]
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert house_env.codes(key, "recap_asked_again") == [None]
    assert failed(atlas("recap", "resend", key)) == f"recap_not_open (recap={number}, state=sent)"


def test_a_refused_recap_goes_out_once_the_cause_is_mended(
    house_env: Bench, atlas: Atlas, smtp_server: StartServer
) -> None:
    """5xx stops at once; what is left is an alarm in ``atlas status``, in the UI's check, and this verb."""
    inbox = smtp_server()
    inbox.answer_data = "554 5.7.1 no"
    key = house_env.take_in(letter(), Intent.QUESTION)
    house_env.spawn(key)
    recapping.recap(over(house_env, inbox).parts, key, 1)
    assert state(house_env) == "refused"
    said = atlas("status")
    assert "recaps that wait for a person" in said.out
    assert "smtp_refused" in said.out.split("alarms, newest first")[1]
    number = house_env.one("select id from atlas.notifications")
    assert failed(atlas("recap", "confirm", key)) == f"recap_not_open (recap={number}, state=refused)"
    atlas("recap", "resend", key)
    inbox.answer_data = "250 ok"
    assert recapping.deliver_due(over(house_env, inbox).parts) == 1


def test_who_was_not_taken_among_the_recipients_is_shown(
    house_env: Bench, atlas: Atlas, smtp_server: StartServer
) -> None:
    inbox = smtp_server()
    gone = "partie@atelier-rivage.example"
    inbox.refuse_rcpt = {gone: "550 5.1.1 no such user"}
    house = over(house_env, inbox).again(team_recipients=(TEAM_INBOX, gone))
    key = house.take_in(letter(), Intent.QUESTION)
    house.spawn(key)
    recapping.recap(house.parts, key, 1)
    assert state(house) == "sent"
    (row,) = json.loads(atlas("show", key, "--json").out)["recaps"]
    assert row["refused_recipients"] == [f"{gone} 550"]
    for verb in (["status"], ["show", key], ["recap", "list"]):
        assert f"{gone} 550" in atlas(*verb).out
    assert house.alarms() == ["recap_partly_refused"]


def test_a_message_with_two_open_recaps_is_asked_which(
    house_env: Bench, atlas: Atlas, smtp_server: StartServer
) -> None:
    key = uncertain(house_env, smtp_server())
    house_env.change(
        "insert into atlas.notifications (message_key, round, attempt, kind, message_id, facts, state) "
        "select message_key, 2, 1, kind, '<2@x>', facts, 'uncertain' from atlas.notifications"
    )
    first, second = [row["id"] for row in house_env.rows("select id from atlas.notifications order by id")]
    assert failed(atlas("recap", "confirm", key)) == f"recap_ambiguous (key={key}, numbers={second} {first})"
    assert atlas("recap", "confirm", str(first)).status == 0
    assert atlas("recap", "confirm", key).out == f"{key}: recap {second} counts as sent\n"


@pytest.mark.parametrize("name", ["20261201-999999", "999999", "9" * 40, "x", "²"])
@pytest.mark.parametrize("verb", ["show", "confirm", "resend"])
def test_a_recap_that_is_not_there_is_named(house_env: Bench, atlas: Atlas, verb: str, name: str) -> None:
    assert failed(atlas("recap", verb, name)) == f"recap_unknown (recap={name})"
