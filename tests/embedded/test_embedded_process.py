"""Ports, locks and the ending of processes, tried on real ones."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from atlas_pipeline.embedded.process import (
    file_lock,
    free_port,
    is_running,
    port_is_free,
    processes_with_marker,
    stop_marked,
    stop_process,
    wait_port,
    wait_until,
)

STUBBORN = "trap '' TERM; while :; do sleep 0.05; done"


def start(script: str, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", script], env={"PATH": os.defpath, **environment})


def test_a_free_port_can_be_listened_on_and_is_then_taken() -> None:
    """Servers of ours choose their port this way."""
    port = free_port()
    assert port_is_free(port)
    with socket.create_server(("127.0.0.1", port)):
        assert not port_is_free(port)
        assert wait_port(port, 1)
    assert not wait_port(port, 0.05)


def test_waiting_ends_when_the_time_is_over() -> None:
    """A server that never comes must not hang its caller."""
    begun = time.monotonic()
    assert not wait_until(lambda: False, 0.1)
    assert time.monotonic() - begun < 1
    assert wait_until(lambda: True, 0)


def test_a_lock_is_exclusive_and_dies_with_its_holder(tmp_path: Path) -> None:
    """A stale lock after kill -9 would keep every later start out."""
    script = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.flock(f,2); print(1,flush=True); time.sleep(60)"
    command = [sys.executable, "-c", script, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with file_lock(tmp_path / "lock", 0.1) as held:
            assert not held
        holder.kill()
    with file_lock(tmp_path / "lock", 1) as held:
        assert held


def test_a_process_that_ignores_term_is_killed_and_reaped() -> None:
    """A program of a client's repository may ignore the polite signal."""
    with start(STUBBORN) as process:
        time.sleep(0.1)
        assert stop_process(process, 0.3)
        assert process.returncode == -signal.SIGKILL
    assert stop_process(process.pid, 0.1)  # gone already


def test_a_zombie_counts_as_gone() -> None:
    """Its parent may never reap it, and nothing can end it any further."""
    process = start("exit 0")
    assert wait_until(lambda: not is_running(process.pid), 2)
    assert stop_process(process.pid, 0.1)
    process.wait()


def test_marked_processes_are_found_and_ended_with_their_children_and_nobody_else() -> None:
    """After a crash the orphans of one run are found by the marker in their environment, and only those."""
    marker = secrets.token_hex(8)
    with start(f"({STUBBORN}) & {STUBBORN}", ATLAS_TEST_MARK=marker) as marked, start("sleep 60") as other:
        assert wait_until(lambda: len(processes_with_marker("ATLAS_TEST_MARK", marker)) >= 2, 2)
        assert other.pid not in processes_with_marker("ATLAS_TEST_MARK", marker)
        assert marked.pid in stop_marked("ATLAS_TEST_MARK", marker, 0.2)
        assert processes_with_marker("ATLAS_TEST_MARK", marker) == []
        assert is_running(other.pid)
        stop_process(other, 1)
