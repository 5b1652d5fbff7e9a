"""What the wrapper says: lines on stdout and in the stream log, and the closing event. When is decided in ``pty``."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import stat
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO

from atlas_pipeline.spawn.lines import Event

SLICE = 0.2  # seconds between two looks at clocks, parent and signals
PIPE_BYTES = 1 << 20


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
    piece: int = select.PIPE_BUF  # how much a pipe takes for certain once ``select`` said writable
    pending: deque[bytes] = field(default_factory=deque)
    size: int = 0
    broken: bool = False
    log_failed: bool = False

    @classmethod
    def to_stdout(cls, log: FileIO) -> Output:
        """On our stdout: a pipe of our parent's is opened once more, so that it can be made non-blocking for us alone."""
        if not stat.S_ISFIFO(os.fstat(1).st_mode):
            return cls(log)
        try:
            again = os.open("/proc/self/fd/1", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # no /proc: small pieces will do
            return cls(log)
        with contextlib.suppress(OSError):  # a limit of the system's; the pipe stays as small as it was
            fcntl.fcntl(again, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        # Its only writer from here on, so that its end is the end of the stream.
        os.dup2(again, 1, inheritable=False)
        os.close(again)
        return cls(log, piece=PIPE_BYTES)

    def write(self, data: bytes) -> None:
        """Queue whole lines, and put them into the log at once."""
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
        """Write one piece, once ``select`` said writable."""
        data = self.pending.popleft()
        try:
            written = os.write(self.fd, data[: self.piece])
        except BlockingIOError:
            written = 0
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
