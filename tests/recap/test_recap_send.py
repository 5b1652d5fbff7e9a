"""The way out, over real servers: what each answer means, and what is never sent twice."""

from __future__ import annotations

import smtplib
from email.message import EmailMessage
from pathlib import Path

import pytest

from atlas_pipeline.errors import AccessRefused, AtlasError, NotConfigured, Refused, SendDeferred
from atlas_pipeline.recap.compose import compose
from atlas_pipeline.recap.send import (
    Delivery,
    MailExit,
    OutboxFolderExit,
    SmtpExit,
    Uncertain,
    open_exit,
    send,
    wire_bytes,
)
from tests.fixtures_recap import (
    DOMAINS,
    FROM,
    MESSAGE_ID,
    TEAM,
    Certificate,
    Inbox,
    StartPeer,
    StartServer,
    free_port,
    recap_facts,
)

CLIENT = "claire.lorme@menuiserie-lorme.example"
GREETING: list[bytes | None] = [b"220 hi\r\n", b"250 hi\r\n", b"250 sender ok\r\n", b"250 ok\r\n", b"250 ok\r\n"]


def recap(summary: str = "Fait.") -> EmailMessage:
    facts = recap_facts(summary=summary)
    return compose(facts, mail_from=FROM, recipients=TEAM, message_id=MESSAGE_ID, in_reply_to="<m1@client.example>")


def out(mail_exit: MailExit, message: EmailMessage | None = None) -> Delivery:
    return send(message or recap(), mail_exit, team_domains=DOMAINS, team_recipients=TEAM)


def plain(port: int, timeout: float = 5.0) -> SmtpExit:
    return SmtpExit(f"smtp://127.0.0.1:{port}", None, timeout)


def code_of(mail_exit: MailExit, kind: type[AtlasError]) -> str:
    with pytest.raises(kind) as caught:
        out(mail_exit)
    return caught.value.code


def test_a_recap_arrives_whole_and_at_the_team_only(smtp_server: StartServer) -> None:
    """Dots at the start of a line, accents and long lines included."""
    inbox = smtp_server()
    message = recap(".\n..\n.début\n" + "é" * 3000)
    delivery = out(plain(inbox.port), message)
    assert (delivery.way, delivery.message_id) == ("smtp", MESSAGE_ID)
    assert delivery.accepted == TEAM
    assert delivery.refused == ()
    [(sender, recipients, content)] = inbox.mails
    assert sender == FROM
    assert tuple(recipients) == TEAM
    assert content.rstrip() == message.as_bytes(policy=message.policy).rstrip()


@pytest.mark.parametrize(("tls", "scheme"), [("starttls", "smtp"), ("implicit", "smtps")])
def test_tls_is_used_and_verified(
    tls: str, scheme: str, smtp_server: StartServer, smtp_certificate: Certificate, other_certificate: Certificate
) -> None:
    """An unknown authority or another host's certificate: nothing is sent, and the message waits."""
    inbox, impostor = smtp_server(tls=tls), smtp_server(tls=tls, shown=other_certificate)
    assert out(SmtpExit(f"{scheme}://localhost:{inbox.port}", smtp_certificate.file, 5)).accepted == TEAM
    unknown_authority = SmtpExit(f"{scheme}://localhost:{inbox.port}", other_certificate.file, 5)
    assert code_of(unknown_authority, SendDeferred) == "smtp_certificate_not_verified"
    other_host = SmtpExit(f"{scheme}://localhost:{impostor.port}", other_certificate.file, 5)
    assert code_of(other_host, SendDeferred) == "smtp_certificate_not_verified"
    if scheme == "smtps":
        public_authorities = SmtpExit(f"smtps://localhost:{inbox.port}", None, 5)
        assert code_of(public_authorities, SendDeferred) == "smtp_certificate_not_verified"
    assert len(inbox.mails) == 1
    assert impostor.mails == []


def test_a_server_without_starttls_gets_nothing(smtp_server: StartServer, smtp_certificate: Certificate) -> None:
    """Neither the password nor the mail goes out in plain text because a server (or someone between) offers no TLS."""
    inbox = smtp_server()
    wanted = SmtpExit(f"smtp://127.0.0.1:{inbox.port}", smtp_certificate.file, 5)
    assert code_of(wanted, SendDeferred) == "smtp_extension_missing"
    assert inbox.mails == []


@pytest.mark.parametrize(
    ("url", "required"),
    [
        ("smtp://mail.atelier-rivage.example", True),
        ("smtp://192.0.2.1:2525", True),
        ("smtp://127.0.0.1.evil.example", True),
        ("smtp://localhost.evil.example", True),
        ("smtp://127.0.0.1:2525", False),
        ("smtp://[::1]:2525", False),
        ("smtp://localhost", False),
    ],
)
def test_plain_text_is_for_loopback_alone(url: str, required: bool) -> None:
    """And a name that merely begins like loopback is not loopback."""
    assert SmtpExit(url, None, 5).starttls is required


def test_a_password_with_odd_characters_logs_in_and_a_wrong_one_is_told(
    smtp_server: StartServer, smtp_certificate: Certificate
) -> None:
    """URL-encoded characters are decoded; a refusal is a setting to mend, not a mail to drop."""
    inbox = smtp_server(tls="starttls", auth=True)

    def exit_with(user: str) -> SmtpExit:
        return SmtpExit(f"smtp://{user}localhost:{inbox.port}", smtp_certificate.file, 5)

    assert out(exit_with("atlas:p%40ss%2Fword@")).accepted == TEAM
    assert code_of(exit_with("atlas:wrong@"), AccessRefused) == "smtp_auth_refused"
    assert code_of(exit_with(""), AccessRefused) == "smtp_auth_refused"
    assert code_of(exit_with("atlas:%C3%A9@"), AccessRefused) in {"smtp_auth_not_encodable", "smtp_auth_refused"}
    assert len(inbox.mails) == 1


@pytest.mark.parametrize(
    ("answer", "kind", "code"),
    [
        ("451 later", SendDeferred, "smtp_deferred"),
        ("421 closing", SendDeferred, "smtp_deferred"),
        ("550 no", Refused, "smtp_refused"),
        ("552 too big", Refused, "smtp_refused"),
    ],
)
def test_the_servers_last_word_decides(
    answer: str, kind: type[AtlasError], code: str, smtp_server: StartServer
) -> None:
    """4xx comes back later, 5xx never; the number is kept, the server's words are not."""
    inbox = smtp_server()
    inbox.answer_data = answer
    with pytest.raises(kind) as caught:
        out(plain(inbox.port))
    assert caught.value.code == code
    assert caught.value.detail == {"smtp_code": int(answer[:3])}
    assert caught.value.__cause__ is None


def test_one_refused_recipient_is_recorded_and_the_others_served(smtp_server: StartServer) -> None:
    """smtplib raises nothing in that case; only the returned codes tell."""
    inbox = smtp_server()
    inbox.refuse_rcpt = {TEAM[1]: "550 unknown"}
    delivery = out(plain(inbox.port))
    assert delivery.accepted == (TEAM[0],)
    assert delivery.refused == ((TEAM[1], 550),)
    assert inbox.mails[0][1] == [TEAM[0]]


def test_when_all_recipients_are_refused_one_that_may_come_back_decides(smtp_server: StartServer) -> None:
    """Grey-listing of one mailbox must not turn a closed one into the answer for both."""
    inbox = smtp_server()
    inbox.refuse_rcpt = {TEAM[0]: "550 no", TEAM[1]: "550 no"}
    assert code_of(plain(inbox.port), Refused) == "smtp_refused"
    inbox.refuse_rcpt = {TEAM[0]: "550 no", TEAM[1]: "450 later"}
    assert code_of(plain(inbox.port), SendDeferred) == "smtp_deferred"
    assert inbox.mails == []


def test_a_server_that_takes_the_mail_and_vanishes_leaves_it_uncertain(smtp_server: StartServer) -> None:
    """The mail is there, the answer is not: sending again would send it twice."""
    inbox = smtp_server()
    inbox.drop_after_taking = True
    assert code_of(plain(inbox.port), Uncertain) == "smtp_uncertain"
    assert len(inbox.mails) == 1


@pytest.mark.parametrize(
    ("script", "kind", "code"),
    [
        ([None], SendDeferred, "smtp_unreachable"),
        ([b"554 go away\r\n"], Refused, "smtp_refused"),
        ([b"421 busy\r\n"], SendDeferred, "smtp_deferred"),
        ([b"220 hi\r\n", None], SendDeferred, "smtp_unreachable"),
        ([*GREETING[:3], None], SendDeferred, "smtp_unreachable"),
        ([*GREETING, None], SendDeferred, "smtp_unreachable"),
        ([*GREETING, b"451 not now\r\n", b"221 bye\r\n"], SendDeferred, "smtp_deferred"),
        ([*GREETING, b"nonsense\r\n", b"221 bye\r\n"], SendDeferred, "smtp_deferred"),
        ([*GREETING, b"354 go\r\n", None], Uncertain, "smtp_uncertain"),
        ([*GREETING, b"354 go\r\n", b"nonsense\r\n", b"221 bye\r\n"], Uncertain, "smtp_uncertain"),
        ([*GREETING, b"354 go\r\n", b"2" * 9000 + b"\r\n"], Uncertain, "smtp_uncertain"),
        ([*GREETING, b"354 go\r\n", b"550 no\r\n", b"221 bye\r\n"], Refused, "smtp_refused"),
    ],
)
def test_how_far_the_conversation_came_decides_what_a_lost_line_means(
    script: list[bytes | None], kind: type[AtlasError], code: str, scripted_peer: StartPeer
) -> None:
    """Before 354 nothing was delivered; after it nobody knows."""
    assert code_of(plain(scripted_peer(script)), kind) == code


def test_a_server_that_hangs_after_the_content_is_uncertain_and_before_it_unreachable(scripted_peer: StartPeer) -> None:
    """The time-out holds for each step."""
    hanging = scripted_peer([*GREETING, b"354 go\r\n", b""])
    assert code_of(plain(hanging, timeout=0.5), Uncertain) == "smtp_uncertain"
    silent = scripted_peer([b""])
    assert code_of(plain(silent, timeout=0.5), SendDeferred) == "smtp_unreachable"


def test_a_goodbye_that_fails_changes_nothing(scripted_peer: StartPeer) -> None:
    """The mail was taken; QUIT is politeness."""
    port = scripted_peer([*GREETING, b"354 go\r\n", b"250 taken\r\n", None])
    assert out(plain(port)).accepted == TEAM


def test_nobody_listening_is_tried_again_later() -> None:
    """The address is free, so nothing was delivered."""
    assert code_of(plain(free_port()), SendDeferred) == "smtp_unreachable"


class _Untouched:
    """An exit that must not be reached."""

    def deliver(self, message: EmailMessage, recipients: object) -> Delivery:
        raise AssertionError

    def check(self) -> None:
        raise AssertionError


def test_a_mail_for_a_stranger_reaches_no_exit() -> None:
    """The guard comes first, for every exit."""
    message = recap()
    message["Cc"] = CLIENT
    with pytest.raises(Refused, match="recipient_not_team"):
        out(_Untouched(), message)
    with pytest.raises(Refused, match="recipients_not_configured"):
        send(recap(), _Untouched(), team_domains=(), team_recipients=())


def test_bcc_is_delivered_and_not_shown(smtp_server: StartServer) -> None:
    """As any mail program does it; the address is one of the team's like the others."""
    inbox = smtp_server()
    message = recap()
    message.replace_header("To", TEAM[0])
    message["Bcc"] = TEAM[1]
    assert out(plain(inbox.port), message).accepted == TEAM
    assert b"bcc" not in inbox.mails[0][2].lower()
    assert inbox.mails[0][2].count(b"multipart/alternative") == 1


def test_the_outbox_folder_holds_each_mail_once(tmp_path: Path) -> None:
    """Named after the Message-ID, so a repeat after a crash finds the file and leaves it."""
    folder = tmp_path / "outbox"
    delivery = out(OutboxFolderExit(folder))
    [file] = list(folder.iterdir())
    assert file.name == "recap.20261201-000042.1.1.eml"
    assert delivery == Delivery("outbox", MESSAGE_ID, TEAM)
    before = (file.read_bytes(), file.stat().st_mtime_ns)
    assert out(OutboxFolderExit(folder), recap("Autre chose.")).accepted == TEAM
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before
    assert [path.name for path in folder.iterdir()] == [file.name]


def test_an_outbox_that_is_no_folder_defers(tmp_path: Path) -> None:
    """A full or wrong disk is no reason to lose a recap."""
    (tmp_path / "file").write_text("x")
    assert code_of(OutboxFolderExit(tmp_path / "file"), SendDeferred) == "outbox_not_writable"


def test_a_message_id_is_no_path(tmp_path: Path) -> None:
    """The name is made of harmless characters, whatever the id holds."""
    message = recap()
    message.replace_header("Message-ID", "<../../etc/x@y.example>")
    OutboxFolderExit(tmp_path / "outbox").deliver(message, TEAM)
    assert [path.name for path in tmp_path.rglob("*.eml")] == ["_.._etc_x.eml"]


def test_the_exit_follows_the_settings(tmp_path: Path) -> None:
    """SMTP before the folder; nothing configured is said, and is no folder somewhere."""
    both = open_exit(smtp_url="smtp://localhost:2525", smtp_ca_file=None, outbox_dir=tmp_path)
    assert isinstance(both, SmtpExit)
    assert isinstance(open_exit(smtp_url=None, smtp_ca_file=None, outbox_dir=tmp_path), OutboxFolderExit)
    with pytest.raises(NotConfigured, match="mail_exit_not_configured"):
        open_exit(smtp_url="", smtp_ca_file=None, outbox_dir=None)
    for url in ("http://x.example", "smtp://", "smtps://x.example:port", "x", "smtp://[::1"):
        with pytest.raises(NotConfigured, match="smtp_url_invalid"):
            open_exit(smtp_url=url, smtp_ca_file=None, outbox_dir=None)
    missing = SmtpExit("smtps://localhost", tmp_path / "none.pem", 1)
    assert code_of(missing, NotConfigured) == "smtp_ca_file_unreadable"


def test_no_secret_is_in_the_exit_or_its_errors(smtp_server: StartServer) -> None:
    """Errors and reprs end up in logs and audit rows."""
    inbox: Inbox = smtp_server()
    mail_exit = SmtpExit(f"smtp://atlas:hunter2@127.0.0.1:{inbox.port}", None, 5)
    with pytest.raises(AtlasError) as caught:
        out(mail_exit)
    assert "hunter2" not in f"{mail_exit!r}{caught.value!r}{caught.value}"


def test_smtplibs_own_client_would_write_the_same_content(smtp_server: StartServer) -> None:
    """A control: our own DATA gives the server the bytes that the library's would."""
    inbox = smtp_server()
    message = recap(".\n..a\nb")
    out(plain(inbox.port), message)
    with smtplib.SMTP("127.0.0.1", inbox.port, local_hostname="localhost") as client:
        client.sendmail(FROM, list(TEAM), message.as_bytes())
    assert inbox.mails[0] == inbox.mails[1]
    assert wire_bytes(message).endswith(b"\r\n.\r\n")
