"""One Chromium for a report: looks at routes as a visitor would. The browser itself runs in ``browser_worker``.

Every look has a hard time limit kept from this side, and nothing survives the ``with`` block: neither processes nor the
browser's temporary files, whatever exception ends it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import RouteCheck
from atlas_pipeline.release.processes import MARKER, new_marker, stop_tree
from atlas_pipeline.release.wording import one_line

LEVEL = "browser"
# The first start after an installation took 8 s on two cores; warm ones 0.3 s.
START_SECONDS = 45.0
# What a look may take beyond the page's own time: questions and a picture at either width, settling.
OVERHEAD_SECONDS = 20.0
CLOSE_SECONDS = 5.0
_PROGRAM = "atlas_pipeline.release.browser_worker"
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
# The browser runs the tenant's scripts: it gets nothing of our environment that it does not need.
_ENVIRONMENT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR"),
    *("FONTCONFIG_PATH", "FONTCONFIG_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)


class BrowserChecker:
    """A context manager around one browser process; entering raises NotConfigured(browser_unavailable).

    ``chromium`` is a program's name or path. Hosts in ``allowed_hosts`` (names without ports) may be asked besides the
    site that is checked; all others are blocked and noted. The certificate authorities in ``ca_file`` (PEM) are trusted
    besides the public ones.
    """

    def __init__(self, chromium: str, *, allowed_hosts: Sequence[str] = (), ca_file: Path | None = None) -> None:
        self._chromium = chromium
        self._allowed_hosts = tuple(allowed_hosts)
        self._ca_file = ca_file
        self._worker: _Worker | None = None

    def __enter__(self) -> Self:
        self._worker = self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop(politely=kind is None)

    def check(self, base_url: str, route: str, *, timeout_seconds: float, screenshot_path: Path | None) -> RouteCheck:
        """Look at one route for at most ``timeout_seconds`` of loading (and 20 s of everything else).

        ``screenshot_path`` is for the picture at the width of a desk; that of a phone lies beside it (``phone_path``).
        Raises nothing for whatever the page does, and NotConfigured(browser_unavailable) when the browser had to be
        started anew and did not start.
        """
        started = time.monotonic()
        order = {
            "base_url": base_url,
            "route": route,
            "timeout_seconds": timeout_seconds,
            "screenshots": _paths(screenshot_path),
            "allowed_hosts": self._allowed_hosts,
        }
        worker, self._worker = self._worker or self._start(), None
        answer = None
        try:
            answer = worker.ask(order, timeout_seconds + OVERHEAD_SECONDS)
        finally:
            # Kept only after an answer: otherwise it may be stuck, or answer this order when asked the next.
            if answer is None or answer["spent"]:
                worker.stop(politely=False)
            else:
                self._worker = worker
        if answer is None:
            # A width can't be changed while a script keeps the page busy, and that call knows no time limit.
            late = time.monotonic() - started >= timeout_seconds + OVERHEAD_SECONDS
            sentence = f"{one_line(route, 120)} " + (
                "stopped answering: a script on it does not come to an end"
                if late
                else "could not be judged: the browser broke down on it"
            )
            answer = {"ok": False, "status": None, "errors": [sentence], "screenshots": {}}
        return RouteCheck(
            route=route,
            level=LEVEL,
            ok=answer["ok"],
            status=answer["status"],
            milliseconds=round((time.monotonic() - started) * 1000),
            errors=tuple(answer["errors"]),
            screenshot=answer["screenshots"].get("desktop"),
            phone_screenshot=answer["screenshots"].get("phone"),
        )

    def probe(self) -> None:
        """Start a browser and end it. Raises NotConfigured(browser_unavailable)."""
        self._start().stop(politely=True)

    def _start(self) -> _Worker:
        executable = shutil.which(self._chromium)
        if executable is None:
            raise NotConfigured("browser_unavailable", reason="program_missing")
        worker = _Worker(executable, self._ca_file)
        hello: dict[str, Any] = {}
        try:
            hello = worker.read(START_SECONDS) or {}
        finally:
            if not hello.get("ready"):
                worker.stop(politely=False)
        if not hello.get("ready"):
            raise NotConfigured("browser_unavailable", reason=str(hello.get("reason", "did_not_start")))
        return worker


def phone_path(screenshot_path: Path) -> Path:
    """Where the picture at the width of a phone lies: beside the other, ``-phone`` in its name."""
    return screenshot_path.with_name(f"{screenshot_path.stem}-phone{screenshot_path.suffix}")


def _paths(screenshot_path: Path | None) -> dict[str, str]:
    if screenshot_path is None:
        return {}
    return {"desktop": str(screenshot_path), "phone": str(phone_path(screenshot_path))}


class _Worker:
    """The child process, spoken to in JSON lines."""

    def __init__(self, executable: str, ca_file: Path | None) -> None:
        self._marker = new_marker()
        self._folder = tempfile.TemporaryDirectory(prefix="atlas-qa-", ignore_cleanup_errors=True)
        self._buffer = b""
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment |= {
            "PYTHONPATH": str(_PACKAGE_PARENT),
            "TMPDIR": self._folder.name,
            # A screenshot would wait for fonts that never come; a picture in another font beats none.
            "PW_TEST_SCREENSHOT_NO_FONTS_READY": "1",
            MARKER: self._marker,
        }
        # -P: the working directory, which may be a tenant's, is no place to import from.
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                _PROGRAM,
                executable,
                self._folder.name,
                str(ca_file.resolve() if ca_file else ""),
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def ask(self, order: dict[str, object], timeout: float) -> dict[str, Any] | None:
        """The answer to an order, or None when none came in time."""
        assert self._process.stdin is not None  # noqa: S101  # asked for with PIPE
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        return self.read(timeout)

    def read(self, timeout: float) -> dict[str, Any] | None:
        """The next line the worker says, or None when it says nothing in time or has ended."""
        assert self._process.stdout is not None  # noqa: S101  # asked for with PIPE
        deadline = time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(self._process.stdout.fileno(), 65_536)
                if not chunk:
                    return None
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self, *, politely: bool) -> None:
        """End the process and all of its browser's; politely: it may close the browser itself first."""
        try:
            if politely:
                _close(self._process.stdin)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=CLOSE_SECONDS)
        finally:
            stop_tree(self._process, self._marker, grace_seconds=0)
            for pipe in (self._process.stdin, self._process.stdout):
                _close(pipe)
            self._folder.cleanup()


def _close(pipe: IO[bytes] | None) -> None:
    # Closing flushes, and fails on bytes for a process that is gone.
    with contextlib.suppress(OSError):
        if pipe is not None:
            pipe.close()
