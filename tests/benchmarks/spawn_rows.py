"""The rows of a spawn: what the choice of candidates costs with much history behind it, and how fast events are kept.

    python -m tests.benchmarks.spawn_rows [MESSAGES]

A house with 10,000 tracked messages and then with MESSAGES (1,000,000), the same forty of them waiting: the choice, and its plan. Then
100,000 events of an agent, made of lines and stored through the view in the batches of a session. Asserts nothing.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg.rows import dict_row

from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.spawn.events import normalise
from atlas_pipeline.spawn.select import SPAWN_INTENTS
from atlas_pipeline.spawn.session import BATCH
from atlas_pipeline.store import spawns
from atlas_pipeline.store.database import Connection
from tests.benchmarks.scars import house

WAITING = 40
QUIET_SECONDS = 3600

_FILL = """
insert into atlas.mailbox_ledger (mailbox, uid_validity, uid, message_key, internal_date, size_bytes, fetched_at, flagged_at)
select 'bench', 1, n::text, '20260101-' || lpad(n::text, 7, '0'), now(), 1, now(), now()
from generate_series({first}, {last}) n;
insert into atlas.messages (message_key, raw, raw_sha256, fingerprint)
select '20260101-' || lpad(n::text, 7, '0'), '', '', n::text from generate_series({first}, {last}) n;
insert into atlas.inbox (message_key, status, intent)
select '20260101-' || lpad(n::text, 7, '0'), case when n <= {waiting} then 'classified' when n % 2 = 0 then 'closed' else 'actioned' end,
case when n > {waiting} and n % 2 = 0 then 'noise' else 'chantier' end from generate_series({first}, {last}) n;
insert into atlas.audit_log (message_key, action, actor, at)
select '20260101-' || lpad(n::text, 7, '0'), action, 'bench', now() - case when n <= 10 then interval '1 minute' else interval '2 days' end
from generate_series({first}, {last}) n, unnest(array['ingested', 'classified', 'spawn_started', 'spawn_completed']) action;
"""


def choose(conn: Connection) -> int:
    """The query of the spawn cycle."""
    intents = [intent.value for intent in SPAWN_INTENTS]
    return len(spawns.candidates(conn, intents=intents, quiet_seconds=QUIET_SECONDS, limit=100))


def times(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Median and 95th percentile, milliseconds."""
    work()
    seconds = []
    for _ in range(count):
        begun = time.monotonic()
        work()
        seconds.append(1000 * (time.monotonic() - begun))
    return statistics.median(seconds), statistics.quantiles(seconds, n=20)[18]


def selection(parts: Parts, messages: int) -> None:
    """The choice, with little history and with much."""
    with psycopg.connect(parts.database_url, autocommit=True, row_factory=dict_row) as conn:
        there = 0
        for size in (10_000, messages):
            conn.execute(_FILL.format(first=there + 1, last=size, waiting=WAITING))
            there = size
            for table in ("mailbox_ledger", "messages", "inbox", "audit_log"):
                conn.execute(f"vacuum analyze atlas.{table}")
            found = choose(conn)
            median, late = times(lambda: choose(conn), 200)
            print(f"{size:>9} messages tracked: {found} candidates in {median:.2f} ms median, {late:.2f} ms p95")
        conn.execute("load 'auto_explain'")
        conn.execute("set auto_explain.log_min_duration = 0; set auto_explain.log_analyze = on")
        conn.execute("set auto_explain.log_timing = off; set client_min_messages = log")
        conn.add_notice_handler(lambda notice: print(notice.message_primary))
        choose(conn)


def events(parts: Parts, count: int) -> None:
    """Lines as the wrapper passes them on, read, judged and stored."""
    with parts.db.transaction() as conn:
        spawn_id = conn.execute(
            "insert into atlas.spawns (message_key, round, attempt, try, profile, agent, model) "
            "values ('20260101-0000001', 1, 1, 1, 'write', 'backend', 'bench') returning id"
        ).fetchone()
    assert spawn_id is not None
    line = json.dumps(
        {
            "type": "stream_event",
            "event": {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": "un mot " * 10},
            },
            "session_id": "8a1f7b0e-0000-4000-8000-000000000000",
            "uuid": "5b6a7c1d-0000-4000-8000-000000000000",
        }
    ).encode()
    begun = time.monotonic()
    for first in range(0, count, BATCH):
        batch = [normalise(first + number + 1, json.loads(line)) for number in range(BATCH)]
        with parts.db.transaction() as conn:
            spawns.add_events(conn, spawn_id["id"], batch)
    seconds = time.monotonic() - begun
    print(f"{count} events in batches of {BATCH}: {count / seconds:,.0f} a second, read and stored")


def main(messages: int) -> None:
    """Both."""
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder, house(Path(folder)) as parts:
        selection(parts, messages)
        events(parts, 100_000)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
