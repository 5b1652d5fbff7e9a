"""The IMAP source against a real Dovecot."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from imapclient import IMAPClient

from atlas_pipeline.errors import AccessRefused, AtlasError, MailboxUnavailable, NotConfigured, Refused
from atlas_pipeline.mailbox.imap import ImapSource, locate
from atlas_pipeline.mailbox.maildir import MaildirSource
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.mailbox.source import MailSource, open_source
from tests.fixtures_mailbox import PASSWORD, Dovecot, free_port

MAIL = b"From: Ann <ann@client.example>\nSubject: mail %d\nMessage-ID: <%d@x>\nDate: Mon, 02 Nov 2026 10:00:00 +0100\n"


def mail(number: int) -> bytes:
    return MAIL % (number, number) + b"\nbody %d\n" % number


def source(dovecot: Dovecot, user: str, *, password: str = PASSWORD, folder: str = "INBOX") -> MailSource:
    url = dovecot.url(user, password=password, folder=folder)
    return open_source(imap_url=url, imap_ca_file=dovecot.ca_file, maildir=None, timeout_seconds=10)


def code_of(opened: MailSource) -> AtlasError:
    with pytest.raises(AtlasError) as caught, opened as box:
        box.list(above_uid=None)
    return caught.value


def unseen(dovecot: Dovecot, user: str) -> int:
    with IMAPClient("127.0.0.1", dovecot.plain_port, ssl=False, timeout=10) as client:
        client.login(user, PASSWORD)
        client.select_folder("INBOX", readonly=True)
        return len(client.search("UNSEEN"))


def test_listing_and_fetching_leave_a_mail_unread_and_marking_reads_it(dovecot: Dovecot) -> None:
    """A crash between the fetch and the commit must leave the mail to the next poll."""
    user = dovecot.new_user()
    dovecot.deliver(user, mail(1))
    with source(dovecot, user) as box:
        listed = box.list(above_uid=None)
        (only,) = listed.mails
        assert (only.uid, only.seen, listed.uid_next) == ("1", False, 2)
        assert only.internal_date.tzinfo is not None
        assert abs((datetime.now(UTC) - only.internal_date).total_seconds()) < 60
        ((uid, raw),) = box.fetch(dict.fromkeys([only.uid], 1000), uid_validity=listed.uid_validity)
        assert raw is not None
        assert (uid, len(raw)) == ("1", only.size)
        assert unseen(dovecot, user) == 1
        box.mark_seen(["1", "999"], uid_validity=listed.uid_validity)
        assert unseen(dovecot, user) == 0
        box.mark_seen(["1"])
        assert box.list(above_uid=None).mails == ()


def test_a_range_past_the_end_does_not_bring_the_last_mail_back(dovecot: Dovecot) -> None:
    """``UID n:*`` always answers with the last mail (casebook C03)."""
    user = dovecot.new_user()
    dovecot.deliver(user, mail(1))
    with source(dovecot, user) as box:
        box.mark_seen(["1"])
        assert [found.uid for found in box.list(above_uid=0).mails] == ["1"]
        assert box.list(above_uid=1).mails == ()
        assert box.list(above_uid=500).mails == ()
        dovecot.deliver(user, mail(2))
        assert [found.uid for found in box.list(above_uid=1).mails] == ["2"]
        assert [found.uid for found in box.list(above_uid=7).mails] == ["2"]  # unread below the mark


def test_a_mail_expunged_by_another_session_is_reported_gone(dovecot: Dovecot) -> None:
    """Dovecot answers NIL for it; a UID that never was is left out. Both are gone."""
    user = dovecot.new_user()
    for number in (1, 2):
        dovecot.deliver(user, mail(number))
    with source(dovecot, user) as box:
        box.list(above_uid=None)
        with IMAPClient("127.0.0.1", dovecot.plain_port, ssl=False, timeout=10) as other:
            other.login(user, PASSWORD)
            other.select_folder("INBOX")
            other.delete_messages([1])
            other.expunge()
        got = dict(box.fetch(dict.fromkeys(["1", "2", "77"], 1000)))
    assert got["1"] is None
    assert got["77"] is None
    assert got["2"] is not None


def test_a_hundred_and_twenty_mails_come_in_batches_in_order(dovecot: Dovecot) -> None:
    """A batch is 50: the third one is short."""
    user = dovecot.new_user()
    for number in range(1, 121):
        dovecot.deliver(user, mail(number))
    with source(dovecot, user) as box:
        listed = box.list(above_uid=None)
        got = list(box.fetch({found.uid: found.size for found in listed.mails}))
        box.mark_seen([uid for uid, _ in got])
        assert box.list(above_uid=listed.uid_next).mails == ()
    assert len(got) == 120
    assert [uid for uid, _ in got] == [found.uid for found in listed.mails]
    assert len({raw for _, raw in got}) == 120


def test_the_same_mails_through_imap_and_maildir_are_the_same(dovecot: Dovecot) -> None:
    """One comes with CRLF, the other with LF; the fingerprint must not care."""
    user = dovecot.new_user()
    attached = (
        b"From: a@b.example\nSubject: s\nContent-Type: multipart/mixed; boundary=B\n\n--B\n\nhello\n--B\n"
        b"Content-Type: message/rfc822\n\nFrom: x@y.example\nSubject: in\n\ninner\n\n--B--\n"
    )
    for raw in (mail(1), attached, b"no headers at all\n\nx", "Subject: été\n\nça\n".encode("latin-1")):
        dovecot.deliver(user, raw)
    with source(dovecot, user) as box:
        via_imap = [parse(raw or b"") for _, raw in box.fetch(dict.fromkeys(["1", "2", "3", "4"], 1000))]
    with MaildirSource(dovecot.maildir(user)) as folder:
        names = [found.uid for found in folder.list(above_uid=None).mails]
        via_maildir = [parse(raw or b"") for _, raw in folder.fetch(dict.fromkeys(names, 1000))]
    assert len(via_imap) == 4
    assert {found.fingerprint for found in via_imap} == {found.fingerprint for found in via_maildir}
    assert {found.body_text for found in via_imap} == {found.body_text for found in via_maildir}
    assert len({found.fingerprint for found in via_imap}) == 4


def test_a_wrong_password_is_refused_and_not_called_an_outage(dovecot: Dovecot) -> None:
    """Trying again with a wrong password locks accounts."""
    error = code_of(source(dovecot, dovecot.new_user(), password="wrong"))
    assert isinstance(error, AccessRefused)
    assert str(error) == "imap_login_refused"


def test_a_certificate_nobody_vouches_for_is_refused(dovecot: Dovecot) -> None:
    """Without the certificate authority's file the self-made certificate is a stranger's."""
    opened = ImapSource(dovecot.url(dovecot.new_user()), ca_file=None, timeout_seconds=10)
    assert code_of(opened).code == "imap_certificate_untrusted"


def test_a_missing_certificate_file_is_a_wrong_setting(dovecot: Dovecot) -> None:
    """Not an outage: no waiting mends it."""
    opened = ImapSource(dovecot.url("x"), ca_file=Path("/nonexistent.pem"), timeout_seconds=10)
    assert code_of(opened).code == "imap_ca_file_unreadable"


def test_a_server_that_is_gone_is_an_outage() -> None:
    """The next cycle tries again."""
    opened = ImapSource(f"imap://u:p@127.0.0.1:{free_port()}/INBOX", ca_file=None, timeout_seconds=5)
    error = code_of(opened)
    assert isinstance(error, MailboxUnavailable)
    assert error.code == "imap_unreachable"


def test_a_folder_that_is_not_there_is_a_wrong_setting(dovecot: Dovecot) -> None:
    """A misspelt folder must not look like an empty mailbox."""
    error = code_of(source(dovecot, dovecot.new_user(), folder="Nowhere"))
    assert isinstance(error, NotConfigured)
    assert error.code == "imap_folder_missing"


@pytest.mark.parametrize(
    "folder", ["Entwürfe", "Черновики", "A & B", 'Les "vrais"', "fin ", "2024", "日本語", "a/b", "x*y"]
)
def test_a_folder_is_found_by_the_name_that_people_see(dovecot: Dovecot, folder: str) -> None:
    """Casebook C16, C17: modified UTF-7, quotes, a trailing space, a name that is a number."""
    user = dovecot.new_user()
    with IMAPClient("127.0.0.1", dovecot.plain_port, ssl=False, timeout=10) as client:
        client.login(user, PASSWORD)
        client.create_folder(folder)
        client.append(folder, mail(1))
    with source(dovecot, user, folder=folder) as box:
        (found,) = box.list(above_uid=None).mails
        ((_uid, raw),) = list(box.fetch(dict.fromkeys([found.uid], 1000)))
        assert raw is not None
        assert b"body 1" in raw
        box.mark_seen([found.uid])
        assert box.list(above_uid=None).mails == ()


def test_a_mail_with_a_date_that_is_none_is_listed_by_the_servers_own(dovecot: Dovecot) -> None:
    """Casebook C18: no ENVELOPE is asked for."""
    user = dovecot.new_user()
    dovecot.deliver(user, mail(1).replace(b"Mon, 02 Nov 2026 10:00:00", b"Sat, 8 May 2010 16.03.09"))
    with source(dovecot, user) as box:
        (found,) = box.list(above_uid=None).mails
    assert abs((found.internal_date - datetime.now(UTC)).total_seconds()) < 300


def test_all_mails_are_listed_with_their_message_ids_read_or_not(dovecot: Dovecot) -> None:
    """What known mails are found again by after a renumbering, as the parser would read it from the whole mail."""
    user = dovecot.new_user()
    odd = [
        mail(1),
        mail(2).replace(b"Message-ID: <2@x>\n", b""),
        mail(3).replace(b"Message-ID: <3@x>", b"Message-ID:\n <folded@x>"),
        mail(4).replace(b"Message-ID: <4@x>", b"Message-Id: <[a]@x.example> (c)"),
        mail(5).replace(b"Message-ID: <5@x>", b"Message-ID: <r\xe9@x>"),
        mail(6).replace(b"Message-ID: <6@x>", b"Message-ID: <" + b"n" * 3000 + b"@x>"),
    ]
    for raw in odd:
        dovecot.deliver(user, raw)
    with source(dovecot, user) as box:
        box.mark_seen(["1", "3"])
        whole = box.list_all()
        bodies = dict(box.fetch(dict.fromkeys([found.uid for found in whole.mails], 1000)))
    assert [found.uid for found in whole.mails] == ["1", "2", "3", "4", "5", "6"]
    assert [found.seen for found in whole.mails] == [True, False, True, False, False, False]
    for found in whole.mails:
        raw_mail = bodies[found.uid]
        assert raw_mail is not None
        assert found.message_id == parse(raw_mail).message_id


def test_of_known_mails_only_the_uid_is_asked_for_and_the_rest_waits_for_the_next_look(dovecot: Dovecot) -> None:
    user = dovecot.new_user()
    for number in range(1, 8):
        dovecot.deliver(user, mail(number))
    with source(dovecot, user) as box:
        found = box.list(above_uid=None, known=lambda _validity, uids: [uid for uid in uids if uid < "3"], limit=3)
    assert ([mail.uid for mail in found.mails], found.more) == (["3", "4", "5"], True)


def test_the_mail_that_was_listed_is_flagged_though_others_before_it_were_expunged(dovecot: Dovecot) -> None:
    """Casebook C04: numbers shift, UIDs do not."""
    user = dovecot.new_user()
    for number in (1, 2, 3):
        dovecot.deliver(user, mail(number))
    with source(dovecot, user) as box:
        third = box.list(above_uid=None).mails[2].uid
        with IMAPClient("127.0.0.1", dovecot.plain_port, ssl=False, timeout=10) as other:
            other.login(user, PASSWORD)
            other.select_folder("INBOX")
            other.delete_messages([1])
            other.expunge()
        ((_uid, raw),) = list(box.fetch(dict.fromkeys([third], 1000)))
        assert raw is not None
        assert b"body 3" in raw
        box.mark_seen([third])
        assert [found.uid for found in box.list(above_uid=None).mails] == ["2"]


def test_a_folder_with_an_accent_is_found(dovecot: Dovecot) -> None:
    """The URL holds percent-encoded UTF-8, the server modified UTF-7."""
    user = dovecot.new_user()
    with IMAPClient("127.0.0.1", dovecot.plain_port, ssl=False, timeout=10) as client:
        client.login(user, PASSWORD)
        client.create_folder("Reçus & co")
        client.append("Reçus & co", mail(1))
    with source(dovecot, user, folder="Reçus & co") as box:
        assert len(box.list(above_uid=None).mails) == 1


def test_a_mailbox_that_was_rebuilt_is_not_read_with_old_uids(dovecot: Dovecot) -> None:
    """Old UIDs would name other mails."""
    user = dovecot.new_user()
    dovecot.deliver(user, mail(1))
    with source(dovecot, user) as box:
        validity = box.list(above_uid=None).uid_validity
        with pytest.raises(MailboxUnavailable, match="uid_validity_changed"):
            list(box.fetch(dict.fromkeys(["1"], 1000), uid_validity=validity + 1))


def test_plain_text_is_spoken_on_loopback_only(dovecot: Dovecot) -> None:
    """A password never travels unencrypted."""
    user = dovecot.new_user()
    opened = ImapSource(
        dovecot.url(user, plain=True).replace("localhost", "127.0.0.1"), ca_file=None, timeout_seconds=5
    )
    with opened as box:
        assert box.list(above_uid=None).mails == ()
    with pytest.raises(Refused, match="imap_plain_text_refused"):
        locate("imap://u:p@mail.example/INBOX")


def test_the_identity_holds_no_password_and_survives_a_change_of_it() -> None:
    """It is a key of the ledger, and it is shown."""
    at = locate("imaps://bal%40ex.org:p%2Fw@Mail.Example/Re%C3%A7us")
    assert (at.user, at.password, at.folder, at.port) == ("bal@ex.org", "p/w", "Reçus", 993)
    assert at.identity == "imap://bal%40ex.org@mail.example/Re%C3%A7us"
    assert "p/w" not in repr(at)


@pytest.mark.parametrize("url", ["", "http://u:p@h/", "imaps://h/INBOX", "imaps://u:p@h:notaport/", "imaps://u@h/"])
def test_a_url_that_is_none_is_a_wrong_setting(url: str) -> None:
    """And an empty one means that no mailbox is configured."""
    with pytest.raises(NotConfigured) as caught:
        open_source(imap_url=url, imap_ca_file=None, maildir=None, timeout_seconds=1)
    assert caught.value.code in {"imap_url_invalid", "mailbox_not_configured"}


@pytest.fixture
def scripted() -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each command with the next item of the list, and hangs up when it is empty."""
    answers: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as lines:
            peer.sendall(b"* OK hello\r\n")
            for line in lines:
                if not answers:
                    return
                peer.sendall(answers.pop(0).replace(b"TAG", line.split(b" ", 1)[0]))

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1], answers
    thread.join(timeout=10)
    listener.close()


SELECTED = b"* 3 EXISTS\r\n* OK [UIDVALIDITY 5] ok\r\n* OK [UIDNEXT 9] ok\r\nTAG OK [READ-WRITE] done\r\n"
READ_ONLY = SELECTED.replace(b"READ-WRITE", b"READ-ONLY")
CAPABILITY = b"* CAPABILITY IMAP4rev1\r\nTAG OK done\r\n"
LOGGED_IN = b"TAG OK in\r\n"


def scripted_source(port: int) -> ImapSource:
    return ImapSource(f"imap://u:p@127.0.0.1:{port}/INBOX", ca_file=None, timeout_seconds=2)


def test_too_many_connections_is_no_wrong_password(scripted: tuple[int, list[bytes]]) -> None:
    """Providers cap sessions; a human must not be told to change the password for it."""
    port, answers = scripted
    answers += [CAPABILITY, b"TAG NO [ALERT] Too many simultaneous connections\r\n"]
    assert code_of(scripted_source(port)).code == "imap_server_busy"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"TAG NO [OVERQUOTA] Account exceeded command or bandwidth limits.\r\n", "imap_over_quota"),
        (b"TAG NO Account exceeded command or bandwidth limits. (Failure)\r\n", "imap_over_quota"),
        (b"TAG BAD User is authenticated but not connected.\r\n", "imap_server_busy"),
        (b"TAG NO [UNAVAILABLE] Temporary authentication failure.\r\n", "imap_server_busy"),
        (b"TAG NO [AUTHENTICATIONFAILED] Invalid credentials (Failure)\r\n", "imap_login_refused"),
    ],
)
def test_what_a_server_says_at_login_is_told_apart(scripted: tuple[int, list[bytes]], answer: bytes, code: str) -> None:
    """Casebook C14, C15: a quota is left alone for hours, a busy server for minutes, a password for a human."""
    port, answers = scripted
    answers += [CAPABILITY, answer]
    assert code_of(scripted_source(port)).code == code


def test_an_answer_given_twice_is_one_mail(scripted: tuple[int, list[bytes]]) -> None:
    """Casebook C13: flags changed by another client come as a second FETCH, before or after the text."""
    port, answers = scripted
    bodies = b"* 1 FETCH (UID 7 FLAGS (\\Seen))\r\n* 1 FETCH (UID 7 BODY[] {5}\r\nhello)\r\n* 1 FETCH (UID 7 FLAGS ())\r\nTAG OK done\r\n"
    answers += [CAPABILITY, LOGGED_IN, SELECTED, bodies]
    with scripted_source(port) as box:
        assert list(box.fetch(dict.fromkeys(["7"], 1000))) == [("7", b"hello")]


def test_of_a_cut_answer_the_whole_mails_are_kept_and_the_cut_one_is_not(scripted: tuple[int, list[bytes]]) -> None:
    """Casebook C09, to the byte: the third literal is cut, whatever its length pretends to be."""
    port, answers = scripted
    bodies = b"* 7 FETCH (UID 7 BODY[] {5}\r\nhello)\r\n* 8 FETCH (BODY[] {5}\r\nworld UID 8)\r\n* 9 FETCH (UID 9 BODY[] {5}\r\nhal"
    answers += [CAPABILITY, LOGGED_IN, SELECTED, bodies]
    kept: list[tuple[str, bytes | None]] = []
    with pytest.raises(MailboxUnavailable) as caught, scripted_source(port) as box:
        kept.extend(box.fetch(dict.fromkeys(["7", "8", "9"], 1000)))
    assert caught.value.code in {"imap_connection_lost", "imap_timeout"}
    assert kept == [("7", b"hello"), ("8", b"world")]


def test_a_line_cut_while_the_next_batch_is_asked_for_keeps_both_batches_whole_mails(
    scripted: tuple[int, list[bytes]],
) -> None:
    """Two questions are under way; the first answer came whole, the second in part."""
    port, answers = scripted
    uids = range(1, 61)
    literal = [b"* %d FETCH (UID %d BODY[] {5}\r\nhello)\r\n" % (uid, uid) for uid in uids]
    answers += [CAPABILITY, LOGGED_IN, SELECTED, b"".join(literal[:50]) + b"TAG OK done\r\n", b"".join(literal[50:53])]
    kept: list[str] = []
    with pytest.raises(MailboxUnavailable), scripted_source(port) as box:
        kept.extend(uid for uid, _raw in box.fetch({str(uid): 5 for uid in uids}))
    assert kept == [str(uid) for uid in range(1, 54)]


def test_a_folder_that_can_only_be_read_gives_its_mails_and_says_why_they_stay_unread(
    scripted: tuple[int, list[bytes]],
) -> None:
    """A shared mailbox without the right to flag."""
    port, answers = scripted
    bodies = b"* 1 FETCH (UID 7 BODY[] {5}\r\nhello)\r\nTAG OK done\r\n"
    answers += [CAPABILITY, LOGGED_IN, READ_ONLY, READ_ONLY, bodies, READ_ONLY]
    with scripted_source(port) as box:
        assert list(box.fetch({"7": 5})) == [("7", b"hello")]
        with pytest.raises(AccessRefused) as caught:
            box.mark_seen(["7"])
    assert caught.value.code == "imap_read_only"


def test_a_fetch_left_early_does_not_leave_its_answers_to_the_next_command(dovecot: Dovecot) -> None:
    """The next batch is under way then; the connection is given up rather than misread."""
    user = dovecot.new_user()
    for number in range(1, 103):
        dovecot.deliver(user, mail(number))
    with source(dovecot, user) as box:
        sizes = {found.uid: found.size for found in box.list(above_uid=None).mails}
        bodies = box.fetch(sizes)
        assert next(bodies)[0] == "1"
        bodies.close()  # type: ignore[attr-defined]
        with pytest.raises(MailboxUnavailable):
            box.mark_seen(["1"])
    with source(dovecot, user) as box:
        assert len(list(box.fetch(sizes))) == 102
        box.mark_seen(["1"])


def test_a_connection_cut_during_login_is_no_wrong_password(scripted: tuple[int, list[bytes]]) -> None:
    """imapclient calls both a LoginError."""
    port, answers = scripted
    answers += [CAPABILITY]
    assert code_of(scripted_source(port)).code == "imap_connection_lost"


def test_a_connection_cut_in_the_middle_is_an_outage(scripted: tuple[int, list[bytes]]) -> None:
    """And the goodbye that fails on the dead connection does not hide it."""
    port, answers = scripted
    answers += [CAPABILITY, LOGGED_IN, b"* 3 EXI"]
    error = code_of(scripted_source(port))
    assert isinstance(error, MailboxUnavailable)
    assert error.code in {"imap_connection_lost", "imap_timeout"}


def test_a_mail_answered_without_its_text_is_neither_gone_nor_read(scripted: tuple[int, list[bytes]]) -> None:
    """iCloud answers so at times (casebook C13): it is left out, and asked again next time."""
    port, answers = scripted
    bodies = b"* 1 FETCH (UID 7)\r\n* 2 FETCH (UID 8 BODY[] {5}\r\nhello)\r\nTAG OK done\r\n"
    answers += [CAPABILITY, LOGGED_IN, SELECTED, bodies]
    with scripted_source(port) as box:
        assert list(box.fetch(dict.fromkeys(["7", "8"], 1000))) == [("8", b"hello")]


def test_an_answer_that_is_no_imap_is_an_outage(scripted: tuple[int, list[bytes]]) -> None:
    """The parser's own exceptions quote what they could not read."""
    port, answers = scripted
    answers += [CAPABILITY, LOGGED_IN, SELECTED, b"* SEARCH one two\r\nTAG OK done\r\n"]
    error = code_of(scripted_source(port))
    assert isinstance(error, MailboxUnavailable)
    assert "one" not in str(error)
