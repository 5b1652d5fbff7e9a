"""A whole house in one process for tests: a migrated database, a Maildir, clamd, a scripted model, the demo's tenant and agent.

Migrations run once a session, into a template; every test gets a copy of it. Nothing of the pipeline is replaced: what a test
wants to go wrong is made to go wrong on the other side of a socket, in a process of its own, or by a setting.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from pydantic import SecretStr

import atlas_pipeline
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.embedded.standin import program
from atlas_pipeline.embedded.tenant import ensure_demo_tenant, site_command
from atlas_pipeline.flow import intake, recapping, releasing, spawning, teaching
from atlas_pipeline.flow.discovery import discover
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import StageDone, StageFailed
from atlas_pipeline.model import Intent, Status, Tenant
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import spawns, tenants, tracking
from atlas_pipeline.store.migrate import migrate
from tests.fixtures_ai import ScriptedServer, chat
from tests.fixtures_release import wait_until
from tests.fixtures_services import CLAMD_STREAM_MAX_BYTES

ROOT = Path(atlas_pipeline.__file__).parent.parent
ROUTING = (ROOT / "atlas_pipeline" / "ai" / "routing.yaml").read_text("utf-8")
AUTHSERV = "mx.atelier-rivage.example"
REPLAY_TABLES = ("replays", "replay_decisions", "replay_calls")
FOUNDER = "lea.martin@atelier-rivage.example"
TEAM_INBOX = "equipe@atelier-rivage.example"
CLIENT = "claire.lorme@menuiserie-lorme.example"
SLUG = "menuiserie-lorme"
BOTH_FAULTS = (
    "Bonjour Atlas,\n\nSur menuiserie-lorme.example, la page /equipe répond une erreur 500, et sur la page /devis la console du "
    "navigateur montre une erreur JavaScript. Peux-tu corriger les deux pages ?\n\nLéa\n"
)

Report = StageDone | StageFailed
Row = dict[str, Any]
NewDatabase = Callable[[], str]


def never() -> bool:
    """No operator has cancelled."""
    return False


def letter(
    subject: str = "Une question",
    body: str = "Bonjour, une question.\n",
    *,
    sender: str = FOUNDER,
    message_id: str | None = "",
    proven: bool = True,
    attachments: Sequence[tuple[str, bytes, str]] = (),
) -> bytes:
    """A mail as a delivery agent stores it. ``message_id`` "" makes one up, None leaves the header out."""
    mail = EmailMessage(policy=policy.SMTP)
    if proven:
        mail["Authentication-Results"] = f"{AUTHSERV}; dmarc=pass header.from={sender.rsplit('@', 1)[1]}"
    mail["From"], mail["To"], mail["Subject"] = sender, "atlas@atelier-rivage.example", subject
    mail["Date"] = "Tue, 01 Dec 2026 08:00:00 +0100"
    if message_id is not None:
        mail["Message-ID"] = message_id or f"<{secrets.token_hex(8)}@test.example>"
    mail.set_content(body)
    for name, content, kind in attachments:
        main, _, sub = kind.partition("/")
        mail.add_attachment(content, maintype=main, subtype=sub, filename=name)
    return mail.as_bytes()


def put(maildir: Path, raw: bytes, *, at: datetime = datetime(2026, 12, 1, 8, 0, tzinfo=UTC), name: str = "") -> str:
    """Deliver into a Maildir through ``tmp``; the unique name."""
    unique = name or f"{time.time_ns()}.{secrets.token_hex(4)}.test"
    for part in ("tmp", "new", "cur"):
        (maildir / part).mkdir(parents=True, exist_ok=True)
    (maildir / "tmp" / unique).write_bytes(raw)
    os.utime(maildir / "tmp" / unique, (at.timestamp(), at.timestamp()))
    (maildir / "tmp" / unique).rename(maildir / "new" / unique)
    return unique


def seen(maildir: Path) -> set[str]:
    """Unique names of the mails that are flagged as read."""
    return {path.name.partition(":")[0] for path in (maildir / "cur").iterdir() if "S" in path.name.partition(":2,")[2]}


def judged(intent: Intent | str, confidence: float = 0.9, reasoning: str = "Tested.") -> Any:
    """The model's answer to one question."""
    return chat(json.dumps({"intent": str(intent), "confidence": confidence, "reasoning": reasoning}))


@dataclass
class Bench:
    """One house and hands to work it. ``values`` are its settings, also as a worker process would read them."""

    values: dict[str, Any]
    database_url: str
    model: ScriptedServer
    tenant: Tenant
    folder: Path
    parts: Parts = field(init=False)
    made: list[Bench] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.parts = Parts(Settings(**self.values), self.database_url)
        self.made.append(self)

    def close(self) -> None:
        """Close what holds a connection."""
        self.parts.close()

    def again(self, **changes: Any) -> Bench:
        """The same database and folders under other settings."""
        values = {name: value for name, value in {**self.values, **changes}.items() if value is not None}
        return Bench(values, self.database_url, self.model, self.tenant, self.folder, made=self.made)

    @property
    def maildir(self) -> Path:
        """The mailbox."""
        return Path(self.values["maildir"])

    def put(self, raw: bytes, **facts: Any) -> str:
        """Deliver a mail."""
        return put(self.maildir, raw, **facts)

    def discover(self) -> list[str]:
        """One look at the mailbox."""
        return discover(self.parts)

    def intake(self, keys: Sequence[str], run_id: str = "run-1", **facts: Any) -> list[Report]:
        """One intake run over these keys."""
        return list(intake.run(self.parts, keys, run_id=run_id, **facts))

    def take_in(self, raw: bytes, intent: Intent = Intent.QUESTION, **judgement: Any) -> str:
        """Deliver, list and classify one mail as this intent; its key."""
        self.model.script = [judged(intent, **judgement)]
        self.put(raw)
        (key,) = self.discover()
        reports = self.intake([key])
        assert [report for report in reports if isinstance(report, StageFailed)] == []
        return key

    def chantier(self) -> str:
        """A founder's chantier about both faults of the demo's site."""
        return self.take_in(letter("Menuiserie Lorme : deux pages cassées", BOTH_FAULTS), Intent.CHANTIER)

    def spawn(self, key: str, attempt: int = 1, **facts: Any) -> Report:
        """Start the agent as an action run does."""
        return spawning.spawn(self.parts, key, attempt, run_id="run-1", was_cancelled=facts.get("was_cancelled", never))

    def action(self, key: str, attempt: int = 1) -> tuple[Report, StageDone, StageDone]:
        """One whole action run: agent, release, recap."""
        return (
            self.spawn(key, attempt),
            releasing.release(self.parts, key, attempt),
            recapping.recap(self.parts, key, attempt),
        )

    def state(self, key: str) -> tracking.Tracking:
        """The tracking row."""
        with self.parts.db.transaction() as conn:
            return tracking.require(conn, key)

    def status(self, key: str) -> Status:
        """Where the message stands."""
        return self.state(key).status

    def latest(self, key: str, attempt: int = 1, round_: int = 1) -> spawns.Spawn:
        """The newest start of an agent in this attempt."""
        with self.parts.db.transaction() as conn:
            found = spawns.latest(conn, key, round_, attempt)
        assert found is not None
        return found

    def rows(self, query: str, *values: Any) -> list[Row]:
        """What a query gives."""
        with self.parts.db.transaction() as conn:
            return conn.execute(query.encode(), values).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        """The one value that a query gives."""
        (row,) = self.rows(query, *values)
        (value,) = row.values()
        return value

    def change(self, statement: str, *values: Any) -> None:
        """Change rows behind the pipeline's back: time that passes, a tenant that differs."""
        with self.parts.db.transaction() as conn:
            conn.execute(statement.encode(), values)

    def actions(self, key: str) -> list[str]:
        """What was audited of a message, in order."""
        return [
            row["action"]
            for row in self.rows("select action from atlas.audit_log where message_key = %s order by id", key)
        ]

    def codes(self, key: str, action: str) -> list[str]:
        """The codes with which this action was audited."""
        found = self.rows(
            "select detail->>'code' as code from atlas.audit_log where message_key = %s and action = %s order by id",
            key,
            action,
        )
        return [row["code"] for row in found]

    def alarms(self) -> list[str]:
        """Codes of all alarms, oldest first."""
        return [row["code"] for row in self.rows("select code from atlas.alerts order by id")]

    def recaps(self) -> list[EmailMessage]:
        """The mails in the outbox folder."""
        files = sorted(Path(self.values["outbox_dir"]).glob("*.eml"))
        return [message_from_bytes(file.read_bytes(), policy=policy.default) for file in files]

    def later(self, key: str | None = None) -> None:
        """An hour passes for everything that waits: leases, back-offs, a mailbox left alone, heartbeats, mails in the outbox."""
        self.change("update atlas.mailbox_pulse set retry_at = now()")
        self.change("update atlas.mailbox_ledger set not_before = now() - interval '1 second'")
        self.change(
            "update atlas.notifications set next_try_at = now() - interval '1 second', claimed_at = claimed_at - interval '1 hour'"
        )
        self.change("update atlas.spawns set heartbeat_at = heartbeat_at - interval '1 hour'")

    def worker(self, job: str, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Run ``job`` (one of ``JOBS``) in a process of its own, as a run worker does; its reports are lines on stdout."""
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= {"ATLAS_DATABASE_URL": self.database_url, **variables}
        for name, value in self.values.items():
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            text = value.get_secret_value() if isinstance(value, SecretStr) else text
            environment[name if name.isupper() else f"ATLAS_{name.upper()}"] = text
        command = [sys.executable, "-c", JOBS[job], *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def everything(bench: Bench, *without: str) -> dict[str, list[str]]:
    """Every row of every table of ours as the database writes it, but for the tables named."""
    names = bench.rows("select tablename as name from pg_tables where schemaname = 'atlas' order by 1")
    return {
        row["name"]: [str(one["text"]) for one in bench.rows(f"select t::text as text from atlas.{row['name']} t order by 1")]  # noqa: S608
        for row in names
        if row["name"] not in without
    }  # fmt: skip


def tables_with(bench: Bench, word: str) -> set[str]:
    """Tables with a row that holds the word in any column, raw mails looked at as text."""
    found = set()
    for row in bench.rows("select schemaname, tablename from pg_tables where schemaname in ('atlas', 'public')"):
        query = f"select count(*) from {row['schemaname']}.{row['tablename']} t where t::text ilike %s"  # noqa: S608
        if bench.one(query, f"%{word}%"):
            found.add(row["tablename"])
    return found


def _job(work: str) -> str:
    return (
        "import sys\nfrom atlas_pipeline.flow import intake, recapping, releasing, spawning\n"
        f"from atlas_pipeline.flow.parts import from_environment\nwith from_environment() as parts:\n    {work}\n"
    )


JOBS = {
    "intake": _job(
        "for one in intake.run(parts, sys.argv[2:], run_id=sys.argv[1]): print(one.stage, one.key, flush=True)"
    ),
    # Catastrophic backtracking, as a library's pattern shows it: in C, deaf to signals, the interpreter's lock in hand.
    "intake_stuck": _job(
        "import re; from atlas_pipeline.flow import understanding; real = understanding.read_mail\n"
        "    understanding.read_mail = lambda raw, *rest: (b'STUCK' in raw and re.match('(a|a?)+$', 'a' * 64 + 'b')) or real(raw, *rest)\n"
        "    for one in intake.run(parts, sys.argv[2:], run_id=sys.argv[1]): print(one.stage, one.key, flush=True)"
    ),
    "spawn": _job("spawning.spawn(parts, sys.argv[1], int(sys.argv[2]), run_id='worker', was_cancelled=lambda: False)"),
    "release": _job("releasing.release(parts, sys.argv[1], int(sys.argv[2]))"),
    "deliver": _job("recapping.deliver_due(parts)"),
}


def ended(process: subprocess.Popen[bytes], seconds: float = 30.0) -> tuple[int, str]:
    """Wait for a worker; its exit status (minus the signal) and what it said."""
    said, _ = process.communicate(timeout=seconds)
    return process.returncode, said.decode()


@contextmanager
def killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that does not outlive the test."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=20)


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a migrated database with the agents' registry, for others to be copied from."""
    name = "atlas_template"
    url = postgres_server.ensure_database(name)
    migrate(url)
    parts = Parts(Settings(home=tmp_path_factory.mktemp("template")), url)
    teaching.load_agents(parts)
    parts.close()
    return name


# Emptying a database takes a tenth of the time of dropping it and making another.
_EMPTY = """
do $$
declare found record;
begin
    perform pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid();
    set local session_replication_role = replica;
    for found in select tablename from pg_tables where schemaname = 'atlas' and tablename <> 'agents' loop
        execute format('delete from atlas.%I', found.tablename);
    end loop;
    update atlas.agents set spawn_count = 0, error_count = 0 where spawn_count > 0;
    perform setval(format('atlas.%I', sequencename)::regclass, 1, false) from pg_sequences
        where schemaname = 'atlas' and last_value is not null and sequencename <> 'agents_id_seq';
end $$
"""


@pytest.fixture(scope="session")
def emptied_databases() -> list[str]:
    """Names of databases that an earlier test has left, empty again."""
    return []


@pytest.fixture
def new_database(
    postgres_server: EmbeddedPostgres, template_database: str, emptied_databases: list[str]
) -> Iterator[NewDatabase]:
    """Get migrated databases without a row but the agents' registry."""
    names: list[str] = []

    def execute(database: str, statement: sql.SQL | sql.Composed) -> None:
        with psycopg.connect(postgres_server.url(database), autocommit=True) as connection:
            connection.execute(statement)

    def make() -> str:
        if emptied_databases:
            name = emptied_databases.pop()
        else:
            name = f"flow_{secrets.token_hex(6)}"
            create = sql.SQL("create database {} template {}")
            execute("postgres", create.format(sql.Identifier(name), sql.Identifier(template_database)))
        names.append(name)
        return postgres_server.url(name)

    yield make
    for name in names:
        execute(name, sql.SQL(_EMPTY))
        emptied_databases.append(name)


@pytest.fixture
def database_url(new_database: NewDatabase) -> str:
    """The URL of one migrated database."""
    return new_database()


@pytest.fixture
def conn(database_url: str) -> Iterator[psycopg.Connection[Row]]:
    """A connection to it, in autocommit: every statement of the store's functions is a transaction unless a test opens one."""
    with psycopg.connect(database_url, autocommit=True, row_factory=dict_row) as connection:
        yield connection


@pytest.fixture
def bench(tmp_path: Path, database_url: str, clamd: str, ai_server: ScriptedServer) -> Iterator[Bench]:
    """A house on a Maildir, with the demo's tenant (nobody serves its site: see ``site``) and the stand-in agent."""
    tenant = ensure_demo_tenant(tmp_path / "tenant", 9)
    routing = tmp_path / "routing.yaml"
    # One question at a time: the scripted model's answers then belong to the mails in their order.
    routing.write_text(ROUTING.replace("at_once: {mistral: 8", "at_once: {mistral: 1"))
    values = {
        "home": tmp_path / "home",
        "maildir": tmp_path / "maildir",
        "outbox_dir": tmp_path / "outbox",
        "founder_addresses": (FOUNDER,),
        "team_domains": ("atelier-rivage.example",),
        "team_recipients": (TEAM_INBOX,),
        "authserv_ids": (AUTHSERV,),
        "mail_from": "atlas@atelier-rivage.example",
        "clamd": clamd,
        "clamd_stream_max_bytes": CLAMD_STREAM_MAX_BYTES,
        "MISTRAL_API_KEY": "test-key-not-a-secret",
        "mistral_url": ai_server.url,
        "ai_routing": routing,
        "agent_bin": program(),
        "qa_timeout_seconds": 10.0,
    }
    for part in ("tmp", "new", "cur"):
        (tmp_path / "maildir" / part).mkdir(parents=True)
    house = Bench(values, database_url, ai_server, tenant, tmp_path)
    with house.parts.db.transaction() as conn:
        tenants.upsert(conn, tenant)
    yield house
    for one in house.made:
        one.close()


@pytest.fixture
def site(bench: Bench, unused_port: int) -> Iterator[str]:
    """The tenant's deployed site, served on loopback; the topology row names it."""
    root, url = bench.folder / "tenant", f"http://127.0.0.1:{unused_port}"
    bench.tenant = ensure_demo_tenant(root, unused_port)
    with bench.parts.db.transaction() as conn:
        tenants.upsert(conn, bench.tenant)
    process = subprocess.Popen(site_command(root, unused_port), env={"PATH": "/usr/bin:/bin"})
    wait_until(lambda: _listens(unused_port))
    yield url
    process.terminate()
    assert process.wait(timeout=5) == 0


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


# Agents that misbehave in ways the stand-in does not
# ----------------------------------------------------

_AGENT = """#!{python}
import json, os, pathlib, re, subprocess, sys, time

def say(**event):
    print(json.dumps(event), flush=True)

def result_file(**content):
    path.write_text(json.dumps({{"status": "ok", "summary": "Done.", "draft_reply": "", "routes": [], "commits": [], **content}}))

def commit(name, text="x"):
    target = pathlib.Path(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    subprocess.run(["git", "add", "--all"], check=True)
    subprocess.run(["git", "commit", "--quiet", "-m", "A change"], check=True)

def end():
    say(type="result", subtype="success", is_error=False, result="Done", num_turns=1, total_cost_usd=0.25,
        usage={{"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 3}})

prompt = sys.stdin.read()
path = pathlib.Path(re.search(r"^Result file: (.*)$", prompt, re.M).group(1))
say(type="system", subtype="init", session_id="s", model="test", tools=[])
{body}
"""


def write_agent(folder: Path, body: str) -> Path:
    """An agent program that does what ``body`` says, with ``say``, ``commit``, ``result_file`` and ``end`` at hand."""
    file = folder / f"agent-{secrets.token_hex(4)}"
    file.write_text(_AGENT.format(python=sys.executable, body=body))
    file.chmod(0o755)
    return file


# Peers that break in the middle
# ------------------------------


@dataclass
class FakeClamd:
    """Speaks clamd's protocol over a Unix socket and calls everything clean; a mail with ``deadly`` in it kills who sent it."""

    address: str
    deadly: bytes
    killed: list[int] = field(default_factory=list)
    version: bytes = b"ClamAV 1.0.0"
    answers: dict[bytes, bytes] = field(default_factory=dict)  # by a word that the bytes hold


@pytest.fixture
def deadly_clamd(short_folder: Path) -> Iterator[FakeClamd]:
    """A scanner that kills the process that hands it a mail with the word MANGEUR in it, as a bomb of a mail would."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(short_folder / "clamd.sock"))
    listener.listen(8)
    fake = FakeClamd(f"unix:{short_folder}/clamd.sock", b"MANGEUR")
    thread = threading.Thread(target=_serve_clamd, args=(listener, fake), daemon=True)
    thread.start()
    yield fake
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(timeout=5)


def _serve_clamd(listener: socket.socket, fake: FakeClamd) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, connection.makefile("rb") as stream, suppress(OSError):
            command = b"".join(iter(lambda: stream.read(1), b"\0"))
            if command == b"zVERSION":
                connection.sendall(fake.version + b"\0")
                continue
            content = b""
            while size := struct.unpack("!L", stream.read(4))[0]:
                content += stream.read(size)
            if fake.deadly in content:
                pid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
                fake.killed.append(pid)
                os.kill(pid, signal.SIGKILL)
            else:
                said = next((answer for word, answer in fake.answers.items() if word in content), b"stream: OK")
                connection.sendall(said + b"\0")


@dataclass
class Tap:
    """A TCP relay: ``stall_on`` in what the client says holds its words back; the server's are cut after ``cut_after`` bytes."""

    target: int
    port: int = 0
    stall_on: bytes | None = None
    cut_after: int | None = None
    stalled: threading.Event = field(default_factory=threading.Event)
    _sockets: list[socket.socket] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target), timeout=10)
            self._sockets += [client, server]
            for work in (self._upstream, self._downstream):
                threading.Thread(target=work, args=(client, server), daemon=True).start()

    def _upstream(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while chunk := client.recv(65536):
                if self.stall_on is not None and self.stall_on in chunk:
                    self.stalled.set()
                    continue
                server.sendall(chunk)
        self._hang_up(client, server)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        passed = 0
        with suppress(OSError):
            while chunk := server.recv(65536):
                if self.cut_after is not None and passed + len(chunk) > self.cut_after:
                    client.sendall(chunk[: max(0, self.cut_after - passed)])
                    break
                passed += len(chunk)
                client.sendall(chunk)
        self._hang_up(client, server)

    def _hang_up(self, *both: socket.socket) -> None:
        for one in both:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Hang up everywhere."""
        self._hang_up(*self._sockets)
        for one in self._sockets:
            one.close()


@pytest.fixture
def tap() -> Iterator[Callable[[int], Tap]]:
    """Put a relay in front of a port of loopback: ``tap(port)``."""
    started: list[tuple[Tap, socket.socket, threading.Thread]] = []

    def start(port: int) -> Tap:
        listener = socket.create_server(("127.0.0.1", 0))
        relay = Tap(port, port=int(listener.getsockname()[1]))
        thread = threading.Thread(target=relay.serve, args=(listener,), daemon=True)
        thread.start()
        started.append((relay, listener, thread))
        return relay

    yield start
    for relay, listener, thread in started:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=5)
        relay.close()


def failures(reports: Iterable[Report]) -> list[tuple[str, str, str]]:
    """(stage, key, code) of what failed."""
    return [(report.stage, report.key, report.code) for report in reports if isinstance(report, StageFailed)]


def outcomes(reports: Iterable[Report], key: str) -> list[str]:
    """How the stages of one message ended, in order; a failed one as its code."""
    return [
        report.code if isinstance(report, StageFailed) else report.outcome.value
        for report in reports
        if report.key == key
    ]
