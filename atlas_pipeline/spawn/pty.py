"""The wrapper: one agent in a pseudo-terminal, its events as JSON lines on stdout. A program of its own.

    python -m atlas_pipeline.spawn.pty --id S --prompt-file P --system-prompt-file Y --model sonnet \
        --stream-log L --add-dir D --timeout-sec 2400

Exit codes: 0 the agent ended well, 1 it did not, 2 invalid arguments (also a missing file, folder or agent). The last
line is always a ``node_pty_exit`` event. The reasons for each turn of the loop are in the comments; what a line means
to Atlas is not known here (``events``, ``outcome``).

The terminal is on stdout and stderr, the prompt file on stdin: a prompt typed into a terminal is cut at 4,095 bytes a
line.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import termios
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ptyprocess import PtyProcess

from atlas_pipeline.errors import AtlasError, PermanentError
from atlas_pipeline.model import Profile
from atlas_pipeline.spawn.command import arguments, locate
from atlas_pipeline.spawn.environment import agent_environment
from atlas_pipeline.spawn.lines import LineSplitter, encoded_events, line_of
from atlas_pipeline.spawn.processes import (
    become_subreaper,
    descendants,
    die_with_parent,
    kill,
    kill_descendants,
)
from atlas_pipeline.spawn.relay import SLICE, Ending, Output

GRACE = 5.0  # the agent needs 1.3-1.7 s to end its tools after SIGTERM
DRAIN = 2.0  # how long to read on after the agent's death, where an orphan keeps writing
PENDING_MAX = 32 * 1024 * 1024  # stop reading the agent when the reader of our stdout is this far behind
READ_AT_ONCE = 256 * 1024  # a terminal gives 4,095 bytes a read: as many reads as this are one look


@dataclass
class Limits:
    """Seconds: the whole run, until the first event, and of silence."""

    total: float
    start: float
    idle: float


class Session:
    """One agent from fork to the last reaped child."""

    def __init__(self, process: PtyProcess, output: Output, limits: Limits) -> None:
        self.process, self.output, self.limits = process, output, limits
        self.ending = Ending()
        self.splitter = LineSplitter()
        self.parent = os.getppid()
        self.started = self.heard = time.monotonic()
        self.stop_at: float | None = None  # when SIGTERM was sent
        self.ended_at: float | None = None  # when the agent was seen dead
        self.signalled = False

    def on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """SIGTERM, SIGINT and SIGHUP only leave a note; the loop looks at it every slice."""
        self.signalled = True

    def run(self) -> Ending:
        """Read until the agent has ended, then leave no process behind."""
        while self.step():
            self.keep_time()
        self.take(self.splitter.close())
        self.process.isalive()  # collects the status
        self.ending.exit_status, self.ending.signal = self.process.exitstatus, self.process.signalstatus
        self.ending.log_failed = self.output.log_failed
        self.ending.killed_orphans += kill_descendants(os.getpid())
        self.ending.seconds = time.monotonic() - self.started
        return self.ending

    def step(self) -> bool:
        """One look at the terminal and at our stdout; False at the end of the stream."""
        readers = [self.process.fd] if self.output.size < PENDING_MAX else []
        writers = [self.output.fd] if self.output.pending else []
        dead = self.ended_at is not None  # before the look: last words may arrive between it and the agent's end
        readable, writable, _ = select.select(readers, writers, [], SLICE)
        if writable:
            self.output.push()
        if not self.process.isalive() and self.ended_at is None:
            self.ended_at = time.monotonic()
        if readable:
            chunk, ended = self.read()
            if chunk:
                self.heard = time.monotonic()
                self.take(self.splitter.feed(chunk))
            if ended:
                return self.ended_at is None and self.still_there()
        elif readers and dead and not writable:
            # EIO never comes while a grandchild holds the terminal: silence and a dead agent are the end as well.
            return False
        return self.ended_at is None or time.monotonic() - self.ended_at < DRAIN

    def read(self) -> tuple[bytes, bool]:
        """What is there now, at most ``READ_AT_ONCE``, and whether it was the last."""
        chunks: list[bytes] = []
        size = 0
        try:
            while size < READ_AT_ONCE:
                chunks.append(os.read(self.process.fd, 65536))
                size += len(chunks[-1])
                if not chunks[-1]:
                    return b"".join(chunks), True
        except BlockingIOError:
            pass
        except OSError:  # EIO is how Linux ends a pseudo-terminal
            return b"".join(chunks), True
        return b"".join(chunks), False

    def still_there(self) -> bool:
        """The agent closed its terminal without ending: wait a slice, the clocks go on."""
        time.sleep(SLICE / 4)
        return bool(self.process.isalive())

    def take(self, lines: list[tuple[bytes, int]]) -> None:
        """Pass lines on as events; the last result decides."""
        passed_on: list[bytes] = []
        for line, length in lines:
            for event, encoded in encoded_events(line, length):
                passed_on.append(encoded)
                if event["type"] == "wrapper_raw":
                    continue
                self.ending.events += 1
                if event["type"] == "result":
                    self.ending.result_seen = True
                    self.ending.result_ok = event.get("subtype") == "success" and event.get("is_error") is False
        if passed_on:
            self.output.write(b"".join(passed_on))

    def keep_time(self) -> None:
        """Clocks, signals, a parent that is gone: any of them stops the agent, and after the grace everything."""
        now = time.monotonic()
        if self.stop_at is None:
            self.ending.timed_out = self.overdue(now)
            self.ending.stopped = self.unwanted()
            if self.ending.timed_out or self.ending.stopped:
                self.stop_at = now
                self.send(signal.SIGTERM)
        elif now - self.stop_at > GRACE and self.ended_at is None:
            own = self.process.pid
            left = descendants(os.getpid())
            self.ending.killed_orphans += kill(process for process in left if process.pid != own)
            self.send(signal.SIGKILL)

    def overdue(self, now: float) -> str | None:
        """Which limit has passed, if any. Silence of a reader of ours is not the agent's."""
        if now - self.started > self.limits.total:
            return "total"
        if self.ending.events == 0 and now - self.started > self.limits.start:
            return "start"
        if now - self.heard > self.limits.idle and self.output.size < PENDING_MAX:
            return "idle"
        return None

    def unwanted(self) -> str | None:
        """Why nobody wants this run any more, if so."""
        if self.signalled:
            return "signal"
        if self.output.broken or os.getppid() != self.parent:
            return "parent_gone"
        return None

    def reader_gone(self) -> Callable[[], bool]:
        """Whether to stop waiting for the reader of the last lines: a reader who is only slow is waited for.

        One who asked us to stop may have stopped reading as well; it gets the grace.
        """
        deadline = time.monotonic() + GRACE

        def gone() -> bool:
            impatient = self.signalled and time.monotonic() > deadline
            return impatient or os.getppid() != self.parent

        return gone

    def send(self, number: int) -> None:
        """Signal the agent itself: on SIGTERM it ends its own tools, each of which has a session of its own."""
        if self.process.isalive():
            os.kill(self.process.pid, number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the wrapper; gives the exit code."""
    try:
        options = _parse(argv)
        session, log = _start(options)
    except AtlasError as error:
        sys.stdout.buffer.write(line_of(Ending(error=error.code).event()))
        sys.stdout.buffer.flush()
        return 2
    with log:
        ending = session.run()
        session.output.write(line_of(ending.event()))
        session.output.finish(session.reader_gone())
    session.process.delayafterclose = 0
    session.process.close()
    return 0 if ending.ok else 1


def _start(options: argparse.Namespace) -> tuple[Session, FileIO]:
    environment = agent_environment(os.environ, options.id, Profile(options.profile))
    program = locate(options.agent_bin, os.environ)
    vector = arguments(
        program,
        model=options.model,
        system_prompt_file=options.system_prompt_file.absolute(),
        add_dirs=[folder.absolute() for folder in options.add_dir],
        profile=Profile(options.profile),
        budget_dollars=options.max_budget_usd,
    )
    log = _open_log(options.stream_log)
    become_subreaper()
    process = _spawn(vector, environment, options.cwd, options.prompt_file, log)
    limits = Limits(options.timeout_sec, options.start_timeout_sec, options.idle_timeout_sec)
    os.set_blocking(process.fd, False)
    session = Session(process, Output.to_stdout(log), limits)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, session.on_signal)
    return session, log


def _spawn(vector: list[str], environment: dict[str, str], cwd: Path | None, prompt: Path, log: FileIO) -> PtyProcess:
    wrapper = os.getpid()
    try:
        stdin = os.open(prompt, os.O_RDONLY)
    except OSError:
        raise PermanentError("prompt_file_missing") from None

    def before_exec() -> None:
        # Runs between fork and exec; what it raises, ptyprocess reports. OPOST off: no "\r\n". The prompt takes the
        # terminal's place on stdin.
        attributes = termios.tcgetattr(1)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(1, termios.TCSANOW, attributes)
        os.dup2(stdin, 0)
        os.close(stdin)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and that would be inherited
        die_with_parent(signal.SIGTERM)
        if os.getppid() != wrapper:  # died before the line above
            os._exit(1)
        if cwd is not None:
            os.chdir(cwd)  # here, and not by ptyprocess, which lets an exception escape into the forked copy of us

    try:
        return PtyProcess.spawn(
            vector,
            env=environment,
            echo=False,
            dimensions=(50, 200),
            preexec_fn=before_exec,
            pass_fds=(stdin,),
        )
    except Exception:  # noqa: BLE001 - ptyprocess raises the bare class for what the child could not say
        log.close()
        raise PermanentError("agent_not_executable") from None
    finally:
        os.close(stdin)


def _open_log(path: Path) -> FileIO:
    try:
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "ab", 0)
    except OSError:
        raise PermanentError("stream_log_unwritable") from None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Argparse would print usage and quote the argument; the closing event is owed in this case too."""
        del message
        raise PermanentError("invalid_arguments") from None


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="atlas_pipeline.spawn.pty", description="Run one coding agent in a pseudo-terminal.")
    parser.add_argument("--id", required=True, help="spawn identifier; marks every process of the run")
    parser.add_argument("--prompt-file", required=True, type=Path)
    parser.add_argument("--system-prompt-file", required=True, type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--stream-log", required=True, type=Path, help="appended to, one JSON event a line")
    parser.add_argument("--add-dir", required=True, type=Path, action="append", help="may be given more than once")
    parser.add_argument("--timeout-sec", required=True, type=_positive)
    parser.add_argument("--start-timeout-sec", type=_positive, default=120.0, help="until the first event")
    parser.add_argument("--idle-timeout-sec", type=_positive, default=1200.0, help="longest silence")
    parser.add_argument("--max-budget-usd", type=_positive, help="default: without limit")
    parser.add_argument("--agent-bin", help="default: CLAUDE_BIN, then claude on the PATH")
    parser.add_argument("--cwd", type=Path, help="where the agent works")
    parser.add_argument("--profile", choices=[profile.value for profile in Profile], default=Profile.WRITE.value)
    options = parser.parse_args(argv)
    for code, found in (
        ("prompt_file_missing", options.prompt_file.is_file()),
        ("system_prompt_file_missing", options.system_prompt_file.is_file()),
        ("add_dir_missing", all(folder.is_dir() for folder in options.add_dir)),  # the agent ignores it silently
        ("cwd_missing", options.cwd is None or options.cwd.is_dir()),
        ("model_invalid", bool(options.model) and not options.model.startswith("-")),
    ):
        if not found:
            raise PermanentError(code)
    return options


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e7:
        raise ValueError
    return value


if __name__ == "__main__":
    sys.exit(main())
