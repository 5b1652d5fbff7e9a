"""Ends a process this package started, with everything that came out of it.

A process group is not enough: a browser puts its children into groups of their own, a deploy script may call
``setsid``. So the started process carries a marker in its environment, which children inherit, and three nets are
cast: descendants, the session, the marker. Starting processes and reading their output is the callers' part.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time

import psutil

MARKER = "ATLAS_RELEASE_PROCESS"


def new_marker() -> str:
    """A value for the environment variable ``MARKER`` that no other process carries."""
    return secrets.token_hex(16)


def stop_tree(process: subprocess.Popen[bytes], marker: str, *, grace_seconds: float) -> None:
    """TERM to the whole tree, ``grace_seconds`` to comply, KILL to what is left; ``process`` itself is reaped.

    With a grace of 0 the KILL comes at once. Raises nothing: what is already gone is gone.
    """
    if grace_seconds > 0:
        _signal_all(process, marker, signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while time.monotonic() < deadline and _family(process, marker):
            process.poll()
            time.sleep(0.02)
    # A dying parent may still have forked: look again until a look finds nobody.
    for _ in range(100):
        if not _signal_all(process, marker, signal.SIGKILL):
            break
        process.poll()
        time.sleep(0.02)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)


def stop_others(marker: str) -> None:
    """KILL to everyone who carries the marker except this process, again until a look finds nobody."""
    for _ in range(100):
        others = [other for other in psutil.process_iter() if other.pid != os.getpid() and _carries(other, marker)]
        for other in others:
            with contextlib.suppress(psutil.Error):
                other.kill()
        if not any(map(_alive, others)):
            break
        psutil.wait_procs(others, timeout=0.2)


def stop_abandoned(pid: int) -> bool:
    """KILL to a process that a dead owner of ours started in a session of its own, and to all who came out of it.

    False where the pid is nobody's, or another's by now: ours carry the marker.
    """
    try:
        marker = psutil.Process(pid).environ().get(MARKER)
        leads = os.getsid(pid) == pid
    except (psutil.Error, OSError):
        return False
    if not marker or not leads:
        return False
    stop_others(marker)
    return True


def _signal_all(process: subprocess.Popen[bytes], marker: str, number: signal.Signals) -> int:
    family = _family(process, marker)
    for member in family:
        with contextlib.suppress(psutil.Error):
            member.send_signal(number)  # psutil compares start times, so a reused pid is never hit
    return len(family)


def _family(process: subprocess.Popen[bytes], marker: str) -> list[psutil.Process]:
    """Everyone alive who descends from the process, shares its session or carries its marker."""
    found: dict[int, psutil.Process] = {}
    # Once our own child is reaped its pid may be someone else's: then only session and marker count.
    if process.returncode is None:
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(process.pid)
            found = {member.pid: member for member in (root, *root.children(recursive=True))}
    for candidate in psutil.process_iter():
        if candidate.pid not in found and _belongs(candidate, process.pid, marker):
            found[candidate.pid] = candidate
    return [member for member in found.values() if _alive(member)]


def _belongs(candidate: psutil.Process, session: int, marker: str) -> bool:
    try:
        return os.getsid(candidate.pid) == session or _carries(candidate, marker)
    except OSError:
        return False


def _carries(candidate: psutil.Process, marker: str) -> bool:
    try:
        return bool(candidate.environ().get(MARKER) == marker)
    except (psutil.Error, OSError):
        return False


def _alive(member: psutil.Process) -> bool:
    try:
        return bool(member.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
