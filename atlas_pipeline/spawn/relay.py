"""What the wrapper says: lines on stdout and in the stream log, and the closing event. When is decided in ``pty``."""

from __future__ import annotations

import json
import os
import select
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import FileIO

from atlas_pipeline.spawn.lines import Event

SLICE = 0.2  # seconds between two looks at clocks, parent and signals


@dataclass
class Ending:
    """What the closing event says."""

    exit_status: int | None = None
    signal: int | None = None
    seconds: float = 0.0
    events: int = 0
    result_seen: bool = False
    result_ok: bool = False
    timed_out: str | None = None
    stopped: str | None = None
    killed_orphans: int = 0
    log_failed: bool = False
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Exit 0, a last result that is a success, nothing cut short."""
        return self.exit_status == 0 and self.result_ok and self.timed_out is None and self.stopped is None

    def event(self) -> Event:
        """The closing event."""
        facts = {name: value for name, value in vars(self).items() if name != "result_ok"}
        return {"type": "node_pty_exit", "ok": self.ok, **facts, "seconds": round(self.seconds, 3)}


@dataclass
class Output:
    """Our stdout and the stream log. Never blocks: what the reader has not taken yet waits in ``pending``."""

    log: FileIO
    fd: int = 1
    pending: deque[bytes] = field(default_factory=deque)
    size: int = 0
    broken: bool = False
    log_failed: bool = False

    def write(self, events: Sequence[Event]) -> None:
        """Queue events as lines, and put them into the log at once. ASCII, so that a line is a line for everybody."""
        data = b"".join(line_of(event) for event in events)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self.log.write(rest) :]
        except OSError:  # a full disk must not end a run whose events still reach the reader
            self.log_failed = True
        if not self.broken:
            self.pending.append(data)
            self.size += len(data)

    def push(self) -> None:
        """Write one piece, once ``select`` said writable: a pipe then takes PIPE_BUF (4096) bytes for certain."""
        data = self.pending.popleft()
        try:
            written = os.write(self.fd, data[:4096])
        except OSError:  # EPIPE: nobody reads any more; the loop sees `broken` and stops the agent
            self.broken = True
            self.pending.clear()
            self.size = 0
            return
        self.size -= written
        if written < len(data):
            self.pending.appendleft(data[written:])

    def finish(self, give_up: Callable[[], bool]) -> None:
        """Write what is left, for as long as somebody may still read it."""
        while self.pending and not self.broken and not give_up():
            if select.select([], [self.fd], [], SLICE)[1]:
                self.push()


def line_of(event: Event) -> bytes:
    """An event as one line of ASCII JSON."""
    try:
        return json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n"
    except RecursionError:
        return b'{"type":"wrapper_raw","code":"too_deep","bytes":0,"text":""}\n'
