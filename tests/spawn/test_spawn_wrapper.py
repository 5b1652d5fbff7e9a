"""The wrapper as a program: flags, exit codes, closing event, and no process left after any misbehaviour."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atlas_pipeline.spawn.processes import marked
from tests.fixtures_spawn import Runs

STARTED = 5  # seconds: a limit that no agent meets before it has started and minds signals, on a busy machine either


def finish(wrapper: subprocess.Popen[bytes], timeout: float = 30) -> tuple[int, list[dict[str, Any]]]:
    out, _ = wrapper.communicate(timeout=timeout)
    return wrapper.returncode, [json.loads(line) for line in out.splitlines()]


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_a_good_run_exits_zero_and_closes_with_the_exit_event(runs: Runs) -> None:
    """The contract of the wrapper in one run, the log beside it being the same lines."""
    spec = runs.spec("Hello")
    code, events = finish(runs.wrapper(spec=spec))
    closing = events[-1]
    assert code == 0
    assert {name: closing[name] for name in ("type", "exit_status", "signal", "result_seen", "timed_out")} == {
        "type": "node_pty_exit",
        "exit_status": 0,
        "signal": None,
        "result_seen": True,
        "timed_out": None,
    }
    assert closing["events"] == len([event for event in events[:-1] if event["type"] != "wrapper_raw"]) > 5
    assert closing["killed_orphans"] == 0
    assert [json.loads(line) for line in spec.stream_log.read_text().splitlines()] == events
    assert spec.stream_log.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("mode", "exit_status", "number", "result"),
    [
        ("api_error", 1, None, True),
        ("not_logged_in", 1, None, True),
        ("max_turns", 1, None, True),
        ("die", None, signal.SIGKILL, False),
        ("no_result", 0, None, False),
        ("empty", 0, None, False),
    ],
)
def test_a_bad_run_exits_one(runs: Runs, mode: str, exit_status: int | None, number: int | None, result: bool) -> None:
    """Exit 0 of the agent is not enough, and an agent's own exit code is reported as it was."""
    code, events = finish(runs.wrapper(mode))
    closing = events[-1]
    assert (code, closing["exit_status"], closing["signal"], closing["result_seen"]) == (1, exit_status, number, result)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"prompt-file": "/nonexistent"}, "prompt_file_missing"),
        ({"system-prompt-file": "/nonexistent"}, "system_prompt_file_missing"),
        ({"add-dir": "/nonexistent"}, "add_dir_missing"),
        ({"cwd": "/nonexistent"}, "cwd_missing"),
        ({"agent-bin": "/nonexistent"}, "agent_missing"),
        ({"agent-bin": "/etc/passwd"}, "agent_missing"),
        ({"stream-log": "/nonexistent/x"}, "stream_log_unwritable"),
        ({"timeout-sec": "soon"}, "invalid_arguments"),
        ({"timeout-sec": "-1"}, "invalid_arguments"),
        ({"profile": "root"}, "invalid_arguments"),
        ({"model": ""}, "invalid_arguments"),
        ({"id": "a\nb"}, "spawn_id_invalid"),
        ({"unknown": "x"}, "invalid_arguments"),
    ],
)
def test_invalid_arguments_exit_two_with_a_code(runs: Runs, options: dict[str, str], error: str) -> None:
    """Checked before anything is started; the closing event is owed in this case too."""
    code, events = finish(runs.wrapper(options=options))
    assert code == 2
    assert [(event["type"], event["error"]) for event in events] == [("node_pty_exit", error)]


def test_a_file_that_is_no_program_exits_two(runs: Runs, tmp_path: Path) -> None:
    """Executable, and not: the failed exec inside the terminal comes back as a code."""
    program = tmp_path / "agent"
    program.write_bytes(b"\x00\x01nothing")
    program.chmod(0o755)
    code, events = finish(runs.wrapper(options={"agent-bin": str(program)}))
    assert (code, events[-1]["error"]) == (2, "agent_not_executable")


def test_noise_becomes_raw_events_and_the_result_is_found(runs: Runs) -> None:
    """Escapes, stderr, two objects on a line, bytes that are no text: the run is still a good one."""
    code, events = finish(runs.wrapper("noise"))
    kinds = [event.get("subtype") for event in events]
    assert code == 0
    assert "one" in kinds
    assert "two" in kinds
    raw = [event["text"] for event in events if event["type"] == "wrapper_raw"]
    assert any(text.startswith("red words") for text in raw)
    assert not any("\x1b" in text or "\0" in text for text in raw)
    assert any("U+2028 \u2028 inside" in json.dumps(event, ensure_ascii=False) for event in events)


def test_a_line_of_megabytes_arrives_whole(runs: Runs) -> None:
    """5 MB of two-byte characters through a terminal that hands out 4 kB at a time."""
    code, events = finish(runs.wrapper("big"))
    texts = [event["message"]["content"][0].get("text", "") for event in events if event["type"] == "assistant"]
    assert code == 0
    assert "né" * 1_700_000 in texts


def test_the_prompt_arrives_whole_whatever_it_looks_like(runs: Runs) -> None:
    """200 kB, starting with a dash: neither an argument's limit nor a terminal's line limit is met."""
    spec = runs.spec("--help -p « " + "mot " * 50_000)
    code, events = finish(runs.wrapper(spec=spec))
    result = next(event for event in events if event["type"] == "result")
    assert code == 0
    assert result["usage"]["input_tokens"] == (len(spec.prompt) + len(spec.system_prompt)) // 4


def test_an_orphan_that_holds_the_terminal_is_killed(runs: Runs) -> None:
    """EIO never comes in this case; the run ends all the same, at once, and nothing survives."""
    spec = runs.spec()
    started = time.monotonic()
    code, events = finish(runs.wrapper("orphan", spec=spec))
    assert code == 0
    assert events[-1]["killed_orphans"] == 1
    assert time.monotonic() - started < 8
    assert marked(spec.spawn_id) == []


@pytest.mark.parametrize(
    ("mode", "limit", "timed_out"),
    [
        ("dialog", "start-timeout-sec", "start"),
        ("hang", "idle-timeout-sec", "idle"),
        ("slow", "timeout-sec", "total"),
    ],
)
def test_each_limit_stops_the_agent(runs: Runs, mode: str, limit: str, timed_out: str) -> None:
    """SIGTERM first: the agent ends its own tools. A dialog's words are kept, and no key is sent to it."""
    code, events = finish(runs.wrapper(mode, {limit: str(STARTED)}))
    closing = events[-1]
    assert (code, closing["timed_out"]) == (1, timed_out)
    assert (closing["exit_status"], closing["signal"]) == (143, None)
    if mode == "dialog":
        assert "Quick safety check" in events[0]["text"]


def test_an_agent_deaf_to_sigterm_is_killed_with_its_children(runs: Runs) -> None:
    """After the grace of 5 s; its child has a session of its own, where no signal to a group would reach it."""
    code, events = finish(runs.wrapper("ignore_sigterm", {"timeout-sec": str(STARTED)}))
    closing = events[-1]
    assert (code, closing["timed_out"], closing["signal"]) == (1, "total", signal.SIGKILL)
    assert closing["killed_orphans"] >= 1
    assert 5 < closing["seconds"] - STARTED < 12


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_wrapper_stops_the_agent(runs: Runs, number: int) -> None:
    """Whoever stops the wrapper politely gets a closing event, and no agent is left."""
    spec = runs.spec()
    wrapper = runs.wrapper("slow", spec=spec)
    assert wrapper.stdout is not None
    wrapper.stdout.readline()
    wrapper.send_signal(number)
    code, events = finish(wrapper)
    assert (code, events[-1]["stopped"], events[-1]["exit_status"]) == (1, "signal", 143)
    assert marked(spec.spawn_id) == []


@pytest.mark.parametrize("mode", ["slow", "hang"])
def test_an_agent_ends_when_its_wrapper_is_killed(runs: Runs, mode: str) -> None:
    """SIGKILL can't be caught; the kernel tells the agent."""
    spec = runs.spec()
    wrapper = runs.wrapper(mode, spec=spec)
    assert wrapper.stdout is not None
    wrapper.stdout.readline()
    assert len(marked(spec.spawn_id)) >= 1
    wrapper.kill()
    finish(wrapper)
    assert wait_for(lambda: marked(spec.spawn_id) == [])


def test_the_wrapper_stops_when_nobody_reads_it_any_more(runs: Runs) -> None:
    """A closed pipe is how a dead pipeline looks from below."""
    spec = runs.spec()
    wrapper = runs.wrapper("slow", spec=spec)
    assert wrapper.stdout is not None
    wrapper.stdout.readline()
    wrapper.stdout.close()
    assert wrapper.wait(timeout=15) == 1
    assert marked(spec.spawn_id) == []
    assert json.loads(spec.stream_log.read_text().splitlines()[-1])["stopped"] == "parent_gone"


def test_a_reader_that_does_not_read_does_not_stop_the_clocks(runs: Runs) -> None:
    """5 MB wait for a reader who is busy; the limit of the whole run still holds."""
    spec = runs.spec()
    wrapper = runs.wrapper("slow", {"timeout-sec": "2"}, spec=spec)
    assert wait_for(lambda: spec.stream_log.is_file() and "node_pty_exit" in spec.stream_log.read_text(), 15)
    code, events = finish(wrapper)
    assert (code, events[-1]["timed_out"]) == (1, "total")


def test_the_agent_sees_a_wide_terminal_its_folder_and_no_secret(runs: Runs, tmp_path: Path) -> None:
    """What a program finds when it looks around, and what it must not find."""
    program = tmp_path / "looker"
    program.write_text(
        "#!/bin/sh\nexec 3>&1\n"
        'printf \'{"type":"look","size":"%s","pwd":"%s","flags":"%s"}\\n\' "$(stty size <&3)" "$(pwd)" "$*"\n'
        'env | cut -d= -f1 | sort | tr "\\n" " "\nsleep 0.1\n'
    )
    program.chmod(0o755)
    spec = runs.spec()
    _, events = finish(runs.wrapper(spec=spec, options={"agent-bin": str(program)}))
    look = next(event for event in events if event["type"] == "look")
    assert (look["size"], look["pwd"]) == ("50 200", str(spec.cwd))
    assert look["flags"].startswith("--add-dir=")
    assert spec.prompt not in look["flags"]
    names = next(event["text"] for event in events if event["type"] == "wrapper_raw").split()
    assert {"ATLAS_SPAWN_ID", "TERM", "GIT_AUTHOR_EMAIL", "DISABLE_AUTOUPDATER"} <= set(names)
    assert not {"ATLAS_SMTP_URL", "ATLAS_DATABASE_URL", "MISTRAL_API_KEY"} & set(names)


def test_a_full_log_disk_does_not_end_the_run(runs: Runs) -> None:
    """The reader still gets every event; the closing event says that the log is not whole."""
    code, events = finish(runs.wrapper(options={"stream-log": "/dev/full"}))
    assert (code, events[-1]["log_failed"]) == (0, True)
