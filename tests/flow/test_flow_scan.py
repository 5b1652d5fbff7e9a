"""Verdicts that are no clean one: what is held, what is given up, how old signatures may be, and scanning stored mail again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from atlas_pipeline.errors import ScannerUnavailable
from atlas_pipeline.flow import operator, scanning
from atlas_pipeline.model import Intent, Status, Verdict
from tests.fixtures_flow import Bench, FakeClamd, failures, judged, letter

TROUBLE = b"stream: Can't allocate memory ERROR"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def dated(age_days: float) -> bytes:
    """What a clamd with an official database of this age says it is."""
    made = datetime.now() - timedelta(days=age_days)  # noqa: DTZ005  # clamd writes local time
    return f"ClamAV 1.4.6/27840/{made:%a %b %d %H:%M:%S %Y}".encode()


def test_bytes_that_the_scanner_fails_on_are_given_up_after_some_tries_a_day(
    bench: Bench, deadly_clamd: FakeClamd
) -> None:
    """Casebook C50: each try leaves one more endless scan in clamd. The mail is kept, and blocked with its own code."""
    house = bench.again(clamd=deadly_clamd.address, scan_attempts=3)
    deadly_clamd.answers[b"TROUBLE"] = TROUBLE
    house.model.script = [judged(Intent.QUESTION)]
    for body in ("TROUBLE\n", "Bon\n"):
        house.put(letter(body=body))
    bad, good = house.discover()
    for _ in range(3):
        reports = house.intake([bad, good])
        assert ("scan_verdict", bad, "content_scanner_error_reply") in failures(reports)
        assert (house.status(bad), house.status(good)) == (Status.RECEIVED, Status.CLASSIFIED)
        house.later()
    assert failures(house.intake([bad])) == []
    state = house.state(bad)
    assert (state.status, state.reason_code) == (Status.BLOCKED, "attachment_unscannable")
    assert house.one("select code from atlas.scans order by id desc limit 1") == "scan_attempts_exceeded"
    assert house.one("select count(*) from atlas.messages where raw is not null") == 2
    # An operator who allows more tries, and a scanner that is mended.
    deadly_clamd.answers.clear()
    patient = house.again(scan_attempts=50)
    operator.reprocess(patient.parts.db, bad, actor="test", force=False)
    patient.intake([bad], run_id="mended")
    assert patient.status(bad) is Status.CLASSIFIED


def test_a_scanner_in_trouble_is_not_the_mails_fault(bench: Bench, deadly_clamd: FakeClamd) -> None:
    """A reload that lasts, memory that ran out: mails wait, however often they were tried."""
    house = bench.again(clamd=deadly_clamd.address, scan_attempts=2)
    deadly_clamd.answers[b""] = TROUBLE
    house.model.script = [judged(Intent.QUESTION)]
    house.put(letter())
    (key,) = house.discover()
    for _ in range(4):
        assert ("scan_verdict", key, "scanner_error_reply") in failures(house.intake([key]))
        house.later()
    assert house.status(key) is Status.RECEIVED
    deadly_clamd.answers.clear()
    house.intake([key])
    assert house.status(key) is Status.CLASSIFIED


@pytest.mark.parametrize(
    ("version", "code"),
    [(b"ClamAV 1.4.6", "scanner_signatures_missing"), (dated(9), "scanner_signatures_old"), (dated(1), None)],
    ids=["none", "old", "fresh"],
)
def test_where_fresh_signatures_are_required_mail_is_held_until_there_are_some(
    bench: Bench, deadly_clamd: FakeClamd, version: bytes, code: str | None
) -> None:
    house = bench.again(clamd=deadly_clamd.address, scan_require_fresh=True)
    deadly_clamd.version = version
    house.model.script = [judged(Intent.QUESTION)]
    house.put(letter())
    (key,) = house.discover()
    reports = house.intake([key])
    if code is None:
        assert house.status(key) is Status.CLASSIFIED
        assert str(house.one("select engine from atlas.scans limit 1")).startswith("clamd/1.4.6/27840/1.0 days")
        return
    assert ("scan_verdict", key, code) in failures(reports)
    assert (house.status(key), house.alarms()) == (Status.RECEIVED, [code])
    assert house.one("select count(*) from atlas.scans") == 0
    with pytest.raises(ScannerUnavailable):
        list(scanning.rescan(house.parts, LONG_AGO))
    # Without that setting the verdict stands, with what the engine was.
    calm = house.again(scan_require_fresh=False)
    calm.later()
    calm.intake([key])
    assert calm.status(key) is Status.CLASSIFIED


def test_after_new_signatures_a_stored_mail_that_became_infected_is_blocked_and_the_team_is_told(
    bench: Bench, deadly_clamd: FakeClamd
) -> None:
    house = bench.again(clamd=deadly_clamd.address)
    house.model.script = [judged(Intent.QUESTION)]
    for body in ("NOUVEAU\n", "Bon\n"):
        house.put(letter(body=body))
    bad, good = house.discover()
    house.intake([bad, good])
    deadly_clamd.answers[b"NOUVEAU"] = b"stream: New.Virus FOUND"
    found = list(scanning.rescan(house.parts, LONG_AGO))
    assert [(one.key, one.was, one.now, one.raised) for one in found] == [
        (bad, Verdict.CLEAN, Verdict.INFECTED, True),
        (good, Verdict.CLEAN, Verdict.CLEAN, False),
    ]
    assert (house.status(bad), house.state(bad).reason_code) == (Status.BLOCKED, "became_infected")
    assert house.status(good) is Status.CLASSIFIED
    assert house.alarms() == ["became_infected"]
    # Once told, it is not told again; and what is younger than the mails finds none.
    assert [one.raised for one in scanning.rescan(house.parts, LONG_AGO)] == [False, False]
    assert list(scanning.rescan(house.parts, datetime.now(UTC) + timedelta(hours=1))) == []


def test_a_mail_in_an_agents_hands_is_told_of_and_not_moved(bench: Bench, deadly_clamd: FakeClamd) -> None:
    house = bench.again(clamd=deadly_clamd.address)
    key = house.take_in(letter(body="NOUVEAU\n"))
    house.change("update atlas.inbox set status = 'spawning' where message_key = %s", key)
    deadly_clamd.answers[b"NOUVEAU"] = b"stream: New.Virus FOUND"
    assert [one.raised for one in scanning.rescan(house.parts, LONG_AGO)] == [True]
    assert house.status(key) is Status.SPAWNING
    assert house.alarms() == ["became_infected"]
    assert "became_infected" in house.actions(key)
