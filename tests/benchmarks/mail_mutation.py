"""Twenty thousand damaged mails: what crashes, what hangs, what PostgreSQL refuses.

    python -m tests.benchmarks.mail_mutation [COUNT] [SEED]

Each is parsed, and stored by the pipeline's own functions in batches on the embedded PostgreSQL. Prints one table.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.errors import AtlasError
from atlas_pipeline.mailbox import trust
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import Trust, TrustLevel
from atlas_pipeline.store.database import Database
from atlas_pipeline.store.messages import Understanding, store_raw, store_understanding
from atlas_pipeline.store.migrate import migrate
from tests.mail_mutants import mutants, originals

HANG_SECONDS = 2.0


def main(count: int, seed: int) -> None:
    """Parse and store all."""
    crashes = hangs = refused = unparsed = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as folder:
        server = EmbeddedPostgres(Path(folder))
        try:
            url = server.ensure_database("mutants")
            migrate(url)
            db = Database(url)
            for number, raw in enumerate(mutants(count, seed, originals())):
                started = time.monotonic()
                try:
                    mail = parse(raw)
                except Exception as error:  # noqa: BLE001  # what is counted here
                    crashes += 1
                    print(f"mail {number}: {type(error).__name__}")
                    continue
                seconds = time.monotonic() - started
                slowest, hangs = max(slowest, seconds), hangs + (seconds > HANG_SECONDS)
                unparsed += "parser_failed" in mail.remarks
                key = f"20261201-{number:06d}"
                try:
                    with db.transaction() as conn:
                        conn.execute(
                            "insert into atlas.mailbox_ledger (mailbox, uid_validity, uid, message_key, internal_date, size_bytes) "
                            "values ('mutants', 1, %s, %s, now(), %s)",
                            (str(number), key, len(raw)),
                        )
                        store_raw(conn, [(key, raw)])
                        conn.execute("update atlas.messages set fingerprint = %s where message_key = %s", (key, key))
                        found = Understanding(key, mail, Trust(TrustLevel.OTHER, "x"), trust.requester(mail))
                        store_understanding(conn, [found])
                        conn.execute("update atlas.messages set fingerprint = %s where message_key = %s", (key, key))
                except AtlasError as error:
                    duplicate = error.detail.get("sqlstate") == "23505"
                    refused += not duplicate
                    if not duplicate:
                        print(f"mail {number}: {error}")
            db.close()
        finally:
            server.stop()
    print(f"{'mails':>7} {'crashes':>8} {'hangs':>6} {'refused':>8} {'parser_failed':>14} {'slowest s':>10}")
    print(f"{count:>7} {crashes:>8} {hangs:>6} {refused:>8} {unparsed:>14} {slowest:>10.2f}")
    if crashes or hangs or refused:
        raise SystemExit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
