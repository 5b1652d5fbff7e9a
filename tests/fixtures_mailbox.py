"""A real Dovecot on loopback, over TLS, with mailboxes to deliver into; and the public test mails where they lie.

One server serves all tests: each test takes a user of its own (``dovecot.new_user()``).
"""

from __future__ import annotations

import grp
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from urllib.parse import quote

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
auth_mechanisms = plain login
auth_failure_delay = 0
mail_location = maildir:{home}/mail/%u
first_valid_uid = 0
first_valid_gid = 0
default_vsz_limit = 256M
{users}
passdb {{
  driver = static
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


@dataclass
class Dovecot:
    """A running server. ``deliver`` drops a mail the way a delivery agent does."""

    home: Path
    port: int
    plain_port: int
    owner: tuple[int, int]
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


@pytest.fixture(scope="session")
def dovecot() -> Iterator[Dovecot]:
    """Start Dovecot in a folder of its own; mails belong to ``mail`` (or to us, when we are not root)."""
    # Not under pytest's own folder, which is 0700: the mail user has to reach its mailboxes.
    home = Path(tempfile.mkdtemp(prefix="atlas-dovecot-"))
    home.chmod(0o755)
    root = os.geteuid() == 0
    owner = (8, 8) if root else (os.getuid(), os.getgid())
    server = Dovecot(home=home, port=free_port(), plain_port=free_port(), owner=owner)
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
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Return the folder of public test data; skips where there is none."""
    folder = Path(os.environ.get("ATLAS_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
    if not (folder / "manifest.jsonl").is_file():
        pytest.skip("no corpus here")
    return folder
