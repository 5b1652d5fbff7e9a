"""Parts for the recap's tests: facts, a certificate, real SMTP servers, and a peer that says what it is told to."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from atlas_pipeline.model import Address, Intent, RouteCheck, Status
from atlas_pipeline.recap.compose import RecapFacts

FROM = "atlas@atelier-rivage.example"
TEAM = ("lea.martin@atelier-rivage.example", "equipe@atelier-rivage.example")
DOMAINS = ("atelier-rivage.example",)
MESSAGE_ID = "<recap.20261201-000042.1.1@atlas.atelier-rivage.example>"


def recap_facts(**changes: Any) -> RecapFacts:
    """A complete set of facts, with changes."""
    values: dict[str, Any] = {
        "message_key": "20261201-000042",
        "language": "fr",
        "status": Status.ACTIONED,
        "code": "qa_passed",
        "subject": "Deux pages cassées",
        "requester": Address("Claire Lorme", "claire.lorme@menuiserie-lorme.example"),
        "requester_claimed": True,
        "forwarder": Address("Léa Martin", "lea.martin@atelier-rivage.example"),
        "tenant": "Menuiserie Lorme",
        "intent": Intent.CHANTIER,
        "final_intent": Intent.CHANTIER,
        "confidence": 0.93,
        "reasoning": "Deux pages à réparer & à vérifier.",
        "summary": "# Résumé\n- `app.py` : clé <corrigée>\n- `devis.js`",
        "commits": ("a" * 40, "b" * 40),
        "checks": (
            RouteCheck("/equipe", "http", ok=True, status=200, milliseconds=12),
            RouteCheck("/devis", "browser", ok=False, status=200, milliseconds=340, errors=("x is not defined",)),
        ),
        "brought": ("x is not defined",),
        "attempts": 2,
        "cost_usd": 0.42,
        "seconds": 75.0,
        "draft_reply": "Bonjour,\n\nC'est réparé.\n\nCordialement",
        "deploy_url": "http://127.0.0.1:8099",
    }
    return RecapFacts(**{**values, **changes})


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate; it is its own authority."""

    file: Path
    key: Path

    @property
    def server_context(self) -> ssl.SSLContext:
        """For a server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file, self.key)
        return context


def make_certificate(folder: Path, names: str) -> Certificate:
    """By openssl, for these subject alternative names."""
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    command = [
        shutil.which("openssl") or "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
        "-nodes", "-days", "2", "-subj", "/CN=recap-tests", "-addext", f"subjectAltName={names}",
        "-keyout", str(made.key), "-out", str(made.file),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return made


@pytest.fixture(scope="session")
def smtp_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """The right one."""
    return make_certificate(tmp_path_factory.mktemp("smtp-tls"), "DNS:localhost,IP:127.0.0.1")


@pytest.fixture(scope="session")
def other_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """One for another host."""
    return make_certificate(tmp_path_factory.mktemp("smtp-tls-other"), "DNS:mail.other.example")


@dataclass
class Inbox:
    """What a server took, and what it is told to answer: RCPT by address, DATA for all."""

    refuse_rcpt: dict[str, str] = field(default_factory=dict)
    answer_data: str = "250 taken"
    drop_after_taking: bool = False
    mails: list[tuple[str, list[str], bytes]] = field(default_factory=list)
    port: int = 0

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        """Called by aiosmtpd."""
        if address in self.refuse_rcpt:
            return self.refuse_rcpt[address]
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Called by aiosmtpd."""
        if self.answer_data.startswith("2"):
            self.mails.append((envelope.mail_from, list(envelope.rcpt_tos), bytes(envelope.original_content)))
        if self.drop_after_taking:
            server.transport.abort()
        return self.answer_data


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    right = (data.login, data.password) == (b"atlas", b"p@ss/word")
    return AuthResult(success=right, handled=False)


StartServer = Callable[..., Inbox]


@pytest.fixture
def smtp_server(smtp_certificate: Certificate) -> Iterator[StartServer]:
    """Start real servers on loopback: ``smtp_server(tls="starttls"|"implicit"|None, auth=False)``."""
    with contextlib.ExitStack() as stack:

        def start(*, tls: str | None = None, auth: bool = False, shown: Certificate = smtp_certificate) -> Inbox:
            inbox = Inbox(port=free_port())
            more: dict[str, Any] = {"enable_SMTPUTF8": False}
            if tls == "implicit":
                more["ssl_context"] = shown.server_context
            if tls == "starttls":
                more |= {"tls_context": shown.server_context, "require_starttls": True}
            if auth:
                more |= {
                    "authenticator": _authenticate,
                    "auth_required": True,
                    # aiosmtpd counts STARTTLS alone as TLS.
                    "auth_require_tls": tls == "starttls",
                }
            controller = Controller(inbox, hostname="127.0.0.1", port=inbox.port, ready_timeout=10, **more)
            controller.start()
            stack.callback(controller.stop)
            return inbox

        yield start


StartPeer = Callable[[list[bytes | None]], int]


@pytest.fixture
def scripted_peer() -> Iterator[StartPeer]:
    """A listening socket that answers each line with the next entry of a script; None closes the connection.

    The entry after the one for DATA is given after the content's lone dot. Gives the port.
    """
    with contextlib.ExitStack() as stack:

        def start(script: list[bytes | None]) -> int:
            listener = socket.create_server(("127.0.0.1", 0))
            stack.callback(listener.close)
            thread = threading.Thread(target=_play, args=(listener, list(script)), daemon=True)
            thread.start()
            stack.callback(thread.join, 10)
            return int(listener.getsockname()[1])

        yield start


def _play(listener: socket.socket, script: list[bytes | None]) -> None:
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as lines:
        content = False
        while script:
            answer = script.pop(0)
            if answer is None:
                return
            connection.sendall(answer)
            content = answer.startswith(b"354")
            line = lines.readline()
            while line and content and line != b".\r\n":
                line = lines.readline()
            if not line:
                return
