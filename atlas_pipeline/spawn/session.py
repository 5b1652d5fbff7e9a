"""One run of an agent, seen from the pipeline: start the wrapper, hand events over live, judge the end, leave nothing
running.

The terminal itself is ``pty``'s. What the events are stored in, and what follows from the result, is decided by the
caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

import atlas_pipeline
from atlas_pipeline.errors import PermanentError
from atlas_pipeline.model import Profile, SpawnResult
from atlas_pipeline.spawn.environment import HOOKS, agent_environment
from atlas_pipeline.spawn.events import AgentEvent, normalise
from atlas_pipeline.spawn.outcome import Observed, judge
from atlas_pipeline.spawn.processes import kill, kill_marked

SLICE = 0.25  # seconds; also how old an event gets before it is handed over
BATCH = 100
STOP_GRACE = 8.0  # the wrapper gives its agent 5 s of this

OnEvents = Callable[[list[AgentEvent]], None]
OnStarted = Callable[[int, float], None]


@dataclass(frozen=True)
class AgentSpec:
    """What one run needs. ``work_dir`` belongs to this run alone: stream log, prompt files (removed afterwards),
    result.
    """

    spawn_id: str
    agent_bin: Path
    cwd: Path
    prompt: str = field(repr=False)
    system_prompt: str = field(repr=False)
    model: str
    work_dir: Path
    profile: Profile
    timeout_seconds: float = 2400
    start_timeout_seconds: float = 120
    idle_timeout_seconds: float = 1200
    budget_dollars: float | None = None
    hooks: Mapping[str, str] = field(default_factory=dict, repr=False)  # what its hooks connect with

    @property
    def result_path(self) -> Path:
        """Where the agent must write its contract."""
        return result_path(self.work_dir)

    @property
    def stream_log(self) -> Path:
        """The wrapper's copy of every event."""
        return self.work_dir / "stream.jsonl"


def result_path(work_dir: Path) -> Path:
    """The contract's place in a run's folder: in the only folder beside the work tree that the agent may write to."""
    return work_dir.absolute() / "result" / "result.json"


def run_agent(
    spec: AgentSpec,
    on_events: OnEvents,
    should_stop: Callable[[], bool],
    on_started: OnStarted | None = None,
    environment: Mapping[str, str] | None = None,
) -> SpawnResult:
    """Run one agent to its end; blocks.

    ``on_events`` gets batches of at most 100 events, at most 0.25 s old; ``should_stop`` is asked several times a
    second, and True ends the run as ``cancelled``. ``on_started`` gets the wrapper's pid and start time (epoch
    seconds) for whoever must find it after a crash of ours. ``environment`` (default: ours) is filtered before the
    wrapper sees it. Whatever is raised meanwhile, an interrupt of the run included, passes through after every
    process has been ended.
    """
    started = time.monotonic()
    source = os.environ if environment is None else environment
    observed = Observed()
    spec.work_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    spec.result_path.parent.mkdir(exist_ok=True)
    spec.result_path.unlink(missing_ok=True)
    # A short path: the agent puts sockets there, and those are limited to 107 bytes.
    with (
        tempfile.TemporaryDirectory(prefix="atlas-", ignore_cleanup_errors=True) as scratch,
        _prompt_files(spec) as files,
    ):
        # Our own database variables are not the agent's, whatever role they name.
        given = {name: value for name, value in source.items() if name not in HOOKS}
        variables = agent_environment({**given, "TMPDIR": scratch, **spec.hooks}, spec.spawn_id, spec.profile)
        with (spec.work_dir / "wrapper.err").open("ab") as errors:
            wrapper = _start(spec, files, variables, errors)
        try:
            if on_started is not None:
                on_started(wrapper.pid, psutil.Process(wrapper.pid).create_time())
            cancelled = _follow(wrapper, on_events, should_stop, observed)
        except BaseException:
            _stop(wrapper)
            raise
        finally:
            _end(wrapper, spec.spawn_id)
    return judge(observed, cancelled=cancelled, seconds=time.monotonic() - started)


def _start(
    spec: AgentSpec, files: tuple[Path, Path], environment: dict[str, str], errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    prompt, system_prompt = files
    options = {
        "id": spec.spawn_id,
        "prompt-file": prompt,
        "system-prompt-file": system_prompt,
        "model": spec.model,
        "stream-log": spec.stream_log.absolute(),
        "add-dir": spec.result_path.parent,
        "timeout-sec": spec.timeout_seconds,
        "start-timeout-sec": spec.start_timeout_seconds,
        "idle-timeout-sec": spec.idle_timeout_seconds,
        "agent-bin": spec.agent_bin.absolute(),
        "cwd": spec.cwd.absolute(),
        "profile": spec.profile.value,
        **({} if spec.budget_dollars is None else {"max-budget-usd": spec.budget_dollars}),
    }
    command = [
        sys.executable,
        "-m",
        "atlas_pipeline.spawn.pty",
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    return subprocess.Popen(
        command,
        # `-m` looks for modules in the working folder first: never in the agent's work tree.
        cwd=Path(atlas_pipeline.__file__).parent.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )


def _follow(
    wrapper: subprocess.Popen[bytes], on_events: OnEvents, should_stop: Callable[[], bool], observed: Observed
) -> bool:
    """Pass events on until the wrapper closes its stdout; True when the run was cancelled."""
    batch: list[AgentEvent] = []
    stopped_at: float | None = None
    for event in _events(wrapper):
        if event is not None:
            observed.note(event)
            batch.append(event)
        if batch and (event is None or len(batch) >= BATCH):
            on_events(batch)
            batch = []
        if event is not None:
            continue
        if stopped_at is None and should_stop():
            stopped_at = time.monotonic()
            wrapper.terminate()
        if stopped_at is not None and time.monotonic() - stopped_at > STOP_GRACE:
            break
    if batch:
        on_events(batch)
    return stopped_at is not None


def _events(wrapper: subprocess.Popen[bytes]) -> Iterator[AgentEvent | None]:
    """Events in order, and a None about every slice: time to hand over and to ask whether to stop."""
    if wrapper.stdout is None:
        raise PermanentError("wrapper_without_stdout")
    descriptor = wrapper.stdout.fileno()
    rest: list[bytes] = []
    tools: dict[str, str] = {}
    seq = 0
    pause = time.monotonic() + SLICE
    while True:
        readable, _, _ = select.select([descriptor], [], [], max(0.0, pause - time.monotonic()))
        if readable:
            chunk = os.read(descriptor, 65536)
            if not chunk:
                return
            *ended, last = chunk.split(b"\n")
            for piece in ended:
                line, rest = b"".join([*rest, piece]), []
                obj = _object(line)
                if obj is not None:
                    seq += 1
                    yield normalise(seq, obj, tools)
            rest.append(last)
        if time.monotonic() >= pause:
            pause = time.monotonic() + SLICE
            yield None


def _object(line: bytes) -> dict[str, Any] | None:
    # The wrapper writes nothing but objects; half a line is what a killed wrapper leaves.
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


@contextlib.contextmanager
def _prompt_files(spec: AgentSpec) -> Iterator[tuple[Path, Path]]:
    """Both prompts as files that only we can read, gone afterwards: they hold the mail."""
    files = (spec.work_dir / "prompt.txt", spec.work_dir / "system.txt")
    try:
        for path, text in zip(files, (spec.prompt, spec.system_prompt), strict=True):
            path.unlink(missing_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text.encode("utf-8", "replace"))
        yield files[0].absolute(), files[1].absolute()
    finally:
        for path in files:
            path.unlink(missing_ok=True)


def _stop(wrapper: subprocess.Popen[bytes]) -> None:
    """Ask the wrapper to stop its agent, and wait for as long as that may take."""
    if wrapper.stdout is not None:
        wrapper.stdout.close()
    with contextlib.suppress(ProcessLookupError):
        wrapper.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        wrapper.wait(timeout=STOP_GRACE)


def _end(wrapper: subprocess.Popen[bytes], spawn_id: str) -> None:
    """Whatever happened before: after this nothing of the run is left."""
    if wrapper.stdout is not None:
        wrapper.stdout.close()
    try:
        wrapper.wait(timeout=STOP_GRACE)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = psutil.Process(wrapper.pid)
            kill([*tree.children(recursive=True), tree])
        wrapper.wait()
    finally:
        kill_marked(spawn_id)
