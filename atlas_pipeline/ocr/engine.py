"""The tesseract program as a pipe: a picture in, text out. It gets no file name from us, so no picture reaches a disk.

What is fed to it is the business of ``prepare``. A library in between was left out on purpose: the common one writes
picture and text into temporary files and leaves them behind when it is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from atlas_pipeline.errors import NotConfigured, PermanentError

MEMORY_MAX_BYTES = 2 * 1024**3
CHECK_TIMEOUT_SECONDS = 20.0
_PR_SET_PDEATHSIG = 1
_WORD, _CONFIDENCE, _TEXT = "5", 10, 11  # the level of words in tesseract's table, and two of its columns


@dataclass(frozen=True)
class Reading:
    """What was read of one picture. ``confidence``: the program's own, 0 to 100, over the letters; 0 without any."""

    text: str = field(repr=False)
    confidence: float


class Tesseract:
    """The OCR engine. One process an image, one thread a process: more threads took twice the CPU time and longer."""

    def __init__(
        self,
        program: str = "tesseract",
        languages: str = "fra+eng",
        timeout_seconds: float = 20.0,
        *,
        environment: Mapping[str, str] | None = None,
        before_start: Callable[[], None] | None = None,
    ) -> None:
        """``languages`` as tesseract's -l takes them; ``environment`` adds to the bare one the program is given.

        ``before_start`` is called in the program's process before it starts; only for a process with one thread.
        """
        self.program = program
        self.languages = languages
        self.timeout_seconds = timeout_seconds
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
            "OMP_THREAD_LIMIT": "1",
            **{name: os.environ[name] for name in ("TESSDATA_PREFIX", "TMPDIR") if name in os.environ},
            **(environment or {}),
        }
        self._before_start = before_start
        self._checked = False

    def check(self) -> None:
        """Raise NotConfigured when the program or one of the languages is missing.

        Tesseract itself only warns about a missing second language and reads French as if it were English.
        """
        try:
            listed = self._ask("--list-langs").splitlines()[1:]
        except NotConfigured:
            raise
        except PermanentError:
            raise NotConfigured("ocr_engine_failed") from None
        for language in self.languages.split("+"):
            if language not in listed:
                raise NotConfigured("ocr_language_missing", language=language)
        self._checked = True

    def check_once(self) -> None:
        """The same, unless it was found in order before."""
        if not self._checked:
            self.check()

    def version(self) -> str:
        """The program's version, like ``5.3.0``. Raises NotConfigured when it is missing."""
        return self._ask("--version").split("\n", 1)[0].removeprefix("tesseract ").strip()

    def read(self, picture: bytes, *, seconds: float | None = None) -> Reading:
        """The text of one prepared picture; empty when there is none. ``seconds`` bounds it in place of the time-out.

        Raises PermanentError ``ocr_timeout`` or ``ocr_failed``. Whether the languages are there is the business of ``check``.
        """
        # No resolution is given: tesseract's own estimate reads photographs (2.7 % wrong on average, 32.6 % when told 96).
        arguments = ["stdin", "stdout", "-l", self.languages, "--psm", "3"]
        arguments += ["-c", "tessedit_create_tsv=1", "-c", "tessedit_create_txt=0"]
        output = self._run(arguments, picture, self.timeout_seconds if seconds is None else seconds)
        return _of_table(output.decode("utf-8", "replace"))

    def turn(self, picture: bytes, *, seconds: float | None = None) -> int:
        """By how many degrees clockwise the picture must be turned to stand upright; 0 also where that can't be told."""
        arguments = ["stdin", "stdout", "--psm", "0"]
        try:
            said = self._run(arguments, picture, self.timeout_seconds if seconds is None else seconds)
        except PermanentError:
            return 0
        lines = dict(line.partition(": ")[::2] for line in said.decode("utf-8", "replace").splitlines())
        degrees = lines.get("Rotate", "0")
        return int(degrees) if degrees in {"90", "180", "270"} else 0

    def _ask(self, option: str) -> str:
        return self._run([option], b"", CHECK_TIMEOUT_SECONDS).decode("utf-8", "replace")

    def _run(self, arguments: list[str], data: bytes, timeout_seconds: float) -> bytes:
        try:
            status, output = piped(
                [self.program, *arguments],
                data,
                environment=self.environment,
                seconds=max(timeout_seconds, 0.0),
                before_start=self._before_start,
                started=lambda pid: _limit(pid, timeout_seconds),
            )
        except OSError:
            raise NotConfigured("ocr_engine_missing") from None
        except subprocess.TimeoutExpired:
            raise PermanentError("ocr_timeout", seconds=timeout_seconds) from None
        if status != 0:
            raise PermanentError("ocr_failed", exit_status=status)
        return output


def piped(
    command: Sequence[str],
    data: bytes,
    *,
    environment: Mapping[str, str],
    seconds: float,
    before_start: Callable[[], None] | None = None,
    started: Callable[[int], None] | None = None,
) -> tuple[int, bytes]:
    """Run a program over pipes, in a process group of its own that is gone when this returns, however it returns.

    Return its exit status and what it wrote. ``started`` is given its process id. Raises OSError where it can't be started, and
    subprocess.TimeoutExpired.
    """
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=before_start,  # noqa: PLW1509  # given by a process with one thread
    ) as process:
        try:
            if started is not None:
                started(process.pid)
            output, _ = process.communicate(data, timeout=seconds)
        finally:
            if process.returncode is None:  # not reaped, so the number is still its own
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, output


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, by kill -9 too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _of_table(table: str) -> Reading:
    """Put lines and paragraphs together from tesseract's table of words, which alone tells how sure it was of each."""
    lines: dict[tuple[str, ...], list[str]] = {}
    letters, sure = 0, 0.0
    for row in table.splitlines()[1:]:
        cells = row.split("\t")
        if len(cells) <= _TEXT or cells[0] != _WORD or not cells[_TEXT].strip():
            continue
        lines.setdefault(tuple(cells[1:5]), []).append(cells[_TEXT])
        letters += len(cells[_TEXT])
        sure += float(cells[_CONFIDENCE]) * len(cells[_TEXT])
    text, before = "", None
    for place, words in lines.items():
        if before is not None:
            text += "\n" if place[:3] == before else "\n\n"
        text += " ".join(words)
        before = place[:3]
    return Reading(text, sure / letters if letters else 0.0)


def _limit(pid: int, seconds: float) -> None:
    """Bound memory and CPU time by the kernel, which holds even when we are killed and nobody is left to watch."""
    cpu = math.ceil(max(seconds, 0.0)) + 1
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it may be over already, or bounded more tightly
        resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
        resource.prlimit(pid, resource.RLIMIT_CPU, (cpu, cpu))
