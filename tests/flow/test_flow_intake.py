"""From the mailbox to a decision: what is kept, what waits, what is set aside, and that the others go on."""

from __future__ import annotations

import secrets
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atlas_pipeline.embedded.clamd import eicar
from atlas_pipeline.embedded.mails.picture import error_page
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.errors import DatabaseUnavailable, MailboxUnavailable, NotConfigured, Refused
from atlas_pipeline.flow import intake, operator, watching
from atlas_pipeline.flow.stage import INBOX_STAGES
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.store import claims
from tests.fixtures_ai import Scripted, chat
from tests.fixtures_flow import (
    CLIENT,
    SLUG,
    Bench,
    FakeClamd,
    ended,
    failures,
    judged,
    letter,
    outcomes,
    seen,
    tables_with,
)

ALL_DONE = ["done", "done", "not_needed", "done"]
WAITING = ["waiting", "waiting", "waiting"]


def test_a_mail_becomes_a_decision_and_a_work_record_and_is_flagged_as_read(bench: Bench) -> None:
    raw = letter("Changer le téléphone", "Merci de changer le téléphone.\n", sender=CLIENT)
    name = bench.put(raw)
    bench.model.script = [judged(Intent.RUN, 0.85)]
    (key,) = bench.discover()
    assert outcomes(bench.intake([key]), key) == ALL_DONE
    state = bench.state(key)
    assert (state.status, state.intent, state.confidence, state.tenant) == (Status.CLASSIFIED, Intent.RUN, 0.85, SLUG)
    assert (state.work_kind, state.model) == ("runs", "mistral/mistral-small-2506")
    assert bench.rows("select title, tenant, status from atlas.runs") == [
        {"title": "Changer le téléphone", "tenant": SLUG, "status": "draft"}
    ]
    assert bench.actions(key) == ["received", "classified"]
    assert seen(bench.maildir) == {name}
    assert bench.one("select flagged_at >= fetched_at from atlas.mailbox_ledger") is True
    assert bench.discover() == []


@pytest.mark.parametrize("intent", [Intent.NOISE, Intent.CONSEIL])
def test_what_needs_no_agent_is_classified_and_then_closed(bench: Bench, intent: Intent) -> None:
    key = bench.take_in(letter(proven=False, sender="someone@elsewhere.example"), intent)
    assert bench.status(key) is Status.CLOSED
    assert bench.actions(key) == ["received", "classified", "closed"]
    assert bench.one("select count(*) from atlas.conseils") == (intent is Intent.CONSEIL)


def test_the_bytes_are_kept_exactly_as_received_even_of_a_mail_that_is_no_mail(bench: Bench) -> None:
    mails = [
        b"",
        b"\x00\xff not a mail\r\n\r\n\xed\xa0\x80",
        letter() + b"\n.\nFrom x\n\xff",
        b"Subject: =?x?q?\n\n" + b"a" * 70_000,
    ]
    bench.model.script = [judged(Intent.QUESTION)]
    for number, raw in enumerate(mails):
        bench.put(raw, at=datetime(2026, 12, 1, 8, number, tzinfo=UTC))
    keys = bench.discover()
    assert failures(bench.intake(keys)) == []
    assert [bytes(row["raw"]) for row in bench.rows("select raw from atlas.messages order by message_key")] == mails


def test_the_same_mail_twice_is_one_message_and_a_ledger_row_that_says_so(bench: Bench) -> None:
    raw = letter("Une fois", message_id="<a@x.example>")
    bench.model.script = [judged(Intent.QUESTION)]
    names = {bench.put(b"Received: by mx1.example\r\n" + raw), bench.put(b"Received: by mx2.example\r\n" + raw)}
    first, second = bench.discover()
    reports = bench.intake([first, second])
    assert (outcomes(reports, first), outcomes(reports, second)) == (ALL_DONE, ["duplicate"] * 4)
    assert bench.rows("select message_key, duplicate_of from atlas.mailbox_ledger order by seq") == [
        {"message_key": first, "duplicate_of": None},
        {"message_key": second, "duplicate_of": first},
    ]
    assert [row["message_key"] for row in bench.rows("select message_key from atlas.messages")] == [first]
    assert [row["message_key"] for row in bench.rows("select message_key from atlas.inbox")] == [first]
    assert bench.actions(second) == ["duplicate"]
    assert len(bench.model.asked) == 1
    assert seen(bench.maildir) == names
    assert outcomes(bench.intake([second], run_id="again"), second) == ["duplicate"] * 4


def test_two_mails_with_one_message_id_are_two_messages(bench: Bench) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    for body in ("Premier\n", "Second\n"):
        bench.put(letter("Une fois", body, message_id="<a@x.example>"))
    keys = bench.discover()
    assert failures(bench.intake(keys)) == []
    assert [bench.status(key) for key in keys] == [Status.CLASSIFIED] * 2


def test_mails_without_a_message_id_are_neither_taken_for_each_other_nor_doubled_when_listed_again(
    bench: Bench,
) -> None:
    """Casebook C05: three tasks after any number of polls, also when the mailbox gives other names to the same mails."""
    bench.model.script = [judged(Intent.QUESTION)]
    raws = [
        letter("Sans", "Un\n", message_id=None),
        letter("Sans", "Deux\n", message_id=None),
        letter("Avec", "Trois\n"),
    ]
    for raw in raws:
        bench.put(raw)
    assert failures(bench.intake(bench.discover())) == []
    assert bench.discover() == []
    for raw in raws:
        bench.put(raw)
    again = bench.discover()
    reports = bench.intake(again, run_id="again")
    assert [outcomes(reports, key) for key in again] == [["duplicate"] * 4] * 3
    assert bench.one("select count(*) from atlas.inbox") == 3


def test_taking_the_read_flag_away_by_hand_makes_no_second_task(bench: Bench) -> None:
    key = bench.take_in(letter())
    (file,) = (bench.maildir / "cur").iterdir()
    file.rename(bench.maildir / "new" / file.name.partition(":")[0])
    assert bench.discover() == []
    assert bench.status(key) is Status.CLASSIFIED


def test_a_mail_that_is_too_large_has_a_row_with_a_code_and_stays_unread(bench: Bench) -> None:
    small = bench.again(max_message_bytes=2000)
    name = small.put(letter(body="x" * 3000))
    (key,) = small.discover()
    assert outcomes(small.intake([key]), key) == ["gone"] * 4
    assert small.rows("select refused_code, fetched_at from atlas.mailbox_ledger") == [
        {"refused_code": "message_too_large", "fetched_at": None}
    ]
    assert (seen(small.maildir), (small.maildir / "new" / name).exists()) == (set(), True)
    assert watching.intake_due(small.parts, []) == []


def test_a_mail_that_vanished_between_listing_and_fetching_is_gone_and_the_others_go_on(bench: Bench) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    name = bench.put(letter("Disparue"))
    bench.put(letter("Restée", "Autre\n"))
    gone, here = bench.discover()
    (bench.maildir / "new" / name).unlink()
    reports = bench.intake([gone, here])
    assert (outcomes(reports, gone), outcomes(reports, here)) == (["gone"] * 4, ALL_DONE)
    assert bench.actions(gone) == ["mail_gone"]


def test_a_mail_listed_in_another_mailbox_waits_and_a_uid_of_it_is_not_fetched_here(
    bench: Bench, tmp_path: Path
) -> None:
    name = bench.put(letter("Ici"))
    (key,) = bench.discover()
    other = bench.again(maildir=tmp_path / "ailleurs")
    other.put(letter("Ailleurs"), name=name)
    assert outcomes(other.intake([key]), key) == ["mailbox_changed", *WAITING]
    assert bench.one("select count(*) from atlas.messages") == 0
    assert seen(tmp_path / "ailleurs") == set()


# The scanner
# -----------


def test_without_the_scanner_mails_wait_in_received_with_one_alarm_and_the_next_run_goes_on(
    bench: Bench, tmp_path: Path
) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    for body in ("Un\n", "Deux\n"):
        bench.put(letter(body=body))
    keys = bench.discover()
    deaf = bench.again(clamd=f"unix:{tmp_path}/nobody.sock")
    reports = deaf.intake(keys)
    for key in keys:
        assert outcomes(reports, key) == ["done", "scanner_socket_missing", "waiting", "waiting"]
        assert (bench.status(key), bench.codes(key, "intake_waiting")) == (Status.RECEIVED, ["scanner_socket_missing"])
    assert (bench.alarms(), bench.model.asked) == (["scanner_socket_missing"], [])
    assert watching.intake_due(bench.parts, []) == []  # they wait their time
    bench.later()
    assert watching.intake_due(bench.parts, []) == keys
    assert failures(bench.intake(keys, run_id="run-2")) == []
    assert [bench.status(key) for key in keys] == [Status.CLASSIFIED] * 2
    assert bench.rows("select waits, wait_code from atlas.mailbox_ledger") == [{"waits": 0, "wait_code": None}] * 2


def test_without_a_scanner_configured_mails_wait_too(bench: Bench) -> None:
    blind = bench.again(clamd=None)
    blind.put(letter())
    (key,) = blind.discover()
    assert failures(blind.intake([key])) == [("scan_verdict", key, "scanner_not_configured")]
    assert blind.status(key) is Status.RECEIVED


def test_an_infected_mail_is_blocked_before_any_model_sees_it_and_an_operator_can_let_it_through(bench: Bench) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    bench.put(letter(attachments=[("facture.com", eicar(), "application/octet-stream")]))
    (key,) = bench.discover()
    assert outcomes(bench.intake([key]), key) == ["done", "blocked", "blocked", "blocked"]
    state = bench.state(key)
    assert (state.status, state.reason_code, bench.model.asked) == (Status.BLOCKED, "attachment_infected", [])
    assert bench.actions(key) == ["received", "blocked_unsafe", "alert"]
    assert [row["verdict"] for row in bench.rows("select verdict from atlas.attachments")] == ["infected"]
    assert outcomes(bench.intake([key], run_id="again"), key) == ["blocked"] * 4

    operator.unblock(bench.parts.db, key, actor="lea")
    assert watching.intake_due(bench.parts, []) == [key]
    assert outcomes(bench.intake([key], run_id="unblocked"), key) == ALL_DONE
    assert bench.status(key) is Status.CLASSIFIED
    with pytest.raises(Refused):
        operator.unblock(bench.parts.db, key, actor="lea")


def test_what_the_scanner_can_not_look_into_is_blocked(bench: Bench) -> None:
    strict = bench.again(clamd_stream_max_bytes=1000)
    strict.put(letter(body="x" * 2000))
    (key,) = strict.discover()
    strict.intake([key])
    assert (strict.status(key), strict.state(key).reason_code) == (Status.BLOCKED, "attachment_unscannable")


# Poison
# ------


def test_a_mail_that_kills_its_worker_twice_is_set_aside_at_the_third_look_and_the_others_go_on(
    bench: Bench, deadly_clamd: FakeClamd
) -> None:
    """The scanner kills whoever hands it the mail, as a decompression bomb or a parser's crash would."""
    house = bench.again(clamd=deadly_clamd.address)
    house.model.script = [judged(Intent.QUESTION)]
    for body in ("Un\n", "MANGEUR\n", "Trois\n"):
        house.put(letter(body=body))
    first, poison, last = keys = house.discover()
    for run in ("worker-1", "worker-2"):
        worker = house.worker("intake", run, *watching.intake_due(house.parts, []))
        status, said = ended(worker)
        assert (status, deadly_clamd.killed[-1]) == (-signal.SIGKILL, worker.pid)
        assert f"classification {last}" not in said
        assert [house.status(key) for key in keys] == [Status.CLASSIFIED, Status.RECEIVED, Status.RECEIVED]
    assert first not in watching.intake_due(house.parts, [])
    # In a process of its own as well: a house that looked once more would be killed here.
    assert ended(house.worker("intake", "third", *keys))[0] == 0
    assert [house.status(key) for key in keys] == [Status.CLASSIFIED, Status.FAILED, Status.CLASSIFIED]
    state = house.state(poison)
    assert state.reason_code == "poison_message"
    assert house.codes(poison, "intake_failed") == ["poison_message"]
    assert house.one("select count(*) from atlas.messages where raw is not null") == 3
    assert watching.intake_due(house.parts, []) == []


def test_a_mail_that_exceeds_the_time_limit_twice_is_set_aside_and_can_be_put_back_after_a_fix(bench: Bench) -> None:
    """Without a sign of life from within: the process is ended, and the mails behind go on in the next."""
    bench.model.script = [judged(Intent.QUESTION)]
    house = bench.again(understanding_timeout_seconds=2.0)
    for body in ("Un\n", "STUCK\n", "Trois\n"):
        house.put(letter(body=body))
    _first, stuck, _last = keys = house.discover()
    # The first time in the batch that was fetched together, the second time alone.
    for run, reached in (("worker-1", Status.RECEIVED), ("worker-2", Status.CLASSIFIED)):
        assert ended(house.worker("intake_stuck", run, *watching.intake_due(house.parts, [])))[0] == 1
        assert [house.status(key) for key in keys] == [reached, Status.RECEIVED, Status.RECEIVED]
    assert ended(house.worker("intake_stuck", "third", *watching.intake_due(house.parts, [])))[0] == 0
    assert [house.status(key) for key in keys] == [Status.CLASSIFIED, Status.FAILED, Status.CLASSIFIED]
    assert house.codes(stuck, "intake_failed") == ["poison_message"]
    assert operator.failed_keys(house.parts.db) == [stuck]
    operator.reprocess(house.parts.db, stuck, actor="test", force=False)
    assert failures(house.intake([stuck], run_id="mended")) == []
    assert house.status(stuck) is Status.CLASSIFIED


def test_a_mail_that_postgresql_will_never_take_is_set_aside_with_its_bytes(bench: Bench) -> None:
    """A Message-ID that does not compress is longer than an index row may be: not an outage, however often it is tried."""
    long = "".join(chr(0x4E00 + secrets.randbelow(20_000)) for _ in range(990))
    bench.model.script = [judged(Intent.QUESTION)]
    bench.put(f"From: {CLIENT}\r\nMessage-ID: {long}\r\n\r\nBonjour\r\n".encode())
    bench.put(letter("Après"))
    poison, other = bench.discover()
    reports = bench.intake([poison, other])
    assert failures(reports) == [("raw_message", poison, "database_refused")]
    assert (bench.status(poison), bench.status(other)) == (Status.FAILED, Status.CLASSIFIED)


def test_a_key_that_the_ledger_does_not_know_stops_nobody(bench: Bench) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    bench.put(letter())
    (key,) = bench.discover()
    reports = bench.intake(["20200101-999999", key])
    assert (outcomes(reports, "20200101-999999"), outcomes(reports, key)) == (["gone"] * 4, ALL_DONE)


def test_a_message_whose_lease_another_run_took_over_is_passed_over(bench: Bench) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    for body in ("Un\n", "Deux\n"):
        bench.put(letter(body=body))
    first, second = keys = bench.discover()
    slow = intake.run(bench.again(claim_seconds=0).parts, keys, run_id="slow")
    reports = [next(slow)]  # the slow run is at its first message, its leases have run out
    with bench.parts.db.transaction() as conn:
        assert claims.lease(conn, [second], run_id="fast", seconds=900) == [second]
    reports += list(slow)
    assert (outcomes(reports, first), outcomes(reports, second)) == (ALL_DONE, ["waiting"] * 4)
    assert bench.status(second) is Status.RECEIVED


def test_a_second_run_passes_over_what_the_first_has_leased(bench: Bench) -> None:
    bench.put(letter())
    (key,) = bench.discover()
    with bench.parts.db.transaction() as conn:
        claims.lease(conn, [key], run_id="first", seconds=900)
    assert outcomes(bench.intake([key], run_id="second"), key) == ["waiting"] * 4
    assert watching.intake_due(bench.parts, ["first"]) == []
    assert watching.intake_due(bench.parts, ["other"]) == [key]  # the first run is dead: its lease need not run out


# The model
# ---------


def test_a_provider_that_is_down_leaves_the_mail_in_received_and_every_paid_call_on_record(bench: Bench) -> None:
    bench.put(letter())
    (key,) = bench.discover()
    bench.model.script = [Scripted(status=500)]
    assert outcomes(bench.intake([key]), key) == ["done", "done", "not_needed", "provider_overloaded"]
    assert (bench.status(key), bench.alarms()) == (Status.RECEIVED, ["provider_overloaded"])
    assert (
        bench.rows("select provider, code from atlas.ai_calls")
        == [{"provider": "mistral", "code": "provider_overloaded"}] * 3
    )
    bench.later()
    bench.model.script = [judged(Intent.RUN)]
    assert failures(bench.intake([key], run_id="run-2")) == []
    assert bench.status(key) is Status.CLASSIFIED


def test_a_refused_key_leaves_the_mail_in_received(bench: Bench) -> None:
    bench.put(letter())
    (key,) = bench.discover()
    bench.model.script = [Scripted(status=401)]
    assert failures(bench.intake([key])) == [("classification", key, "provider_access_refused")]
    assert bench.status(key) is Status.RECEIVED


def test_answers_that_can_not_be_used_fail_the_mail_and_an_operator_puts_it_back(bench: Bench) -> None:
    bench.put(letter())
    (key,) = bench.discover()
    bench.model.script = [chat("I think it is a question."), chat('{"intent": "party", "confidence": 1}')]
    assert failures(bench.intake([key])) == [("classification", key, "answer_intent_unknown")]
    state = bench.state(key)
    assert (state.status, state.reason_code, state.work_kind) == (Status.FAILED, "answer_intent_unknown", None)
    assert bench.alarms() == ["answer_intent_unknown"]
    assert watching.intake_due(bench.parts, []) == []

    operator.reprocess(bench.parts.db, key, actor="lea", force=False)
    assert watching.intake_due(bench.parts, []) == [key]
    bench.model.script = [judged(Intent.QUESTION)]
    assert outcomes(bench.intake([key], run_id="run-2"), key) == ALL_DONE
    assert (bench.status(key), bench.state(key).work_kind) == (Status.CLASSIFIED, "questions")


def test_without_a_key_the_local_model_serves_and_the_row_says_so(bench: Bench) -> None:
    house = bench.again(MISTRAL_API_KEY=None)
    house.put(letter("Question", "Où sont les sauvegardes ? J'aimerais comprendre quels sont les risques.\n"))
    (key,) = house.discover()
    assert failures(house.intake([key])) == []
    assert (house.state(key).model, house.model.asked) == ("local/e5-lr-2", [])


def test_below_the_floor_a_mail_is_noise_and_below_the_threshold_uncertainty_is_audited(bench: Bench) -> None:
    low = bench.take_in(letter("Bas"), Intent.RUN, confidence=0.4)
    middle = bench.take_in(letter("Milieu", "Autre\n"), Intent.RUN, confidence=0.6)
    assert (bench.status(low), bench.state(low).intent) == (Status.CLOSED, Intent.NOISE)
    assert "confidence_floor" in bench.actions(low)
    assert (bench.status(middle), bench.state(middle).intent) == (Status.CLASSIFIED, Intent.RUN)
    assert "classification_uncertain" in bench.actions(middle)


# Pictures
# --------


def test_the_text_of_a_picture_reaches_the_model_and_no_table(bench: Bench) -> None:
    canary = "ZBAKUTEMUDA"
    echo = f"It says: Page /contact Reference : {canary} Question rapide, so a question."
    bench.model.script = [judged(Intent.QUESTION, reasoning=echo), judged(Intent.QUESTION)]
    bench.put(letter("Capture", "\n", attachments=[("capture.png", error_page(canary), "image/png")]))
    bench.put(letter("Témoin", "Le mot TEMOINVISIBLE est dans le texte.\n"))
    keys = bench.discover()
    reports = bench.intake(keys)
    assert outcomes(reports, keys[0]) == ["done"] * 4
    assert any(canary in str(asked) for asked in bench.model.asked)
    assert tables_with(bench, "TEMOINVISIBLE") == {"messages"}
    assert tables_with(bench, canary) == set()
    assert "so a question" in str(bench.state(keys[0]).reasoning)


def test_without_the_ocr_program_the_mail_goes_on_and_the_lack_is_audited(bench: Bench) -> None:
    house = bench.again(tesseract="/nowhere/tesseract")
    key = house.take_in(letter("Capture", attachments=[("capture.png", error_page("ZUT"), "image/png")]))
    assert house.status(key) is Status.CLASSIFIED
    assert (house.codes(key, "ocr_failed"), house.alarms()) == (["ocr_engine_missing"], ["ocr_engine_missing"])


# The mailbox and the database
# ----------------------------


def test_without_a_mailbox_looking_is_a_coded_error_and_an_alarm(bench: Bench) -> None:
    with pytest.raises(NotConfigured):
        bench.again(maildir=None).discover()
    assert bench.alarms() == ["mailbox_not_configured"]


def test_a_maildir_that_can_not_be_read_is_not_an_empty_mailbox(bench: Bench, tmp_path: Path) -> None:
    bench.put(letter())
    (key,) = bench.discover()
    away = tmp_path / "away"
    bench.maildir.rename(away)
    for _ in range(2):
        with pytest.raises(MailboxUnavailable):
            bench.discover()
    assert outcomes(bench.intake([key]), key) == ["maildir_unreadable", *WAITING]
    assert (bench.alarms(), bench.codes(key, "intake_waiting")) == (["maildir_unreadable"], ["maildir_unreadable"])
    away.rename(bench.maildir)
    bench.later()
    bench.model.script = [judged(Intent.QUESTION)]
    assert failures(bench.intake(watching.intake_due(bench.parts, []), run_id="run-2")) == []
    assert bench.status(key) is Status.CLASSIFIED


def test_postgresql_restarted_under_a_run_is_not_noticed_by_the_messages(
    bench: Bench, postgres_server: EmbeddedPostgres
) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    for body in ("Un\n", "Deux\n", "Trois\n"):
        bench.put(letter(body=body))
    keys = bench.discover()
    reports = []
    for number, report in enumerate(intake.run(bench.parts, keys, run_id="run-1")):
        reports.append(report)
        if number in (0, 5):
            postgres_server.stop()
            postgres_server.ensure()
    assert [outcomes(reports, key) for key in keys] == [ALL_DONE] * 3


def test_a_run_that_loses_postgresql_ends_with_a_code_and_the_next_one_loses_and_doubles_nothing(
    bench: Bench, postgres_server: EmbeddedPostgres
) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    for body in ("Un\n", "Deux\n"):
        bench.put(letter(body=body))
    keys = bench.discover()
    impatient = bench.again()
    impatient.parts.__dict__["db"] = type(bench.parts.db)(bench.database_url, timeout_seconds=0.5)
    run = intake.run(impatient.parts, keys, run_id="run-1")
    next(run)
    postgres_server.stop()
    try:
        with pytest.raises(DatabaseUnavailable):
            list(run)
    finally:
        postgres_server.ensure()
    due = watching.intake_due(bench.parts, [])
    assert due == keys[1:]  # the first was done when its reports came
    assert failures(bench.intake(due, run_id="run-2")) == []
    assert bench.rows("select count(*) as n, count(distinct message_key) as keys from atlas.questions") == [
        {"n": 2, "keys": 2}
    ]
    assert [bench.actions(key).count("classified") for key in keys] == [1, 1]


# Again
# -----


def test_a_finished_range_is_left_alone_unless_redo_is_ordered(bench: Bench) -> None:
    key = bench.take_in(letter())
    assert outcomes(bench.intake([key], run_id="again"), key) == ["unchanged"] * 4
    bench.model.script = [judged(Intent.RUN)]
    assert outcomes(bench.intake([key], run_id="redo", redo=True), key) == ALL_DONE
    assert (bench.state(key).intent, bench.state(key).work_kind) == (Intent.RUN, "runs")
    assert bench.one("select count(*) from atlas.questions where superseded_at is not null") == 1
    assert bench.one("select count(*) from atlas.classifications") == 2


def test_every_message_of_a_range_reports_all_four_stages_whatever_becomes_of_it(bench: Bench) -> None:
    bench.model.script = [judged(Intent.QUESTION)]
    bench.put(letter("Propre"))
    bench.put(letter("Infectée", attachments=[("x.com", eicar(), "application/octet-stream")]))
    bench.put(letter("Propre"))
    keys = bench.discover()
    reports = bench.intake(keys)
    assert [(report.key, report.stage) for report in reports] == [
        (key, stage) for key in keys for stage in INBOX_STAGES
    ]


def answer(number: int, *, references: str | None, subject: str = "Re: Menu") -> bytes:
    """A mail that answers something, without any header that says a machine wrote it."""
    raw = letter(subject, f"Réponse {number}\n", sender=CLIENT)
    return raw if references is None else f"References: {references}\r\n".encode() + raw


@pytest.mark.parametrize(
    ("references", "subject"),
    [
        ("<root@client.example> <%d@x.example>", "Re: Menu"),
        ("<recap.m%d.1.1@atlas.atelier-rivage.example>", "Re: [Atlas] Menu"),
        (None, "Réponse automatique : [Atlas] Menu %d"),
    ],
)
def test_a_conversation_that_goes_too_fast_to_be_peoples_is_set_aside_with_one_alarm(
    bench: Bench, references: str | None, subject: str
) -> None:
    """Casebook C90's backstop: a machine that answers recaps and shows nothing that says so."""
    house = bench.again(thread_mails_per_hour=3, mail_from="Atlas <atlas@atelier-rivage.example>")
    house.model.script = [judged(Intent.QUESTION)]
    for number in range(5):
        root = None if references is None else references.replace("%d", str(number))
        house.put(answer(number, references=root, subject=subject.replace("%d", str(number))))
    house.put(letter("Une autre question", sender=CLIENT))
    *thread, other = house.discover()
    house.intake([*thread, other])
    assert [house.status(key) for key in thread] == [Status.CLASSIFIED] * 3 + [Status.FAILED] * 2
    assert house.status(other) is Status.CLASSIFIED
    assert house.state(thread[4]).reason_code == "thread_too_fast"
    assert house.one("select count(*) from atlas.alerts where code = 'thread_too_fast'") == 1
    operator.reprocess(house.parts.db, thread[4], actor="test", force=False)
    assert failures(house.intake([thread[4]], run_id="ordered")) == []
    assert house.status(thread[4]) is Status.CLASSIFIED


def test_many_mails_of_one_sender_that_answer_nothing_are_no_conversation(bench: Bench) -> None:
    """A web site's form writes all day under one subject."""
    house = bench.again(thread_mails_per_hour=2)
    house.model.script = [judged(Intent.QUESTION)]
    for number in range(4):
        house.put(letter("Nouveau message du formulaire", f"Message {number}\n", sender=CLIENT))
    keys = house.discover()
    assert failures(house.intake(keys)) == []
