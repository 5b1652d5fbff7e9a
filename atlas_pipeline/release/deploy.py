"""Runs a tenant's deploy command and asks the site which commit it serves.

The command is an argument list and never meets a shell. Its output may hold secrets, so what is kept of it is masked
before it is shortened. Which command, which environment and what follows from the result is decided elsewhere
(``decide``).
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

from atlas_pipeline.errors import Refused
from atlas_pipeline.model import DeployResult
from atlas_pipeline.release.address import route_url
from atlas_pipeline.release.http_check import new_client
from atlas_pipeline.release.masking import Masker
from atlas_pipeline.release.processes import MARKER, new_marker, stop_tree

TAIL_BYTES = 8_192
# More than the tail is held back while the command runs, since masking needs whole secrets and may shorten the text.
RAW_BYTES = 8 * TAIL_BYTES
GRACE_SECONDS = 5.0
# A program left in the background may hold the pipe open after the command ended; its words are waited for this long.
DRAIN_SECONDS = 0.5
VERSION_BYTES = 65_536
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


def deploy(
    command: Sequence[str],
    *,
    commit: str,
    work_tree: Path,
    timeout_seconds: float,
    environment: Mapping[str, str],
    on_started: Callable[[int], None] | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> DeployResult:
    """Run the command in ``work_tree`` with exactly ``environment``.

    ``{commit}`` and ``{worktree}`` in its arguments are filled in.

    ``on_started`` gets the pid once the process exists. After ``timeout_seconds``, or whatever exception passes
    through, the command is ended (TERM, ``grace_seconds`` to comply, KILL) together with everything it started; a
    command that ended by itself keeps the services it left running. Codes: deployed, deploy_exit_nonzero,
    deploy_signal (``exit_status`` is then minus the signal), deploy_timeout, deploy_command_missing,
    deploy_work_tree_missing, deploy_not_configured. Raises Refused(deploy_commit_malformed).
    """
    if not _COMMIT.fullmatch(commit):
        raise Refused("deploy_commit_malformed")
    if not command:
        return DeployResult(ok=False, code="deploy_not_configured", exit_status=None, seconds=0.0, commit=commit)
    if not work_tree.is_dir():
        return DeployResult(ok=False, code="deploy_work_tree_missing", exit_status=None, seconds=0.0, commit=commit)
    started = time.monotonic()
    marker = new_marker()
    try:
        process = subprocess.Popen(
            _filled_in(command, commit, work_tree),
            cwd=work_tree,
            env={**environment, MARKER: marker},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError):
        return DeployResult(ok=False, code="deploy_command_missing", exit_status=None, seconds=0.0, commit=commit)
    tail = _Tail()
    ended = False
    try:
        if on_started is not None:
            on_started(process.pid)
        ended = _watch(process, tail, started + timeout_seconds)
    finally:
        if not ended:
            stop_tree(process, marker, grace_seconds=grace_seconds)
        if process.stdout is not None:
            process.stdout.close()
    code = _code(process.returncode) if ended else "deploy_timeout"
    return DeployResult(
        ok=code == "deployed",
        code=code,
        exit_status=process.returncode,
        seconds=round(time.monotonic() - started, 3),
        commit=commit,
        output_tail=tail.masked(Masker(environment)),
    )


def confirm_version(
    base_url: str, version_route: str, commit: str, timeout: float, *, ca_file: Path | None = None
) -> str:
    """Ask the site which commit it serves until it says this one or ``timeout`` seconds are over.

    ``ca_file`` is trusted as by ``new_client``, whose errors are raised.

    Returns ``ok`` or ``deploy_version_mismatch``. The commit counts when it stands whole in the answer, or when the
    answer is an abbreviation of it (7 digits at least). A site that can't be reached has not confirmed anything.
    """
    deadline = time.monotonic() + timeout
    with new_client(base_url, ca_file=ca_file) as client:
        while (remaining := deadline - time.monotonic()) > 0:
            if _names(_answer(client, route_url(base_url, version_route), remaining), commit):
                return "ok"
            time.sleep(min(0.25, max(0.0, deadline - time.monotonic())))
    return "deploy_version_mismatch"


def describe(result: DeployResult) -> str:
    """One sentence on how the deploy command ended; signals by name."""
    status = result.exit_status
    match result.code:
        case "deployed":
            return f"The deployment of {result.commit} went through."
        case "deploy_exit_nonzero":
            number = (status or 0) - 128  # how a shell tells that its own child was ended by a signal
            hint = f", as shells do after {_signal_name(number)}" if 0 < number < 32 else ""
            return f"The deploy command ended with exit code {status}{hint}."
        case "deploy_signal":
            return f"The deploy command was ended by {_signal_name(-(status or 0))}."
        case "deploy_timeout":
            return f"The deploy command did not end in time and was stopped after {result.seconds:.0f} s."
        case "deploy_version_mismatch":
            return f"The deploy command ended, but the site does not serve {result.commit}."
        case _:
            return f"The deployment was not possible: {result.code}."


class _Tail:
    """The last bytes of an output of any length."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._cut = False

    def add(self, chunk: bytes) -> None:
        self._bytes += chunk
        if len(self._bytes) > RAW_BYTES:
            del self._bytes[:-RAW_BYTES]
            self._cut = True

    def masked(self, masker: Masker) -> str:
        """The masked text, at most ``TAIL_BYTES`` as UTF-8."""
        text = masker.mask(self._bytes.decode("utf-8", "replace").replace("\x00", ""))
        if self._cut:
            # The first characters may be the second half of a secret, which no pattern knows. Dropped after masking:
            # before it, the drop itself might cut the next secret in half.
            text = text[masker.longest :]
        return text.encode()[-TAIL_BYTES:].decode("utf-8", "ignore")


def _filled_in(command: Sequence[str], commit: str, work_tree: Path) -> list[str]:
    values = {"{commit}": commit, "{worktree}": str(work_tree)}
    return [re.sub(r"\{commit\}|\{worktree\}", lambda match: values[match.group()], argument) for argument in command]


def _watch(process: subprocess.Popen[bytes], tail: _Tail, deadline: float) -> bool:
    """Read until the process has ended; False when the deadline came first."""
    assert process.stdout is not None  # noqa: S101  # asked for with PIPE
    pipe = process.stdout.fileno()
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        drain_until: float | None = None
        while True:
            now = time.monotonic()
            if drain_until is None and process.poll() is not None:
                drain_until = now + DRAIN_SECONDS
            if drain_until is None and now >= deadline:
                return False
            if drain_until is not None and (now >= drain_until or not selector.get_map()):
                return True
            if not selector.get_map():
                time.sleep(0.05)  # the command closed its output and works on
            elif selector.select(0.05):
                chunk = os.read(pipe, 65_536)
                if chunk:
                    tail.add(chunk)
                else:
                    selector.unregister(pipe)


def _code(returncode: int) -> str:
    if returncode == 0:
        return "deployed"
    return "deploy_signal" if returncode < 0 else "deploy_exit_nonzero"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _answer(client: httpx.Client, url: str, timeout: float) -> str:
    try:
        with client.stream("GET", url, timeout=min(timeout, 5.0)) as response:
            if response.status_code != httpx.codes.OK:
                return ""
            content = b""
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > VERSION_BYTES:
                    return ""
            return content.decode("utf-8", "replace").strip()
    except (httpx.HTTPError, httpx.InvalidURL):
        return ""


def _names(answer: str, commit: str) -> bool:
    abbreviated = bool(_COMMIT.fullmatch(answer)) and commit.startswith(answer)
    return abbreviated or re.search(rf"(?<![0-9a-f]){commit}(?![0-9a-f])", answer) is not None
