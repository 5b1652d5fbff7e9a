"""The tesseract program as a pipe: a PNG in, text out. It gets no file name from us, so no picture reaches a disk.

What is fed to it is the business of ``prepare``. A library in between was left out on purpose: the common one writes
picture and text into temporary files and leaves them behind when it is killed.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import subprocess
from collections.abc import Mapping

from atlas_pipeline.errors import NotConfigured, PermanentError

MEMORY_MAX_BYTES = 4 * 1024**3
CHECK_TIMEOUT_SECONDS = 20.0


class Tesseract:
    """The OCR engine. One process an image, one thread a process: more threads took twice the CPU time and longer."""

    def __init__(
        self,
        program: str = "tesseract",
        languages: str = "fra+eng",
        timeout_seconds: float = 20.0,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``languages`` as tesseract's -l takes them; ``environment`` adds to the bare one the program is given."""
        self._program = program
        self._languages = languages
        self._timeout = timeout_seconds
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C.UTF-8",
            "OMP_THREAD_LIMIT": "1",
            **{name: os.environ[name] for name in ("TESSDATA_PREFIX", "TMPDIR") if name in os.environ},
            **(environment or {}),
        }
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
        for language in self._languages.split("+"):
            if language not in listed:
                raise NotConfigured("ocr_language_missing", language=language)
        self._checked = True

    def version(self) -> str:
        """The program's version, like ``5.3.0``. Raises NotConfigured when it is missing."""
        return self._ask("--version").split("\n", 1)[0].removeprefix("tesseract ").strip()

    def read(self, png: bytes) -> str:
        """The text of one prepared image; empty when there is none.

        Raises PermanentError ``ocr_timeout`` or ``ocr_failed``, and NotConfigured as ``check`` does.
        """
        if not self._checked:
            self.check()
        output = self._run(["stdin", "stdout", "-l", self._languages, "--psm", "3", "--dpi", "96"], png, self._timeout)
        return output.decode("utf-8", "replace").replace("\f", "").strip()

    def _ask(self, option: str) -> str:
        return self._run([option], b"", CHECK_TIMEOUT_SECONDS).decode("utf-8", "replace")

    def _run(self, arguments: list[str], data: bytes, timeout_seconds: float) -> bytes:
        """Run the program in a process group of its own, which is gone when this returns, however it returns."""
        try:
            process = subprocess.Popen(
                [self._program, *arguments],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            raise NotConfigured("ocr_engine_missing") from None
        with process:
            try:
                _limit(process.pid, timeout_seconds)
                output, _ = process.communicate(data, timeout=timeout_seconds)
            except subprocess.TimeoutExpired:
                raise PermanentError("ocr_timeout", seconds=timeout_seconds) from None
            finally:
                if process.returncode is None:  # not reaped, so the number is still its own
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode != 0:
            raise PermanentError("ocr_failed", exit_status=process.returncode)
        return output


def _limit(pid: int, seconds: float) -> None:
    """Bound memory and CPU time by the kernel, which holds even when we are killed and nobody is left to watch."""
    cpu = math.ceil(seconds) + 1
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it may be over already
        resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
        resource.prlimit(pid, resource.RLIMIT_CPU, (cpu, cpu))
