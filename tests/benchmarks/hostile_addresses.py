"""100,000 mails and settings made to reach somebody who is not of the team, against a real mail server.

    python -m tests.benchmarks.hostile_addresses [CASES] [SEED]

The cases of ``tests.hostile_addresses``, shared out over two processes with a server each. Prints what became of them; fails
where a server was given a recipient outside the allow-list, naming the case.
"""

from __future__ import annotations

import multiprocessing
import sys
import time

from aiosmtpd.controller import Controller

from atlas_pipeline.recap.send import SmtpExit
from tests.fixtures_recap import Inbox, free_port
from tests.hostile_addresses import Tally, try_all

PROCESSES = 2


def share(count: int, seed: int) -> Tally:
    """One process's cases, with a server of its own."""
    inbox = Inbox(port=free_port())
    controller = Controller(inbox, hostname="127.0.0.1", port=inbox.port, ready_timeout=10, enable_SMTPUTF8=False)
    controller.start()
    try:
        return try_all(count, SmtpExit(f"smtp://127.0.0.1:{inbox.port}", None, 10), inbox.mails, seed)
    finally:
        controller.stop()


def main(arguments: list[str]) -> None:
    """Share out, add up, print."""
    count = int(arguments[0]) if arguments else 100_000
    seed = int(arguments[1]) if len(arguments) > 1 else 8
    started = time.monotonic()
    each = [(count // PROCESSES + (number < count % PROCESSES), seed + 1000 * number) for number in range(PROCESSES)]
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        tallies = pool.starmap(share, each)
    total = Tally(*(sum(values) for values in zip(*(vars(tally).values() for tally in tallies), strict=True)))
    print(f"{total.text}; 0 recipients outside the allow-list; {time.monotonic() - started:.0f} s")
    if total.tried != count or not total.sent:
        raise SystemExit("not every case was tried, or nothing was sent")


if __name__ == "__main__":
    main(sys.argv[1:])
