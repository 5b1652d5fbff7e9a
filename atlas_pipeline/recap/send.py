"""The way out: the only module of Atlas that may open an SMTP connection. ``send`` asks ``guard`` first, always.

What a failure means is decided by how far the conversation had come. Before the server said 354 nothing can have been
delivered, so trying again is safe. Once the content is on its way, a lost connection leaves it open whether the mail
was taken: a server that accepts and then drops looks like one that drops first, so nothing is sent again blindly.
"""

from __future__ import annotations

import ipaddress
import os
import re
import smtplib
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import parseaddr
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from atlas_pipeline.errors import AccessRefused, AtlasError, NotConfigured, Refused, SendDeferred
from atlas_pipeline.recap.compose import WIRE_POLICY
from atlas_pipeline.recap.guard import addressed, check_recipients, exact_address


class Uncertain(AtlasError):
    """The mail may or may not have been delivered; a human looks, nothing is sent again."""

    state = "uncertain"


@dataclass(frozen=True)
class Delivery:
    """Who took the mail; ``refused``: (address, SMTP code) of those not taken while others were."""

    way: str
    message_id: str
    accepted: tuple[str, ...] = field(repr=False)
    refused: tuple[tuple[str, int], ...] = field(default=(), repr=False)


class MailExit(Protocol):
    """A way out for a mail that the guard let through. ``send`` is the only caller."""

    def deliver(self, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
        """Hand the mail over for exactly these recipients."""
        ...

    def check(self) -> None:
        """Go as far as one can without sending anything. Raises what ``deliver`` would: SendDeferred, AccessRefused."""
        ...


def send(
    message: EmailMessage, mail_exit: MailExit, *, team_domains: Iterable[str], team_recipients: Iterable[str]
) -> Delivery:
    """Send to the addresses in the mail's own headers, after the guard.

    Raises Refused (guard's codes, ``sender_invalid``, ``smtp_refused``), SendDeferred, AccessRefused, or Uncertain
    ``smtp_uncertain`` when the connection was lost after DATA.
    """
    recipients = check_recipients(
        message, addressed(message), team_domains=tuple(team_domains), team_recipients=tuple(team_recipients)
    )
    return mail_exit.deliver(message, recipients)


def open_exit(
    *, smtp_url: str | None, smtp_ca_file: Path | None, outbox_dir: Path | None, timeout: float = 30.0
) -> MailExit:
    """The exit that is set up, SMTP before the folder; no connection is opened.

    Raises NotConfigured ``mail_exit_not_configured`` or ``smtp_url_invalid``.
    """
    if smtp_url:
        return SmtpExit(smtp_url, smtp_ca_file, timeout)
    if outbox_dir is not None:
        return OutboxFolderExit(outbox_dir)
    raise NotConfigured("mail_exit_not_configured")


class SmtpExit:
    """One server, from ``smtps://user:password@host:465`` or ``smtp://…:587``; ``timeout`` in seconds for each step.

    ``smtp://`` requires STARTTLS. Plain text is for a server on loopback, and there only while no certificate authority
    is given. Certificates and host names are always verified.
    """

    def __init__(self, url: str, ca_file: Path | None, timeout: float) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise NotConfigured("smtp_url_invalid") from None
        if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
            raise NotConfigured("smtp_url_invalid")
        self.host = parts.hostname
        self.implicit_tls = parts.scheme == "smtps"
        self.port = port or (465 if self.implicit_tls else 587)
        self.starttls = not self.implicit_tls and (ca_file is not None or not _is_loopback(self.host))
        self._user = unquote(parts.username) if parts.username else None
        self._password = unquote(parts.password or "")
        self._ca_file = ca_file
        self._timeout = timeout

    def deliver(self, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
        """One conversation. Raises as ``send`` says; ``smtp_uncertain`` is never to be repeated by itself."""
        sender, payload = _sender(message), wire_bytes(message)
        server = self._connect(sender.rsplit("@", 1)[1])
        try:
            refused = self._before_content(server, sender, recipients)
            self._content(server, payload)
        finally:
            _hang_up(server)
        gone = {address for address, _ in refused}
        accepted = tuple(address for address in recipients if address not in gone)
        return Delivery("smtp", str(message["Message-ID"]), accepted, tuple(refused))

    def check(self) -> None:
        """Connect, log in, and hang up."""
        _hang_up(self._connect("localhost"))

    def _connect(self, own_name: str) -> smtplib.SMTP:
        context = self._context()
        try:
            server = self._open(own_name, context)
        except (smtplib.SMTPException, OSError) as error:
            raise _deferred_or_refused(error) from None
        try:
            if self.starttls:
                server.starttls(context=context)
            if self._user is not None:
                server.login(self._user, self._password)
        except (smtplib.SMTPException, OSError, UnicodeError) as error:
            server.close()
            raise _deferred_or_refused(error) from None
        return server

    def _open(self, own_name: str, context: ssl.SSLContext) -> smtplib.SMTP:
        # An own name is given because smtplib would otherwise ask the DNS for this machine's and tell it to the server.
        if self.implicit_tls:
            return smtplib.SMTP_SSL(
                self.host, self.port, local_hostname=own_name, timeout=self._timeout, context=context
            )
        return smtplib.SMTP(self.host, self.port, local_hostname=own_name, timeout=self._timeout)

    def _context(self) -> ssl.SSLContext:
        # starttls() without a context verifies nothing on 3.11, so one is always made.
        try:
            return ssl.create_default_context(cafile=str(self._ca_file) if self._ca_file else None)
        except (OSError, ValueError):
            raise NotConfigured("smtp_ca_file_unreadable") from None

    def _before_content(self, server: smtplib.SMTP, sender: str, recipients: Sequence[str]) -> list[tuple[str, int]]:
        """MAIL, RCPT and DATA up to the server's go-ahead; the recipients it does not take."""
        try:
            server.ehlo_or_helo_if_needed()
            _expect(server.mail(sender)[0], 250)
            codes = [(recipient, server.rcpt(recipient)[0]) for recipient in recipients]
            refused = [(recipient, code) for recipient, code in codes if code not in {250, 251}]
            if len(refused) == len(codes):
                # One that may come back later is reason enough to come back later.
                raise _by_code(next((code for _, code in refused if not 500 <= code < 600), refused[0][1]))
            _expect(server.docmd("DATA")[0], 354)
        except (smtplib.SMTPException, OSError) as error:
            raise _deferred_or_refused(error) from None
        return refused

    def _content(self, server: smtplib.SMTP, payload: bytes) -> None:
        """The content and the server's last word."""
        try:
            server.send(payload)
            code, _ = server.getreply()
        except (smtplib.SMTPException, OSError):
            raise Uncertain("smtp_uncertain") from None
        if 200 <= code < 300:
            return
        if not 400 <= code < 600:
            raise Uncertain("smtp_uncertain", smtp_code=code)
        raise _by_code(code)


class OutboxFolderExit:
    """A folder in place of a server (demo): one .eml file a mail, named after its Message-ID, never written twice."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def deliver(self, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
        """Write the whole file or none. Raises SendDeferred ``outbox_not_writable``, Refused ``message_id_invalid``."""
        message_id = str(message["Message-ID"] or "")
        name = re.sub(r"[^A-Za-z0-9._-]", "_", message_id.strip("<> ").rsplit("@", 1)[0])[:120].lstrip(".")
        if not name:
            raise Refused("message_id_invalid")
        target, unfinished = self.folder / f"{name}.eml", self.folder / f".{name}.{os.getpid()}.tmp"
        try:
            if not target.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                with unfinished.open("wb") as file:
                    file.write(_file_bytes(message))
                    file.flush()
                    os.fsync(file.fileno())
                unfinished.replace(target)
        except OSError:
            raise SendDeferred("outbox_not_writable") from None
        return Delivery("outbox", message_id, tuple(recipients))

    def check(self) -> None:
        """Whether the folder, or the nearest one above it that exists, can be written."""
        place = next((folder for folder in (self.folder, *self.folder.absolute().parents) if folder.exists()), None)
        if place is None or not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            raise SendDeferred("outbox_not_writable")


def wire_bytes(message: EmailMessage) -> bytes:
    """The content as DATA carries it: CRLF, lines beginning with a dot doubled, ended by a lone dot. No Bcc."""
    content = re.sub(rb"\r\n|\r|\n", b"\r\n", _file_bytes(message))
    return re.sub(rb"(?m)^\.", b"..", content.rstrip(b"\r\n") + b"\r\n") + b".\r\n"


def _file_bytes(message: EmailMessage) -> bytes:
    try:
        if any(name.lower() in {"bcc", "resent-bcc"} for name in message.keys()):  # noqa: SIM118 - a mail is no dict
            return _without_bcc(message).as_bytes(policy=WIRE_POLICY)
        return message.as_bytes(policy=WIRE_POLICY)
    except (ValueError, LookupError, TypeError):
        raise Refused("message_not_encodable") from None


def _without_bcc(message: EmailMessage) -> EmailMessage:
    copy = EmailMessage(policy=WIRE_POLICY)
    for name, value in message.raw_items():
        if name.lower() not in {"bcc", "resent-bcc"}:
            copy.set_raw(name, value)
    copy.set_payload(message.get_payload())
    return copy


def _sender(message: EmailMessage) -> str:
    sender = exact_address(parseaddr(str(message["From"] or ""))[1])
    if sender is None:
        raise Refused("sender_invalid")
    return sender


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _expect(code: int, wanted: int) -> None:
    if code != wanted:
        raise _by_code(code)


def _by_code(code: int) -> AtlasError:
    """The error that a reply code means while nothing has been delivered."""
    if code in {530, 534, 535, 538}:
        return AccessRefused("smtp_auth_refused", smtp_code=code)
    if 500 <= code < 600:
        return Refused("smtp_refused", smtp_code=code)
    return SendDeferred("smtp_deferred", smtp_code=code)


def _deferred_or_refused(error: Exception) -> AtlasError:
    """The error that a failure before the content means; SMTPException is an OSError, so its kinds come first."""
    if isinstance(error, smtplib.SMTPResponseException):
        return _by_code(int(error.smtp_code))
    if isinstance(error, UnicodeError):
        return AccessRefused("smtp_auth_not_encodable")
    if isinstance(error, smtplib.SMTPNotSupportedError):
        return SendDeferred("smtp_extension_missing")
    if isinstance(error, ssl.SSLCertVerificationError):
        return SendDeferred("smtp_certificate_not_verified")
    return SendDeferred("smtp_unreachable")


def _hang_up(server: smtplib.SMTP) -> None:
    """Say goodbye; what the server makes of it changes nothing about the mail."""
    try:
        server.quit()
    except (smtplib.SMTPException, OSError):
        server.close()
