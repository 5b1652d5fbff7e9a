"""Runs seen from the pipeline: live events, judged endings, cancelling, interrupts, nothing left behind."""

from __future__ import annotations

import os
import signal
import socket
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from atlas_pipeline.model import Profile
from atlas_pipeline.spawn.events import AgentEvent
from atlas_pipeline.spawn.processes import is_alive, marked, stop_spawn
from atlas_pipeline.spawn.session import run_agent
from tests.fixtures_flow import write_agent
from tests.fixtures_spawn import Runs


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        ("ok", "ok"),
        ("noise", "ok"),
        ("orphan", "ok"),
        ("api_error", "api_unavailable"),
        ("not_logged_in", "not_logged_in"),
        ("login_line", "not_logged_in"),
        ("max_turns", "agent_error"),
        ("die", "killed_by_signal"),
        ("no_result", "no_result"),
        ("empty", "no_output"),
    ],
)
def test_every_ending_has_its_code(runs: Runs, mode: str, code: str) -> None:
    """Ok needs exit 0, a result that is a success, and nothing cut short; everything else says what it was."""
    result, events = runs.run(mode)
    assert (result.code, result.ok) == (code, code == "ok")
    assert events[-1].type == "node_pty_exit"
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        # An MCP server that failed makes the real program leave with 1 behind a good result.
        ("end(); sys.exit(1)", "agent_error"),
        # Silent for longer than any limit on reading, and then it goes on.
        ("time.sleep(4); end()", "ok"),
        # What a tool prints is no result of the run's.
        ("say(type='user', message={'content': [{'type': 'tool_result', 'content': '{\"type\": \"result\"}'}]})", "no_result"),
        # The last result decides.
        ("end(); say(type='result', subtype='success', is_error=True, result='API Error: 429', api_error_status=429)", "api_unavailable"),
        ("say(type='result', subtype='error_during_execution', is_error=True, result=''); end()", "ok"),
    ],
)  # fmt: skip
def test_a_result_is_weighed_with_the_exit_and_the_last_one_counts(
    runs: Runs, tmp_path: Path, body: str, code: str
) -> None:
    result, _events = runs.run(
        spec=replace(runs.spec(f"Result file: {tmp_path}/r"), agent_bin=write_agent(tmp_path, body))
    )
    assert (result.code, result.ok) == (code, code == "ok")


def test_a_program_that_waits_for_words_on_stdin_gets_none_and_is_no_success(runs: Runs, tmp_path: Path) -> None:
    """It says so and leaves, before it has said what it is: nothing was started."""
    program = tmp_path / "waits"
    program.write_text("#!/bin/sh\necho 'Warning: no stdin data received in 3s, proceeding without it.'\nexit 1\n")
    program.chmod(0o755)
    result, events = runs.run(spec=replace(runs.spec(), agent_bin=program))
    assert (result.code, result.result_seen, events[0].type) == ("no_result", False, "wrapper_raw")


def test_a_server_that_an_agent_left_running_gives_its_port_back(runs: Runs, tmp_path: Path, unused_port: int) -> None:
    """Forked twice, in a session of its own, deaf to every polite signal: the next run finds the port free all the same."""
    server, launcher = tmp_path / "server.py", tmp_path / "launcher.py"
    server.write_text(
        "import signal, socket, time\n[signal.signal(number, signal.SIG_IGN) for number in (1, 2, 15)]\n"
        f"listening = socket.create_server(('127.0.0.1', {unused_port}))\nprint('up', flush=True)\ntime.sleep(600)\n"
    )
    launcher.write_text(
        f"import subprocess, sys\nleft = subprocess.Popen([sys.executable, {str(server)!r}], start_new_session=True, "
        "stdout=subprocess.PIPE)\nassert left.stdout.readline() == b'up\\n'\n"
    )
    body = f"subprocess.run([sys.executable, {str(launcher)!r}], check=True); end()"
    for _ in range(2):
        result, _events = runs.run(
            spec=replace(runs.spec(f"Result file: {tmp_path}/r"), agent_bin=write_agent(tmp_path, body))
        )
        assert result.code == "ok"
    with socket.create_server(("127.0.0.1", unused_port)):
        pass


def test_a_good_run_reports_what_it_cost(runs: Runs) -> None:
    """Taken from the result event."""
    result, _ = runs.run()
    assert result.exit_status == 0
    assert result.result_seen
    assert result.cost_usd == 0.0
    assert (result.tokens_in or 0) > 0
    assert (result.turns or 0) > 0
    assert 0 < result.seconds < 20


def test_a_run_that_was_cut_short_is_never_ok(runs: Runs) -> None:
    """The three limits are the wrapper's; here their code."""
    result, _ = runs.run("hang", replace(runs.spec(), idle_timeout_seconds=1))
    assert (result.code, result.ok) == ("timeout_idle", False)


def test_an_agent_that_is_not_there_has_its_code(runs: Runs) -> None:
    """Nothing was started; it is the setting that must change."""
    result, events = runs.run(spec=replace(runs.spec(), agent_bin=Path("/nonexistent")))
    assert result.code == "agent_missing"
    assert [event.type for event in events] == ["node_pty_exit"]


def test_events_arrive_while_the_agent_works(runs: Runs) -> None:
    """Batches are small and early: somebody watches them live."""
    batches: list[int] = []
    moments: list[float] = []

    def note(events: list[AgentEvent]) -> None:
        batches.append(len(events))
        moments.append(time.monotonic())

    started = time.monotonic()
    run_agent(runs.spec(), note, lambda: time.monotonic() - started > 2, environment=runs.environment("slow"))
    assert len(batches) > 3
    assert max(batches) <= 100
    assert moments[0] - started < 1.5


def test_a_cancelled_run_ends_soon_and_says_so(runs: Runs) -> None:
    """The closing event still arrives, and no process is left."""
    spec = runs.spec()
    started = time.monotonic()
    result, events = runs.run("slow", spec, should_stop=lambda: time.monotonic() - started > 1)
    assert (result.code, result.ok) == ("cancelled", False)
    assert events[-1].type == "node_pty_exit"
    assert time.monotonic() - started < 6
    assert marked(spec.spawn_id) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_whatever_is_raised_passes_through_after_everything_was_stopped(runs: Runs, error: type[BaseException]) -> None:
    """A database that fails while events are stored, an interrupted run: no agent may go on unwatched."""
    spec = runs.spec()

    def fail(_events: list[AgentEvent]) -> None:
        raise error

    with pytest.raises(error):
        run_agent(spec, fail, lambda: False, environment=runs.environment("slow"))
    assert marked(spec.spawn_id) == []


def test_a_real_interrupt_stops_the_agent(runs: Runs) -> None:
    """Ctrl-C reaches this process only: the wrapper has a session of its own."""
    spec = runs.spec()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_agent(spec, lambda _events: None, lambda: False, environment=runs.environment("slow"))
    timer.join()
    assert marked(spec.spawn_id) == []


def test_a_killed_wrapper_is_noticed_and_nothing_is_left(runs: Runs) -> None:
    """Even an agent deaf to SIGTERM: it is found by its marker."""
    spec = runs.spec()
    seen: list[tuple[int, float]] = []

    def kill_once(_events: list[AgentEvent]) -> None:
        os.kill(seen[0][0], signal.SIGKILL)

    result = run_agent(
        spec,
        kill_once,
        lambda: False,
        lambda *facts: seen.append(facts),
        environment=runs.environment("ignore_sigterm"),
    )
    assert result.code == "wrapper_lost"
    assert marked(spec.spawn_id) == []


def test_a_spawn_can_be_stopped_from_outside_by_what_was_reported(runs: Runs) -> None:
    """What the lock guard does with a spawn whose owner is gone."""
    spec = runs.spec()
    seen: list[tuple[int, float]] = []

    def stop(_events: list[AgentEvent]) -> None:
        if seen:
            pid, started = seen.pop()
            assert is_alive(pid, started)
            assert not is_alive(pid, started - 100)
            stopper = threading.Thread(target=stop_spawn, args=(spec.spawn_id, pid, started))
            stopper.start()
            threads.append(stopper)

    threads: list[threading.Thread] = []
    result = run_agent(
        spec, stop, lambda: False, lambda *facts: seen.append(facts), environment=runs.environment("slow")
    )
    for thread in threads:
        thread.join()
    assert result.code == "killed_by_signal"
    assert marked(spec.spawn_id) == []


def test_prompt_files_are_private_and_do_not_outlive_the_run(runs: Runs) -> None:
    """They hold the mail. The log stays, readable by us alone."""
    spec = runs.spec("secret words of a mail")
    modes: list[int] = []

    def look(_events: list[AgentEvent]) -> None:
        modes.extend(stat.S_IMODE(path.stat().st_mode) for path in spec.work_dir.glob("*.txt"))

    run_agent(spec, look, lambda: False, environment=runs.environment("ok"))
    assert modes
    assert set(modes) == {0o600}
    assert list(spec.work_dir.glob("*.txt")) == []
    assert (spec.work_dir / "wrapper.err").read_bytes() == b""
    assert "secret" not in repr(spec)


def test_the_result_of_an_earlier_run_is_not_taken_for_this_one(runs: Runs) -> None:
    """A run that writes nothing leaves nothing."""
    spec = runs.spec()
    spec.result_path.parent.mkdir(parents=True)
    spec.result_path.write_text('{"status": "ok"}')
    runs.run("ok", spec)
    assert not spec.result_path.exists()


def test_the_scratch_folder_of_a_run_is_its_own(runs: Runs, tmp_path: Path) -> None:
    """Two agents at once must not meet in /tmp, and what an agent leaves there goes with it."""
    program = tmp_path / "writer"
    program.write_text(
        '#!/bin/sh\ntouch "$TMPDIR/left"\n'
        'printf \'{"type":"x","folders":["%s","%s"]}\\n\' "$TMPDIR" "$CLAUDE_CODE_TMPDIR"\n'
    )
    program.chmod(0o755)
    _, events = runs.run("ok", replace(runs.spec(), agent_bin=program))
    folders = {Path(folder) for folder in events[0].payload["folders"]}
    assert len(folders) == 1
    assert not folders.pop().exists()


@pytest.mark.parametrize("profile", list(Profile))
def test_every_profile_can_write_its_result_and_only_write_may_touch_the_tree(runs: Runs, profile: Profile) -> None:
    """The result folder is open to all; for the rest the agent's own permissions decide."""
    spec = runs.spec(profile=profile)
    (spec.cwd / "content.json").write_text('{"telephone": "01 02 03 04 05"}')
    prompt = (
        f"Data marker: m\nResult file: {spec.result_path}\nIntent: run\nProfile: write\n"
        "--- data m mail begins ---\nSubject: x\n\nnouveau numéro 06 07 08 09 10\n--- data m mail ends ---\n"
    )
    result, events = runs.run("ok", replace(spec, prompt=prompt))
    changed = "06 07" in (spec.cwd / "content.json").read_text()
    assert spec.result_path.is_file()
    assert changed is (profile is Profile.WRITE)
    assert any(event.type == "system.permission_denied" for event in events) is (result.denials > 0)
    assert (result.denials > 0) is (profile is not Profile.WRITE)
