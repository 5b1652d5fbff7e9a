"""The wrapper: how much of an agent's output it passes on, and what it needs for it.

    python -m tests.benchmarks.agent_stream [MEGABYTES]

A child prints MEGABYTES (200) of stream-JSON, in lines as the real program's, into a pseudo-terminal. First a bare ``select`` and
``os.read`` drains it, then the wrapper passes every line to its stdout and to the log, three times each by turns; then the wrapper once
more with five times as much, for its memory. Asserts nothing.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil
from ptyprocess import PtyProcess

import atlas_pipeline

ROOT = Path(atlas_pipeline.__file__).parent.parent
MEGABYTE = 1_000_000


def lines() -> bytes:
    """About a megabyte of events in the proportion of a real session: many small deltas, some tool results, one long answer."""
    delta = {
        "type": "stream_event",
        "event": {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "un mot de réponse " * 4},
        },
        "session_id": "8a1f7b0e-0000-4000-8000-000000000000",
        "parent_tool_use_id": None,
        "uuid": "5b6a7c1d-0000-4000-8000-000000000000",
    }
    result = {
        "type": "user",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_01", "content": "ligne de code\n" * 200}],
        },
        "tool_use_result": {"stdout": "ligne\n" * 100, "stderr": "", "interrupted": False},
        "uuid": "5b6a7c1d-0000-4000-8000-000000000001",
    }
    answer = {"type": "assistant", "message": {"content": [{"type": "text", "text": "Voilà : « é » 🙂 " * 4000}]}}
    block = [delta] * 1000 + [result] * 150 + [answer]
    # The real program leaves other than ASCII as it is.
    return b"".join(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for event in block)


def child(folder: Path, megabytes: int) -> tuple[Path, int]:
    """A program that prints so much and a good result; and how many bytes that is."""
    block = lines()
    closing = b'{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"ok"}\n'
    times = megabytes * MEGABYTE // len(block)
    data = folder / f"{megabytes}.jsonl"
    with data.open("wb") as file:
        for _ in range(times):
            file.write(block)
        file.write(closing)
    program = folder / f"agent-{megabytes}"
    program.write_text(f'#!/bin/sh\nexec cat "{data}"\n')
    program.chmod(0o755)
    return program, times * len(block) + len(closing)


def drained(program: Path) -> float:
    """Seconds that the bare loop needs for the same child."""

    def raw() -> None:
        attributes = termios.tcgetattr(1)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(1, termios.TCSANOW, attributes)

    begun = time.monotonic()
    process = PtyProcess.spawn([str(program)], echo=False, dimensions=(50, 200), preexec_fn=raw)
    while True:
        select.select([process.fd], [], [], 1)
        try:
            if not os.read(process.fd, 65536):
                break
        except OSError:
            break
    process.wait()
    return time.monotonic() - begun


def passed_on(folder: Path, program: Path) -> tuple[float, float, int]:
    """Seconds that the wrapper needs, the megabytes it held at most, and the bytes that came out of it."""
    prompt = folder / "prompt.txt"
    prompt.write_text("?")
    log = folder / "stream.jsonl"
    log.unlink(missing_ok=True)
    flags = {
        "id": "bench",
        "prompt-file": prompt,
        "system-prompt-file": prompt,
        "model": "bench",
        "stream-log": log,
        "add-dir": folder,
        "timeout-sec": 600,
        "agent-bin": program,
        "cwd": folder,
    }
    command = [
        sys.executable,
        "-m",
        "atlas_pipeline.spawn.pty",
        *(f"--{name}={value}" for name, value in flags.items()),
    ]
    begun = time.monotonic()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as wrapper:
        assert wrapper.stdout is not None
        process, held, out, last = psutil.Process(wrapper.pid), 0, 0, b""
        looked = 0.0
        while chunk := os.read(wrapper.stdout.fileno(), 1 << 20):
            out += len(chunk)
            last = (last + chunk)[-2000:]
            if time.monotonic() - looked > 0.2:
                held, looked = max(held, process.memory_info().rss), time.monotonic()
        code = wrapper.wait()
    seconds = time.monotonic() - begun
    ending = json.loads(last.splitlines()[-1])
    assert code == 0, ending
    assert log.stat().st_size == out
    return seconds, held / MEGABYTE, out


def main(megabytes: int) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="atlas-bench-") as name:
        folder = Path(name)
        program, size = child(folder, megabytes)
        bare, ours, memory = [], [], 0.0
        for _ in range(3):
            bare.append(size / drained(program) / MEGABYTE)
            seconds, memory, _out = passed_on(folder, program)
            ours.append(size / seconds / MEGABYTE)
        print(f"bare loop  {statistics.median(bare):7.1f} MB/s  ({', '.join(f'{one:.0f}' for one in bare)})")
        print(f"wrapper    {statistics.median(ours):7.1f} MB/s  ({', '.join(f'{one:.0f}' for one in ours)})")
        print(f"ratio      {statistics.median(ours) / statistics.median(bare):7.2f}")
        program, size = child(folder, megabytes * 5)
        _seconds, larger, _out = passed_on(folder, program)
        print(f"memory     {memory:7.1f} MB for {megabytes} MB, {larger:.1f} MB for {megabytes * 5} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
