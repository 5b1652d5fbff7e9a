"""Recaps through a storm: a mail server that fails at every step it can, and senders that are killed in the middle.

    python -m tests.benchmarks.recap_storm [RECAPS] [SEED]

Three sender processes on a real PostgreSQL and a real mail server. The server puts off, refuses, drops the connection before
DATA, in it, after it has taken the mail and after it has said so; the senders get SIGKILL at random, and all at once while a mail is
taken and not yet answered. Time is moved on for what
waits. In the end each recap is sent, and the server has it exactly once; or it is refused, and the server has it not; or it is
uncertain and listed for a person. Then a person settles them all: what came is confirmed, the rest is sent again.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import psycopg
from aiosmtpd.controller import Controller
from psycopg.rows import dict_row
from pydantic import SecretStr

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.flow import recapping
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.recap.facts import facts_to_json
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import outbox
from atlas_pipeline.store.migrate import migrate
from tests.fixtures_recap import FROM, TEAM, free_port, recap_facts

SENDERS = 3
DEAD_SECONDS = 4.0
FATES = {
    "taken": 40,
    "451 at MAIL": 6,
    "450 at RCPT": 6,
    "550 at RCPT": 3,
    "451 after DATA": 8,
    "554 after DATA": 4,
    "dropped before DATA": 8,
    "dropped in DATA": 5,
    "dropped after taking": 5,
    "dropped after the 250": 8,
    "slow": 15,
}

_MESSAGE = """
insert into atlas.mailbox_ledger (mailbox, uid_validity, uid, message_key, internal_date, size_bytes, fetched_at, flagged_at)
values ('storm', 1, %(key)s, %(key)s, now(), 1, now(), now());
"""


@dataclass
class StormyServer:
    """A handler of aiosmtpd with a fate for each mail; ``calm`` takes everything."""

    chance: random.Random
    calm: bool = False
    taken: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    between: int = 0  # mails that are taken and whose senders don't know it yet

    async def handle_MAIL(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        """Called by aiosmtpd."""
        session.fate = "taken" if self.calm else self.chance.choices([*FATES], [*FATES.values()])[0]
        self.fates[session.fate] += 1
        await self._wait(session)
        if session.fate == "451 at MAIL":
            return "451 4.3.0 later"
        envelope.mail_from = address
        return "250 ok"

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        """Called by aiosmtpd."""
        if session.fate == "dropped before DATA":
            server.transport.abort()
        if session.fate in ("450 at RCPT", "550 at RCPT"):
            return f"{session.fate[:3]} no"
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Called by aiosmtpd."""
        await self._wait(session)
        if session.fate == "dropped in DATA":
            server.transport.abort()
            return "451 gone"
        if session.fate in ("451 after DATA", "554 after DATA"):
            return f"{session.fate[:3]} no"
        self.taken[str(message_from_bytes(envelope.original_content)["Message-ID"])] += 1
        self.between += 1
        await self._wait(session)
        self.between -= 1
        if session.fate == "dropped after taking":
            server.transport.abort()
        return "250 taken"

    async def handle_QUIT(self, server: Any, session: Any, envelope: Any) -> str:
        """Called by aiosmtpd."""
        if getattr(session, "fate", "") == "dropped after the 250":
            server.transport.abort()
        return "221 bye"

    async def _wait(self, session: Any) -> None:
        """A window for the killer."""
        if not self.calm:
            await asyncio.sleep(
                self.chance.uniform(0.1, 0.4) if session.fate == "slow" else self.chance.uniform(0, 0.03)
            )


@dataclass(frozen=True)
class Outcome:
    """What a storm left: rows by state, the same once people had settled them, and what happened on the way."""

    first: dict[str, int]
    last: dict[str, int]
    kills: int
    killed_while_sending: int
    fates: dict[str, int]
    problems: list[str]


def work(url: str, port: int, home: str) -> None:
    """One sender, until it is killed."""
    with parts_of(url, port, home) as parts:
        while True:
            recapping.deliver_due(parts)
            time.sleep(0.05)


@contextmanager
def parts_of(url: str, port: int, home: str) -> Iterator[Parts]:
    """A house with this mail server."""
    settings = Settings(
        home=Path(home),
        smtp_url=SecretStr(f"smtp://127.0.0.1:{port}"),
        mail_from=FROM,
        team_domains=(FROM.partition("@")[2],),
        team_recipients=TEAM,
    )
    parts = Parts(settings, url)
    try:
        yield parts
    finally:
        parts.close()


def queue(conn: psycopg.Connection[Any], count: int) -> None:
    """So many recaps of so many messages."""
    for number in range(1, count + 1):
        key = f"20260101-{number:07d}"
        conn.execute(_MESSAGE, {"key": key})
        conn.execute(
            "insert into atlas.messages (message_key, raw, raw_sha256, fingerprint) values (%s, '', '', %s)", (key, key)
        )
        facts = facts_to_json(recap_facts(message_key=key))
        outbox.queue(
            conn, key, round_=1, attempt=1, kind="recap", message_id=f"<recap.{key}@atlas.example>", facts=facts
        )


def storm(url: str, home: Path, count: int, seed: int, *, kills: int) -> Outcome:
    """Queue, send through the storm until nothing waits, then settle as a person would. The database is migrated and empty."""
    server = StormyServer(random.Random(seed))  # noqa: S311  # the same storm each time, as far as processes allow
    controller = Controller(server, hostname="127.0.0.1", port=free_port(), ready_timeout=10, enable_SMTPUTF8=False)
    controller.start()
    try:
        with psycopg.connect(url, autocommit=True, row_factory=dict_row) as conn:
            queue(conn, count)
            done = _weather(conn, server, controller.port, url, str(home), kills)
            dead = conn.execute("select count(*) as n from atlas.notifications where code = 'sender_died'").fetchone()
            first, problems = outbox.counts(conn), _problems(conn, server, count)
            server.calm = True
            _settle(conn, server)
            with parts_of(url, controller.port, str(home)) as parts:
                recapping.deliver_due(parts)
            problems += [f"settled: {problem}" for problem in _problems(conn, server, count)]
            problems += [
                f"settled: {number} are not sent" for number in [count - outbox.counts(conn).get("sent", 0)] if number
            ]
            return Outcome(first, outbox.counts(conn), done, dead["n"] if dead else 0, dict(server.fates), problems)
    finally:
        controller.stop()


def _weather(conn: psycopg.Connection[Any], server: StormyServer, port: int, url: str, home: str, kills: int) -> int:
    """Keep the senders alive, kill them, move time on; the number of kills once nothing waits any more."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["atlas_pipeline.flow.recapping"])
    senders = [_sender(context, url, port, home) for _ in range(SENDERS)]
    done = 0
    try:
        while outbox_is_open(conn):
            time.sleep(server.chance.uniform(0.02, 0.3))
            conn.execute(
                "update atlas.notifications set next_try_at = now() where state = 'pending' and next_try_at > now()"
            )
            # Ten minutes pass for a row that was claimed some seconds ago: its sender is dead, or thought so.
            conn.execute(
                "update atlas.notifications set claimed_at = claimed_at - interval '1 hour' where state = 'sending' "
                "and claimed_at < now() - %s * interval '1 second'",
                (DEAD_SECONDS,),
            )
            if done < kills:
                # One at random; every third time all of them, while a mail is taken and not yet answered.
                cut = done % 3 == 2 and _soon(lambda: server.between > 0)
                places = [*range(SENDERS)] if cut else [server.chance.randrange(SENDERS)]
                for place in places:
                    senders[place].kill()
                for place in places:
                    senders[place].join()
                    senders[place] = _sender(context, url, port, home)
                done += len(places)
    finally:
        for sender in senders:
            sender.kill()
            sender.join()
    return done


def _soon(comes: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 1
    while not comes() and time.monotonic() < deadline:
        time.sleep(0.001)
    return comes()


def _sender(context: ForkServerContext, url: str, port: int, home: str) -> ForkServerProcess:
    sender = context.Process(target=work, args=(url, port, home), daemon=True)
    sender.start()
    return sender


def outbox_is_open(conn: psycopg.Connection[Any]) -> bool:
    """Whether a recap still waits or is being sent."""
    states = outbox.counts(conn)
    return bool(states.get("pending") or states.get("sending"))


def _problems(conn: psycopg.Connection[Any], server: StormyServer, count: int) -> list[str]:
    """Recaps lost or sent twice, and rows that say what is not so."""
    rows = conn.execute("select message_id, state from atlas.notifications").fetchall()
    may = {"sent": {1}, "refused": {0}, "uncertain": {0, 1}}
    problems = [
        f"{row['message_id']} is {row['state']} and arrived {server.taken[row['message_id']]} times"
        for row in rows
        if server.taken[row["message_id"]] not in may.get(row["state"], set())
    ]
    if len(rows) != count or set(server.taken) - {row["message_id"] for row in rows}:
        problems.append(f"{len(rows)} rows of {count}, {len(server.taken)} mails")
    listed = {row["id"] for row in outbox.for_people(conn, count)}
    in_doubt = conn.execute("select id from atlas.notifications where state in ('uncertain', 'refused')").fetchall()
    return problems + [f"{row['id']} is not listed" for row in in_doubt if row["id"] not in listed]


def _settle(conn: psycopg.Connection[Any], server: StormyServer) -> None:
    """As a person does it who looks into the team's mailbox."""
    for row in outbox.for_people(conn, 10_000):
        if server.taken[row["message_id"]]:
            outbox.confirm(conn, row["id"], actor="operator:storm")
        else:
            outbox.ask_again(conn, row["id"], actor="operator:storm")


def main(arguments: list[str]) -> None:
    """A server, a storm, a table."""
    count = int(arguments[0]) if arguments else 300
    seed = int(arguments[1]) if len(arguments) > 1 else 8
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="atlas-storm-") as name:
        postgres = EmbeddedPostgres(Path(name) / "pg")
        try:
            url = postgres.ensure_database("storm")
            migrate(url)
            found = storm(url, Path(name), count, seed, kills=count // 4)
        finally:
            postgres.stop()
    print(f"{count} recaps, {found.kills} senders killed, {found.killed_while_sending} of them while sending")
    for fate, number in sorted(found.fates.items(), key=lambda item: -item[1]):
        print(f"  {fate:<24} {number:>5}")
    print(f"after the storm          {found.first}")
    print(f"settled by a person      {found.last}")
    print(f"lost or twice            {len(found.problems)}   ({time.monotonic() - started:.0f} s)")
    if found.problems:
        raise SystemExit("\n".join(found.problems[:20]))


if __name__ == "__main__":
    main(sys.argv[1:])
