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
from collections.abc import Callable, Mapping
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
        arguments = ["stdin", "stdout", "-l", self.languages, "--psm", "3", "--dpi", "96"]
        arguments += ["-c", "tessedit_create_tsv=1", "-c", "tessedit_create_txt=0"]
        output = self._run(arguments, picture, self.timeout_seconds if seconds is None else seconds)
        return _of_table(output.decode("utf-8", "replace"))

    def turn(self, picture: bytes, *, seconds: float | None = None) -> int:
        """By how many degrees clockwise the picture must be turned to stand upright; 0 also where that can't be told."""
        arguments = ["stdin", "stdout", "--psm", "0", "--dpi", "96"]
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
        """Run the program in a process group of its own, which is gone when this returns, however it returns."""
        try:
            process = subprocess.Popen(
                [self.program, *arguments],
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=self._before_start,  # noqa: PLW1509  # given by a process with one thread
            )
        except OSError:
            raise NotConfigured("ocr_engine_missing") from None
        with process:
            try:
                _limit(process.pid, timeout_seconds)
                output, _ = process.communicate(data, timeout=max(timeout_seconds, 0.0))
            except subprocess.TimeoutExpired:
                raise PermanentError("ocr_timeout", seconds=timeout_seconds) from None
            finally:
                if process.returncode is None:  # not reaped, so the number is still its own
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            raise PermanentError("ocr_failed", exit_status=process.returncode)
        return output


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
