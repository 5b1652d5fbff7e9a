"""A real Dovecot on loopback, over TLS, with mailboxes to deliver into; and the public test mails where they lie.

One server serves all tests: each test takes a user of its own (``dovecot.new_user()``).
"""

from __future__ import annotations

import grp
import json
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import parse_qsl, quote

import pytest

PASSWORD = "s3cret/with:odd@signs"

_CONFIG = """
base_dir = {home}/run
state_dir = {home}/state
protocols = imap
listen = 127.0.0.1
log_path = {home}/dovecot.log
ssl = yes
ssl_cert = <{home}/cert.pem
ssl_key = <{home}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login xoauth2
auth_failure_delay = 0
mail_location = maildir:{home}/mail/%u
first_valid_uid = 0
first_valid_gid = 0
default_vsz_limit = 256M
{users}
passdb {{
  driver = oauth2
  mechanisms = xoauth2
  args = {home}/oauth2.conf
}}
passdb {{
  driver = static
  mechanisms = plain login
  args = password={password}
}}
userdb {{
  driver = static
  args = uid={uid} gid={gid} home={home}/mail/%u allow_all_users=yes
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    address = 127.0.0.1
    port = {plain_port}
  }}
  inet_listener imaps {{
    address = 127.0.0.1
    port = {port}
    ssl = yes
  }}
}}
service anvil {{
  chroot =
}}
namespace inbox {{
  inbox = yes
  separator = /
}}
protocol imap {{
  mail_max_userip_connections = 50
}}
"""


class TokenServer(ThreadingHTTPServer):
    """A provider on loopback: a token endpoint (RFC 6749) and the introspection endpoint (RFC 7662) that Dovecot asks.

    ``answers`` are (status, object) to give first at the token endpoint; then each refresh gives a new token. ``asked`` holds
    the forms that came in, ``accepted`` the tokens that are good, and whose they are.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _TokenHandler)
        self.answers: list[tuple[int, object]] = []
        self.asked: list[dict[str, str]] = []
        self.accepted: dict[str, str] = {}
        self.user = ""

    @property
    def token_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    def begin(self, user: str) -> None:
        """Forget the last test; tokens are this user's from now on."""
        self.answers, self.asked, self.accepted, self.user = [], [], {}, user


class _TokenHandler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:  # the library's name
        form = dict(parse_qsl(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()))
        if self.path == "/introspect":
            user = self.server.accepted.get(form.get("token", ""))
            self._say(200, {"active": user is not None, **({"email": user} if user else {})})
            return
        self.server.asked.append(form)
        if self.server.answers:
            self._say(*self.server.answers.pop(0))
            return
        token = f"ya29.{secrets.token_hex(8)}"
        self.server.accepted[token] = self.server.user
        self._say(200, {"access_token": token, "expires_in": 3599, "token_type": "Bearer"})

    def _say(self, status: int, answer: object) -> None:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the library's name
        """Say nothing."""


@dataclass
class Dovecot:
    """A running server. ``deliver`` drops a mail the way a delivery agent does."""

    home: Path
    port: int
    plain_port: int
    owner: tuple[int, int]
    tokens: TokenServer
    host: str = "localhost"
    _names: Iterator[int] = field(default_factory=count)

    @property
    def ca_file(self) -> Path:
        return self.home / "cert.pem"

    def new_user(self) -> str:
        """Return a user that no other test has; its sign must survive the URL."""
        return f"bal{next(self._names)}@ex.org"

    def url(self, user: str, *, password: str = PASSWORD, folder: str = "INBOX", plain: bool = False) -> str:
        """Return what ATLAS_IMAP_URL would hold."""
        scheme, port = ("imap", self.plain_port) if plain else ("imaps", self.port)
        return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{self.host}:{port}/{quote(folder)}"

    def maildir(self, user: str) -> Path:
        """Return the user's folder, made if it is not there yet."""
        folder = self.home / "mail" / user
        for part in ("tmp", "new", "cur"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for path in (folder, *folder.iterdir()):
            os.chown(path, *self.owner)
        return folder

    def deliver(self, user: str, raw: bytes) -> str:
        """Put a mail into ``new`` and return its unique name."""
        folder = self.maildir(user)
        name = f"{time.time_ns()}.M{next(self._names)}.test"
        (folder / "tmp" / name).write_bytes(raw)
        os.chown(folder / "tmp" / name, *self.owner)
        (folder / "tmp" / name).rename(folder / "new" / name)
        return name


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _certificate(home: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _own_user() -> str:
    """Return the settings with which Dovecot runs as whoever starts the tests."""
    user = pwd.getpwuid(os.getuid()).pw_name
    group = grp.getgrgid(os.getgid()).gr_name
    return f"default_internal_user = {user}\ndefault_login_user = {user}\ndefault_internal_group = {group}"


def _wait_for(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(200):
        assert process.poll() is None, "dovecot ended at once"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("dovecot did not listen")


@contextmanager
def running_dovecot() -> Iterator[Dovecot]:
    """Start Dovecot in a folder of its own; mails belong to ``mail`` (or to us, when we are not root)."""
    # Not under pytest's own folder, which is 0700: the mail user has to reach its mailboxes.
    home = Path(tempfile.mkdtemp(prefix="atlas-dovecot-"))
    home.chmod(0o755)
    root = os.geteuid() == 0
    owner = (8, 8) if root else (os.getuid(), os.getgid())
    tokens = TokenServer()
    threading.Thread(target=tokens.serve_forever, daemon=True).start()
    server = Dovecot(home=home, port=free_port(), plain_port=free_port(), owner=owner, tokens=tokens)
    (home / "oauth2.conf").write_text(
        f"introspection_mode = post\nintrospection_url = http://127.0.0.1:{tokens.server_port}/introspect\n"
        "force_introspection = yes\nusername_attribute = email\nactive_attribute = active\nactive_value = true\n"
    )
    _certificate(home)
    (home / "mail").mkdir()
    os.chown(home / "mail", *owner)
    config = _CONFIG.format(
        home=home,
        port=server.port,
        plain_port=server.plain_port,
        uid=owner[0],
        gid=owner[1],
        password=PASSWORD,
        users="" if root else _own_user(),
    )
    (home / "dovecot.conf").write_text(config)
    process = subprocess.Popen(["dovecot", "-F", "-c", str(home / "dovecot.conf")], stderr=subprocess.DEVNULL)
    try:
        _wait_for(process, server.port)
        yield server
    finally:
        process.terminate()
        process.wait(timeout=20)
        tokens.shutdown()
        tokens.server_close()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def dovecot() -> Iterator[Dovecot]:
    """One server for all tests."""
    with running_dovecot() as server:
        yield server


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the folder of public test data; skips where there is none."""
    folder = Path(os.environ.get("ATLAS_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
    if not (folder / "manifest.jsonl").is_file():
        pytest.skip("no corpus here")
    return folder
