"""A mailbox that is not read: left alone the longer it fails, and told to the team once, with an all-clear at its end."""

from __future__ import annotations

import pytest

from atlas_pipeline.errors import AccessRefused, AtlasError, MailboxUnavailable
from atlas_pipeline.flow import discovery, pulse, watching
from atlas_pipeline.store import mailboxes
from tests.fixtures_flow import Bench, letter, outcomes


def silent_for(bench: Bench, minutes: int) -> None:
    """As if the last look that succeeded were so long ago, and somebody had been watching all the while."""
    bench.change(
        "update atlas.mailbox_pulse set last_read_at = last_read_at - %s * interval '1 minute', "
        "watched_since = watched_since - %s * interval '1 minute'",
        minutes,
        minutes,
    )


def resting(bench: Bench) -> int:
    """Seconds until the mailbox is asked again."""
    with bench.parts.db.transaction() as conn:
        found = mailboxes.pulse(conn, bench.parts.source().mailbox)
    assert found is not None
    return round(found.resting_seconds)


def subjects(bench: Bench) -> list[str]:
    return [str(mail["Subject"]) for mail in bench.recaps()]


def test_a_silence_is_told_once_and_its_end_once(bench: Bench) -> None:
    bench.discover()
    assert not pulse.due(bench.parts)
    silent_for(bench, 11)
    for _ in range(3):
        pulse.tell(bench.parts)
    assert not pulse.due(bench.parts)
    (alert,) = bench.recaps()
    assert alert["To"] == ", ".join(bench.parts.settings.team_recipients)
    assert alert["Auto-Submitted"] == "auto-generated"
    assert "11 minutes" in alert.get_body(("plain",)).get_content()  # type: ignore[union-attr]
    assert (bench.alarms(), len(subjects(bench))) == (["mailbox_silent"], 1)
    bench.discover()
    assert pulse.due(bench.parts)
    assert [pulse.tell(bench.parts).told for _ in range(3)] == ["mailbox_read_again", None, None]
    assert len(subjects(bench)) == 2
    # The next silence is a new one.
    silent_for(bench, 30)
    assert pulse.tell(bench.parts).told == "mailbox_silent"


def test_a_mailbox_that_could_never_be_read_is_silent_too(bench: Bench) -> None:
    house = bench.again(maildir=bench.folder / "nowhere")
    assert not pulse.due(house.parts)
    silent_for(house, 11)
    with pytest.raises(MailboxUnavailable):
        house.discover()
    found = pulse.tell(house.parts)
    assert (found.told, found.code) == ("mailbox_silent", "maildir_unreadable")


def test_the_time_in_which_the_house_was_off_is_no_silence_of_the_mailbox(bench: Bench) -> None:
    bench.discover()
    silent_for(bench, 600)
    bench.change("update atlas.mailbox_pulse set watched_at = watched_at - interval '10 hours'")
    assert not pulse.due(bench.parts)
    assert pulse.tell(bench.parts).told is None


def test_without_a_mailbox_there_is_no_pulse(bench: Bench) -> None:
    house = bench.again(maildir=None)
    assert not pulse.due(house.parts)
    assert pulse.tell(house.parts).told is None


@pytest.mark.parametrize(
    ("error", "pauses"),
    [
        (MailboxUnavailable("imap_unreachable"), [0, 30, 60, 120, 240, 300, 300]),
        (AccessRefused("imap_login_refused"), [0, 30, 60, 120, 240, 480, 900]),
        (MailboxUnavailable("imap_over_quota"), [7200, 14_400, 21_600, 21_600]),
    ],
)
def test_a_mailbox_is_left_alone_longer_with_each_failure_and_not_after_the_first(
    bench: Bench, error: AtlasError, pauses: list[int]
) -> None:
    """A quota is the exception: each further connection prolongs the lock."""
    found = []
    for _ in pauses:
        discovery.failed(bench.parts, bench.parts.source().mailbox, error)
        found.append(resting(bench))
    assert found == pauses
    bench.later()
    bench.discover()
    assert resting(bench) == 0
    discovery.failed(bench.parts, bench.parts.source().mailbox, error)
    assert resting(bench) == pauses[0]


def test_a_mailbox_that_is_left_alone_is_neither_listed_nor_fetched_from_and_no_run_is_asked_for(
    bench: Bench,
) -> None:
    bench.put(letter())
    (key,) = bench.discover()
    discovery.failed(bench.parts, bench.parts.source().mailbox, MailboxUnavailable("imap_over_quota"))
    bench.put(letter())
    bench.maildir.rename(bench.folder / "away")  # whoever asked now would fail with another code
    assert bench.discover() == []
    assert watching.intake_due(bench.parts, []) == []
    assert outcomes(bench.intake([key]), key)[0] == "imap_over_quota"
    assert bench.alarms() == ["imap_over_quota"]
