"""Thousands of ways to name somebody else, against a real mail server: it gets the team or nothing."""

from __future__ import annotations

from email.message import EmailMessage

from atlas_pipeline.recap.send import SmtpExit
from tests.fixtures_recap import TEAM, StartServer
from tests.hostile_addresses import CLIENT, hostile_cases, try_all

COUNT = 2_000  # python -m tests.benchmarks.hostile_addresses tries 100,000


def test_a_server_never_gets_a_recipient_outside_the_allow_list(smtp_server: StartServer) -> None:
    """And the sound ones among them do leave: a guard that refuses everything would pass as well."""
    inbox = smtp_server()
    tally = try_all(COUNT, SmtpExit(f"smtp://127.0.0.1:{inbox.port}", None, 5), inbox.mails)
    assert tally.tried == COUNT
    assert tally.sent > COUNT / 50, tally
    assert tally.refused > COUNT / 2, tally


def test_what_the_server_gets_would_be_seen(smtp_server: StartServer) -> None:
    """A control: past the guard, the client's address does arrive, and the cases do name clients."""
    inbox = smtp_server()
    message = EmailMessage()
    message["From"], message["To"], message["Message-ID"] = TEAM[0], CLIENT, "<x@y.example>"
    message.set_content("x")
    SmtpExit(f"smtp://127.0.0.1:{inbox.port}", None, 5).deliver(message, [CLIENT])
    assert inbox.mails[0][1] == [CLIENT]
    values = [str(list(case.message.raw_items())) for case in hostile_cases(300) if case is not None]
    assert sum(CLIENT in value for value in values) > 30
