"""Processes of a spawn: finding them, and ending every one. Linux only, as are the signals it relies on.

Two ways to find them. From inside, as descendants: the wrapper is a child subreaper, so what the agent leaves behind
comes back to it. From outside, by the marker ``ATLAS_SPAWN_ID`` in their environment: works after the wrapper itself
was killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

from atlas_pipeline.spawn.environment import SPAWN_ID

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make this process the parent of every orphan below it. Raises OSError where the kernel refuses."""
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send ``signal_number`` to this process when its parent ends. Called between fork and exec."""
    _libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def descendants(pid: int) -> list[psutil.Process]:
    """Everything below ``pid`` that still runs; zombies are not counted, they hold nothing."""
    try:
        found = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return [process for process in found if _runs(process)]


def marked(spawn_id: str) -> list[psutil.Process]:
    """Every running process that carries the marker of this spawn, this process left out."""
    marker = f"{SPAWN_ID}={spawn_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if marker in (entry / "environ").read_bytes().split(b"\0"):
                process = psutil.Process(int(entry.name))
                if _runs(process):
                    found.append(process)
    return found


def kill(processes: Iterable[psutil.Process]) -> int:
    """SIGKILL each; gives how many there were. psutil compares start times, so a reused pid is left alone."""
    count = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            count += 1
    return count


def reap_children() -> None:
    """Collect every ended child of this process, so that none stays a zombie."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def kill_descendants(pid: int) -> int:
    """End everything below ``pid``, also what is born meanwhile; gives how many. For the wrapper's own pid."""
    count = 0
    for _ in range(50):
        left = descendants(pid)
        if not left:
            break
        count += kill(left)
        psutil.wait_procs(left, timeout=1)
    reap_children()
    return count


def is_alive(pid: int, started: float) -> bool:
    """Whether the process with this pid and start time (seconds since the epoch) still runs."""
    try:
        process = psutil.Process(pid)
        return abs(process.create_time() - started) < 1.0 and _runs(process)
    except psutil.NoSuchProcess:
        return False


def stop_spawn(spawn_id: str, pid: int | None = None, started: float | None = None, *, grace: float = 8.0) -> int:
    """End a spawn from outside: its wrapper politely (it stops its agent), then whatever carries the marker.

    Gives how many had to be killed. For the one who finds a spawn without a living owner; ``pid`` and ``started`` are
    what ``on_started`` reported. ``grace`` is in seconds and longer than the wrapper's own.
    """
    if pid is not None and started is not None and is_alive(pid, started):
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            process.terminate()
            with contextlib.suppress(psutil.TimeoutExpired):
                process.wait(timeout=grace)
    return kill_marked(spawn_id)


def kill_marked(spawn_id: str) -> int:
    """SIGKILL what carries the marker, again until nothing does; gives how many."""
    count = 0
    deadline = time.monotonic() + 5
    while left := marked(spawn_id):
        count += kill(left)
        psutil.wait_procs(left, timeout=1)
        if time.monotonic() > deadline:
            break
    return count


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
