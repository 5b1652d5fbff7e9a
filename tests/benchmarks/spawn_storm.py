"""Agents started while everything around them is killed: is one ever doubled, lost, left running, or badly accounted for?

    python -m tests.benchmarks.spawn_storm [MESSAGES [SEED]]

A house with MESSAGES (130, which makes some two hundred starts) questions and runs of five clients, half of which make
commits. The two sensors' work is done in a loop here; each action run is a process of its own, as Dagster's are. At random
moments one of these is killed with SIGKILL: a run worker, a wrapper, an agent (or a child of its), a session of PostgreSQL.
Heartbeats and the patience with an owner are ten times as fast as in a real house. Prints what came of it, and exits with 1
where something is wrong.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from atlas_pipeline.embedded.standin import program
from atlas_pipeline.embedded.tenant import ensure_demo_tenant
from atlas_pipeline.errors import DatabaseUnavailable
from atlas_pipeline.flow import spawning, watching
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.settings import Settings
from atlas_pipeline.spawn.environment import SPAWN_ID
from atlas_pipeline.spawn.select import Live
from atlas_pipeline.store import tenants
from tests.benchmarks.scars import house
from tests.fixtures_flow import ROOT

CLIENTS = 5
AT_ONCE = 4
BEAT_SECONDS, OWNERLESS_SECONDS, SILENT_SECONDS = 1.0, 4.5, 60.0
KILL_SECONDS = 0.7  # mean time from one kill to the next
LONGEST_SECONDS = 3600.0
EUROS = 100_000.0  # a start that is killed counts with all that it may cost
MODES = ("ok", "ok", "ok", "ok", "orphan", "noise", "max_turns", "slow")
BODY = "Bonjour, le numéro de téléphone du site devient le 05 56 00 12 34. Peux-tu le corriger, ou me dire où il est écrit ?"
WORKER = f"""
import sys
from atlas_pipeline.flow import recapping, releasing, spawning
from atlas_pipeline.flow.parts import from_environment
spawning.HEARTBEAT_SECONDS, spawning.OWNERLESS_SECONDS = {BEAT_SECONDS}, {OWNERLESS_SECONDS}
key, attempt = sys.argv[1], int(sys.argv[2])
with from_environment() as parts:
    spawning.spawn(parts, key, attempt, run_id="storm", was_cancelled=lambda: False)
    releasing.release(parts, key, attempt)
    recapping.recap(parts, key, attempt)
"""
# A second agent in the same work tree finds it taken; what the first leaves running holds it as well.
AGENT = """#!/bin/sh
flock --nonblock --conflict-exit-code 97 "{folder}/$(basename "$PWD").lock" {program} "$@"
code=$?
[ $code = 97 ] && echo "$PWD" >> {folder}/doubled
exit $code
"""
_FILL = """
insert into atlas.mailbox_ledger (mailbox, uid_validity, uid, message_key, internal_date, size_bytes, fetched_at, flagged_at)
select 'storm', 1, n::text, '20260101-' || lpad(n::text, 6, '0'), now(), 1, now(), now() from generate_series(1, %(count)s) n;
insert into atlas.messages (message_key, raw, raw_sha256, fingerprint, from_address, requester_address, subject, body_text, trust_level)
select message_key, '', '', message_key, 'lea@agency.example', 'lea@agency.example', 'Téléphone', %(body)s, 'founder'
from atlas.mailbox_ledger;
insert into atlas.inbox (message_key, status, intent, confidence, model, reasoning, tenant, tenant_method, classified_at)
select message_key, 'classified', (array['question', 'run'])[1 + seq %% 2], 0.9, 'storm', 'Storm.', 'client-' || seq %% %(clients)s, 'domain', now()
from atlas.mailbox_ledger;
"""


@dataclass
class Storm:
    """The house, the runs that are going, and what was killed."""

    parts: Parts
    folder: Path
    dice: random.Random
    runs: dict[str, tuple[subprocess.Popen[bytes], str | None]] = field(default_factory=dict)
    started: int = 0
    killed: Counter[str] = field(default_factory=Counter)

    def fill(self, count: int) -> None:
        """Clients with a repository each, and messages that wait for an agent."""
        with self.parts.db.transaction() as conn:
            for number in range(CLIENTS):
                tenant = ensure_demo_tenant(self.folder / f"client-{number}", 9)
                tenants.upsert(conn, replace(tenant, slug=f"client-{number}", domains=(f"c{number}.example",)))
            for statement in _FILL.strip().split(";\n"):
                conn.execute(statement.encode(), {"count": count, "clients": CLIENTS, "body": BODY})

    def start(self, due: watching.ActionDue) -> None:
        """An action run, as Dagster starts one."""
        environment = {name: os.environ[name] for name in ("PATH", "HOME")} | {
            "ATLAS_DATABASE_URL": self.parts.database_url,
            "ATLAS_HOME": str(self.folder / "home"),
            "ATLAS_AGENT_BIN": str(self.folder / "agent"),
            "ATLAS_OUTBOX_DIR": str(self.folder / "outbox"),
            "ATLAS_TEAM_RECIPIENTS": "team@agency.example",
            "ATLAS_TEAM_DOMAINS": "agency.example",
            "ATLAS_MAIL_FROM": "atlas@agency.example",
            "ATLAS_SPAWN_MAX_LIVE": str(AT_ONCE),
            "ATLAS_SPAWN_QUIET_SECONDS": "0",
            "ATLAS_SPAWN_DAY_BUDGET_EUROS": str(EUROS),
            "ATLAS_STANDIN_MODE": self.dice.choice(MODES),
        }
        command = [sys.executable, "-c", WORKER, due.message_key, str(due.attempt)]
        with (self.folder / "workers.log").open("ab") as log:
            worker = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.runs[due.message_key] = (worker, due.tenant)
        self.started += 1

    def look(self) -> None:
        """What the sensors do: runs that have ended are forgotten, what is due is started."""
        self.runs = {key: run for key, run in self.runs.items() if run[0].poll() is None}
        queued = [Live(key, tenant) for key, (_worker, tenant) in self.runs.items()]
        for ask in (watching.follow_ups, watching.spawns_due):
            for due in ask(self.parts, queued):
                if due.message_key not in self.runs and len(self.runs) < AT_ONCE:
                    self.start(due)
                    queued.append(Live(due.message_key, due.tenant))

    def kill(self) -> None:
        """One victim."""
        kind = self.dice.choice(("worker", "wrapper", "agent", "session"))
        if kind == "session":
            with self.parts.db.transaction() as conn:
                found = conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
                    "and pid <> pg_backend_pid() and backend_type = 'client backend' order by random() limit 1"
                ).fetchall()
            self.killed[kind] += len(found)
            return
        victims = [pid for pid, name in self.processes() if name == kind]
        if victims:
            with suppress(ProcessLookupError):
                os.kill(self.dice.choice(victims), signal.SIGKILL)
                self.killed[kind] += 1

    def processes(self) -> list[tuple[int, str]]:
        """Everything that runs for this house: pid, and what it is."""
        found = [(worker.pid, "worker") for worker, _tenant in self.runs.values() if worker.poll() is None]
        marker = f"{SPAWN_ID}={self.parts.settings.house_id}-".encode()
        for entry in Path("/proc").iterdir():
            with suppress(OSError, psutil.Error):
                if not entry.name.isdigit() or marker not in (entry / "environ").read_bytes():
                    continue
                if psutil.Process(int(entry.name)).status() != psutil.STATUS_ZOMBIE:
                    wrapper = b"atlas_pipeline.spawn.pty" in (entry / "cmdline").read_bytes()
                    found.append((int(entry.name), "wrapper" if wrapper else "agent"))
        return found

    def left(self) -> int:
        """Messages that are not at an end."""
        with self.parts.db.transaction() as conn:
            row = conn.execute("select count(*) as n from atlas.inbox where status not in ('actioned', 'escalated')")
            return int(row.fetchall()[0]["n"])

    def faults(self) -> dict[str, int]:
        """What must all be nought."""
        doubled = self.folder / "locks" / "doubled"
        queries = {
            "messages not at an end": "select count(*) as n from atlas.inbox where status not in ('actioned', 'escalated')",
            "starts still live": "select count(*) as n from atlas.spawns where status in ('claimed', 'running')",
            "attempts with two good starts": "select count(*) as n from (select from atlas.spawns where status = 'ok' "
            "group by message_key, round, attempt having count(*) > 1) twice",
            "starts without their line of audit": "select count(*) as n from atlas.spawns s where 1 <> (select count(*) "
            "from atlas.audit_log a where a.action = 'spawn_started' and a.message_key = s.message_key and (a.detail->>'spawn')::int = s.id)",
            "starts without an end in the audit": "select count(*) as n from (select message_key, count(*) as starts "
            "from atlas.spawns group by 1) s where starts <> (select count(*) from atlas.audit_log a "
            "where a.message_key = s.message_key and a.action in ('spawn_completed', 'spawn_failed'))",
            "starts without an end": "select count(*) as n from atlas.spawns where ended_at is null or code is null",
            "starts with gaps in their events": "select count(*) as n from (select from atlas.spawn_event_log group by spawn_id "
            "having min(seq) <> 1 or max(seq) <> count(*)) gaps",
            "ends without exactly one recap": "select count(*) as n from atlas.inbox i where 1 <> (select count(*) "
            "from atlas.notifications m where m.message_key = i.message_key)",
            "ends without a line of audit": "select count(*) as n from atlas.inbox i where i.status in ('actioned', 'escalated') "
            "and not exists (select from atlas.audit_log a where a.message_key = i.message_key and "
            "(a.action = i.status or a.detail->>'code' = i.reason_code))",
        }
        with self.parts.db.transaction() as conn:
            found = {name: int(conn.execute(query.encode()).fetchall()[0]["n"]) for name, query in queries.items()}
        found["agents beside another one"] = len(doubled.read_text().splitlines()) if doubled.exists() else 0
        found["processes left"] = len(self.processes())
        return found


def storm(parts: Parts, folder: Path, count: int, seed: int) -> bool:
    """Run it to its end; whether all was well."""
    state = Storm(parts, folder, random.Random(seed))  # noqa: S311  # a storm that can be had again
    state.fill(count)
    begun = time.monotonic()
    next_kill, next_guard = begun + 2, begun + 5
    while state.left() and time.monotonic() - begun < LONGEST_SECONDS:
        with suppress(DatabaseUnavailable):  # our own session was the victim
            state.look()
            if time.monotonic() >= next_guard:
                watching.guard_locks(parts)
                next_guard = time.monotonic() + 5
        if time.monotonic() >= next_kill:
            state.kill()
            next_kill = time.monotonic() + state.dice.expovariate(1 / KILL_SECONDS)
        time.sleep(0.1)
    for worker, _tenant in state.runs.values():
        worker.wait(timeout=120)
    time.sleep(OWNERLESS_SECONDS)
    watching.guard_locks(parts)
    return _told(state, time.monotonic() - begun)


def _told(state: Storm, seconds: float) -> bool:
    with state.parts.db.transaction() as conn:
        ends = conn.execute(
            "select status, coalesce(reason_code, '') as code, count(*) as n from atlas.inbox group by 1, 2 order by 3 desc"
        ).fetchall()
        starts = conn.execute(
            "select status, code, count(*) as n from atlas.spawns group by 1, 2 order by 3 desc"
        ).fetchall()
        alarms = conn.execute("select code, count(*) as n from atlas.alerts group by 1 order by 2 desc").fetchall()
    print(f"{state.started} runs and {sum(row['n'] for row in starts)} starts of an agent in {seconds:.0f} s")
    print("killed:", ", ".join(f"{n} {kind}s" for kind, n in sorted(state.killed.items())))
    print("messages:", ", ".join(f"{row['n']} {row['status']} {row['code']}".strip() for row in ends))
    print("starts:", ", ".join(f"{row['n']} {row['status']} {row['code']}" for row in starts))
    print("alarms:", ", ".join(f"{row['n']} {row['code']}" for row in alarms) or "none")
    faults = state.faults()
    for name, n in faults.items():
        print(f"{n:>6} {name}")
    return not any(faults.values())


def main(argv: list[str]) -> int:
    """The storm; gives the exit code."""
    count = int(argv[0]) if argv else 130
    seed = int(argv[1]) if argv[1:] else 1
    spawning.HEARTBEAT_SECONDS, spawning.OWNERLESS_SECONDS = BEAT_SECONDS, OWNERLESS_SECONDS
    watching.SILENT_SECONDS = SILENT_SECONDS
    with tempfile.TemporaryDirectory(prefix="atlas-storm-") as name, house(Path(name)) as empty:
        folder = Path(name)
        (folder / "locks").mkdir()
        agent = folder / "agent"
        agent.write_text(AGENT.format(folder=folder / "locks", program=program()))
        agent.chmod(0o755)
        settings = Settings(
            home=folder / "home",
            agent_bin=agent,
            spawn_max_live=AT_ONCE,
            spawn_quiet_seconds=0,
            spawn_day_budget_euros=EUROS,
        )
        with opened(settings, empty.database_url) as parts:
            well = storm(parts, folder, count, seed)
        if not well:
            print((folder / "workers.log").read_text()[-4000:])
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
