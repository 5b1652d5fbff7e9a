"""Mails a second from an IMAP server through a line with latency into ``atlas.messages``, beside the bare fetch and parse.

    python -m tests.benchmarks.mail_fetch [MAILS] [--backlog]

All in one run on one machine: a real Dovecot behind a proxy that delays each answer by 20 ms, mails of 20 KB, the embedded
PostgreSQL. ``--backlog`` also lists and takes in 1,000 and 20,000 unread mails in processes of their own and prints their peak
memory. Prints tables; asserts nothing about time.
"""

from __future__ import annotations

import base64
import email
import multiprocessing
import os
import random
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from imapclient import IMAPClient

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.flow import watching
from atlas_pipeline.flow.discovery import discover
from atlas_pipeline.flow.fetching import BATCH_MAILS, fetch
from atlas_pipeline.flow.intake import AtHand
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.mailbox.imap import ImapSource
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.settings import load
from atlas_pipeline.store import claims
from atlas_pipeline.store.migrate import migrate
from tests.fixtures_mailbox import PASSWORD, Dovecot, running_dovecot

LATENCY_SECONDS = 0.020
WORDS = (
    "bonjour",
    "menu",
    "horaires",
    "page",
    "contact",
    "image",
    "merci",
    "vendredi",
    "photo",
    "formulaire",
    "devis",
    "site",
)


def mail(number: int, size: int) -> bytes:
    """A mail of about ``size`` bytes: a text, and a file in base64."""
    chance = random.Random(number)  # noqa: S311  # the same mails each time
    text = "\r\n".join(" ".join(chance.choices(WORDS, k=12)) for _ in range(size // 500))
    encoded = base64.encodebytes(chance.randbytes(size // 2)).decode().replace("\n", "\r\n")
    return (
        f"From: Client {number} <client{number}@example.org>\r\nTo: atlas@example.com\r\nSubject: Demande {number}\r\n"
        f"Message-ID: <bench.{number}@example.org>\r\nDate: Tue, 01 Dec 2026 10:00:00 +0100\r\nMIME-Version: 1.0\r\n"
        f"Content-Type: multipart/mixed; boundary=b{number}\r\n\r\n--b{number}\r\nContent-Type: text/plain; charset=utf-8\r\n\r\n"
        f"{text}\r\n--b{number}\r\nContent-Type: application/pdf\r\nContent-Disposition: attachment; filename=devis{number}.pdf\r\n"
        f"Content-Transfer-Encoding: base64\r\n\r\n{encoded}\r\n--b{number}--\r\n"
    ).encode()


class Slow(multiprocessing.get_context("fork").Process):  # type: ignore[misc]
    """A relay to a server; what the client says is held back for the latency, so that each round trip costs it once.

    A process of its own: its work is the network's and must not count as ours.
    """

    def __init__(self, target: int) -> None:
        super().__init__(daemon=True)
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]

    def run(self) -> None:
        """Serve until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass, args=(client, server, LATENCY_SECONDS), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, 0.0), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, delay: float) -> None:
        with suppress(OSError):
            while chunk := source.recv(262_144):
                time.sleep(delay)
                target.sendall(chunk)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def line(name: str, mails: int, work: Callable[[], object]) -> None:
    """Run the work once and print its line."""
    started, cpu = time.monotonic(), time.process_time()
    work()
    seconds, cpu = time.monotonic() - started, time.process_time() - cpu
    print(f"{name:<44} {mails:>7} {seconds:>9.2f} {mails / seconds:>9.0f} {1000 * cpu / mails:>10.2f}", flush=True)


def bare_fetch(port: int, user: str) -> list[bytes]:
    """The same batches with imapclient alone."""
    with IMAPClient("127.0.0.1", port, ssl=False, timeout=60) as client:
        client.login(user, PASSWORD)
        client.select_folder("INBOX", readonly=True)
        uids = client.search(["UNSEEN"])
        bodies = []
        for start in range(0, len(uids), BATCH_MAILS):
            answers = client.fetch(uids[start : start + BATCH_MAILS], ["BODY.PEEK[]"])
            bodies += [answer[b"BODY[]"] for answer in answers.values()]
    return bodies


def our_fetch(url: str) -> int:
    """Listing and bodies through the mailbox stage, nothing kept."""
    with ImapSource(url, ca_file=None, timeout_seconds=60) as box:
        listing = box.list(above_uid=None)
        return sum(1 for _ in box.fetch({found.uid: found.size for found in listing.mails}))


def take_in(parts: Parts, expected: int) -> int:
    """Ledger, bytes, flags, understanding: in ranges, as the sensor asks for them, until all are in or no more come."""
    count = 0
    while count < expected:
        keys = watching.intake_due(parts, [])
        if not keys:
            discover(parts)
            keys = watching.intake_due(parts, [])
        with parts.db.transaction() as conn:
            claims.lease(conn, keys, run_id="benchmark", seconds=900)
            waiting = conn.execute(
                "select message_key from atlas.mailbox_ledger where message_key = any(%s) and fetched_at is null",
                (keys,),
            ).fetchall()
        if not waiting:
            return count
        if fetch(parts, keys, AtHand(parts, "benchmark").take):
            raise SystemExit("not all was fetched")
        count += len(waiting)
        with parts.db.transaction() as conn:  # what the stages after this one would do
            conn.execute("update atlas.inbox set status = 'closed' where message_key = any(%s)", (keys,))
    return count


@contextmanager
def house(folder: Path, server: EmbeddedPostgres, name: str, url: str) -> Iterator[Parts]:
    """Parts on an empty database and this mailbox."""
    database = server.ensure_database(name)
    migrate(database)
    os.environ.update(ATLAS_HOME=str(folder), ATLAS_DATABASE_URL=database, ATLAS_IMAP_URL=url)
    with opened(load(), database) as parts:
        yield parts


def deliver(dovecot: Dovecot, count: int, size: int) -> str:
    """A user with so many unread mails."""
    user = dovecot.new_user()
    for number in range(count):
        dovecot.deliver(user, mail(number, size))
    return user


def speed(dovecot: Dovecot, server: EmbeddedPostgres, folder: Path, count: int) -> None:
    """The table."""
    user = deliver(dovecot, count, 20_000)
    slow = Slow(dovecot.plain_port)
    slow.start()
    url = dovecot.url(user, plain=True).replace(f":{dovecot.plain_port}/", f":{slow.port}/")
    print(f"{'':<44} {'mails':>7} {'seconds':>9} {'mails/s':>9} {'CPU ms/m':>10}")
    bare_fetch(slow.port, user)  # Dovecot has built its index
    bodies: list[bytes] = []
    line("imapclient alone, batches of 50", count, lambda: bodies.extend(bare_fetch(slow.port, user)))
    line("stdlib email alone", count, lambda: [list(email.message_from_bytes(raw).walk()) for raw in bodies])
    line("mailbox.parse alone", count, lambda: [parse(raw) for raw in bodies])
    line("ImapSource, list and fetch", count, lambda: our_fetch(url))
    with house(folder, server, "speed", url) as parts:
        line("end to end into messages, understood", count, lambda: take_in(parts, count))


def backlog(dovecot: Dovecot, server: EmbeddedPostgres, folder: Path) -> None:
    """Peak memory at two sizes of backlog, and how long a look at the larger one takes."""
    print(f"\n{'backlog':>8} {'first look s':>13} {'all s':>8} {'peak MB':>8}")
    for count in (1_000, 20_000):
        url = dovecot.url(deliver(dovecot, count, 4_000), plain=True)
        with house(folder, server, f"backlog_{count}", url):
            subprocess.run([sys.executable, "-m", "tests.benchmarks.mail_fetch", "--child", str(count)], check=True)


def child(count: int) -> None:
    """One backlog, taken in by a process of its own."""
    settings = load()
    assert settings.database_url is not None
    with opened(settings, settings.database_url.get_secret_value()) as parts:
        started = time.monotonic()
        discover(parts)
        looked = time.monotonic() - started
        taken = take_in(parts, count)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{taken:>8} {looked:>13.2f} {time.monotonic() - started:>8.1f} {peak:>8.0f}", flush=True)
    if taken != count:
        raise SystemExit(f"{count - taken} mails are missing")


def main(arguments: list[str]) -> None:
    """Set up, measure, tear down."""
    if arguments[:1] == ["--child"]:
        child(int(arguments[1]))
        return
    count = next((int(argument) for argument in arguments if argument.isdigit()), 1_000)
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as name, running_dovecot() as dovecot:
        server = EmbeddedPostgres(Path(name) / "pg")
        try:
            speed(dovecot, server, Path(name), count)
            if "--backlog" in arguments:
                backlog(dovecot, server, Path(name))
        finally:
            server.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
