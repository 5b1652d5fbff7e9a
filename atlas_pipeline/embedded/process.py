"""Small helpers around processes, ports and locks, for everything Atlas starts itself. Linux only: they read /proc.

No policy lives here: who is started, and when it has to end, is decided by the caller. Processes are ended by id only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

POLL_SECONDS = 0.02


def bare_environment() -> dict[str, str]:
    """The environment for a server of ours: no secret, and no marker by which a run's processes are found and ended."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"}


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free at this moment; it may be taken a moment later, so be ready to retry."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1; connections in TIME_WAIT don't count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_until(predicate: Callable[[], bool], timeout_seconds: float, poll_seconds: float = POLL_SECONDS) -> bool:
    """Ask until ``predicate`` says yes; False when the time is over. It is asked at least once."""
    deadline = time.monotonic() + timeout_seconds
    while not predicate():
        if time.monotonic() >= deadline:
            return False
        time.sleep(poll_seconds)
    return True


def wait_port(port: int, timeout_seconds: float) -> bool:
    """Wait until something accepts connections on this port of 127.0.0.1."""

    def accepts() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    return wait_until(accepts, timeout_seconds)


@contextlib.contextmanager
def file_lock(path: Path, timeout_seconds: float) -> Iterator[bool]:
    """Hold an exclusive flock on ``path``; yields False when another process kept it for the whole time.

    The kernel gives the lock back when its holder dies, so no stale lock is left by kill -9.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)  # close-on-exec: no child of ours inherits the lock

    def take() -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        yield wait_until(take, timeout_seconds)
    finally:
        os.close(handle)


def start_time(pid: int) -> int | None:
    """When a running process started (clock ticks since boot); None when it is gone or a zombie.

    With the pid it names one process for ever. A zombie counts as gone: a container's first process may never reap, and
    kill(pid, 0) then takes the dead for alive.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in {"Z", "X"} else int(fields[19])


def is_running(pid: int) -> bool:
    """Whether the process runs (a zombie doesn't)."""
    return start_time(pid) is not None


def stop_process(
    process: subprocess.Popen[bytes] | int,
    grace_seconds: float,
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGKILL),
) -> bool:
    """Send each signal in turn, waiting ``grace_seconds`` after each, until the process is gone. True when it is.

    A Popen is reaped too. A pid that meanwhile belongs to another process is never signalled.
    """
    pid = process if isinstance(process, int) else process.pid
    born = start_time(pid)
    for number in signals:
        if born is None or start_time(pid) != born:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        wait_until(lambda: start_time(pid) != born, grace_seconds)
    gone = born is None or start_time(pid) != born
    if gone and not isinstance(process, int):
        process.wait()
    return gone


def processes_with_marker(name: str, value: str) -> list[int]:
    """Ids of running processes whose environment at start held ``name=value``; this process is never among them.

    Only processes this user may look into are seen, and one that started with a cleared environment is not.
    """
    wanted = f"{name}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            marked = wanted in (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # gone meanwhile, or another user's
            continue
        pid = int(folder.name)
        if marked and pid != os.getpid() and is_running(pid):
            found.append(pid)
    return sorted(found)


def stop_marked(name: str, value: str, grace_seconds: float) -> list[int]:
    """TERM every process with the marker, KILL what is left, children born meanwhile included; the ids signalled."""
    stopped: set[int] = set()
    for number, wait_seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 1.0), (signal.SIGKILL, 1.0)):
        found = processes_with_marker(name, value)
        for pid in found:
            stopped.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if not found or wait_until(lambda: not processes_with_marker(name, value), wait_seconds):
            break
    return sorted(stopped)
