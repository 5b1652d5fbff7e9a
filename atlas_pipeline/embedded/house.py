"""Keeps one house running from one terminal: the embedded database, Dagster's processes, and in the demo its other parts.

Production runs the same processes as units of their own (README); nothing here is needed for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from atlas_pipeline.embedded.process import file_lock, free_port, port_is_free, stop_marked, stop_process
from atlas_pipeline.embedded.resolve import DatabaseUrls, database_urls, postgres_of
from atlas_pipeline.errors import NotConfigured, PermanentError
from atlas_pipeline.settings import Settings

MARKER = "ATLAS_HOUSE"
PROJECT = Path(__file__).resolve().parents[2]
START_SECONDS, STOP_SECONDS = 180.0, 20.0
# A verb that started the embedded database for its own question holds the lock while it stops it again.
LOCK, LOCK_SECONDS = "house.lock", 3.0
_ASKED_TO_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Say = Callable[[str], None]


_LOADED = "{workspaceOrError {... on Workspace {locationEntries {loadStatus locationOrLoadError {__typename}}}}}"


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Hold the house: a second one on the same state folder is refused (``already_running``)."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / LOCK).touch()
    except OSError as error:
        raise NotConfigured("home_unusable", home=str(home), reason=os.strerror(error.errno or 0)) from None
    with file_lock(home / LOCK, LOCK_SECONDS) as taken:
        if not taken:
            raise NotConfigured("already_running", home=home.name)
        yield


@dataclass
class House:
    """The processes of one house. ``stop`` ends them in the order in which none loses its footing."""

    settings: Settings
    say: Say
    ui_url: str = ""
    shown: dict[str, tuple[object, ...]] = field(default_factory=dict, repr=False)
    _processes: list[tuple[str, subprocess.Popen[bytes]]] = field(default_factory=list)
    _at_end: list[Callable[[], None]] = field(default_factory=list)
    _own: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """What Dagster's processes see: ours, with this house's databases and folders."""
        return {**os.environ, **self._own}

    @property
    def marker(self) -> str:
        """Every process of this house carries it in its environment, so that none is overlooked or taken for ours."""
        return self.settings.house_id

    def sweep(self) -> None:
        """End what an earlier house left when it was killed."""
        left = stop_marked(MARKER, self.marker, 10.0)
        if left:
            self.say(f"ended {len(left)} processes that an earlier run had left behind")

    def find_database(self) -> DatabaseUrls:
        """The databases; an embedded server is started, and stopped with the house even where starting is interrupted."""
        if self.settings.database_url is None:
            self.on_stop(postgres_of(self.settings).stop)
        return database_urls(self.settings)

    def prepare(self, urls: DatabaseUrls) -> None:
        """The environment of Dagster's processes."""
        home = self.settings.home_dir
        for folder in ("dagster", "logs"):
            (home / folder).mkdir(parents=True, exist_ok=True)
        self._own = {
            MARKER: self.marker,
            "ATLAS_HOME": str(home),
            "ATLAS_DATABASE_URL": urls.atlas,
            "ATLAS_DAGSTER_URL": urls.dagster,
            "ATLAS_DAGSTER_DIR": str(home / "dagster"),
            "DAGSTER_HOME": str(PROJECT),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }

    def on_stop(self, action: Callable[[], None]) -> None:
        """Do this when the house stops, after its processes are gone; last registered first."""
        self._at_end.append(action)

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        """Start one process in a session of its own: the terminal's Ctrl-C reaches this program alone, which ends the rest."""
        with self._log(name) as log:
            process = subprocess.Popen(
                command,
                cwd=PROJECT,
                env={**environment, MARKER: self.marker},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_default_signals,  # noqa: PLW1509  # this program is single-threaded when it starts processes
            )
        self._processes.append((name, process))

    def start_dagster(self) -> None:
        """Webserver, daemon and code server; returns when the UI answers and has loaded our code.

        Raises PermanentError: ``dagster_not_started``, ``dagster_code_not_loaded``.
        """
        port = self.settings.ui_port if port_is_free(self.settings.ui_port) else free_port()
        self.ui_url = f"http://{self.settings.ui_host}:{port}"
        dagster = str(Path(sys.executable).with_name("dagster"))
        command = [dagster, "dev", "-w", str(PROJECT / "workspace.yaml"), "-h", self.settings.ui_host, "-p", str(port)]
        self.start("dagster", command, self.environment)
        deadline = time.monotonic() + START_SECONDS
        while not (self._answers() and self._has_loaded()):
            self.check()
            if time.monotonic() > deadline:
                raise PermanentError("dagster_not_started", seconds=START_SECONDS)
            time.sleep(0.5)

    def check(self) -> None:
        """Raises PermanentError("process_ended") where one of the processes is gone; its log says why."""
        for name, process in self._processes:
            status = process.poll()
            if status is not None:
                raise PermanentError("process_ended", name=name, exit_status=status, log=f"logs/{name}.log")

    def stop(self) -> None:
        """End everything: Dagster first, so that runs under way put their rows right while the database still answers.

        What goes wrong with one part doesn't keep the others running; the error is raised when all were asked to stop.
        """
        with ExitStack() as rest:
            while self._at_end:
                rest.callback(self._at_end.pop(0))
            rest.callback(stop_marked, MARKER, self.marker, 10.0)
            while self._processes:
                rest.callback(stop_process, self._processes.pop(0)[1], STOP_SECONDS)

    def _answers(self) -> bool:
        try:
            # trust_env: a proxy of the environment has no way to our loopback
            return httpx.get(f"{self.ui_url}/server_info", timeout=2.0, trust_env=False).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def _has_loaded(self) -> bool:
        """Whether our code is loaded: a house whose code does not load looks healthy and does nothing."""
        try:
            answer = httpx.post(f"{self.ui_url}/graphql", json={"query": _LOADED}, timeout=30.0, trust_env=False).json()
            entries = answer["data"]["workspaceOrError"]["locationEntries"]
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return False
        if any((entry["locationOrLoadError"] or {}).get("__typename") == "PythonError" for entry in entries):
            raise PermanentError("dagster_code_not_loaded", log="logs/dagster.log")
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)

    @contextmanager
    def _log(self, name: str) -> Iterator[IO[bytes]]:
        folder = self.settings.home_dir / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{name}.log").open("ab") as log:
            yield log


def _default_signals() -> None:
    # A shell that starts us in the background leaves SIGINT ignored, and Dagster would inherit that: nothing could stop it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Stopped(BaseException):
    """A signal asked the house to stop. A BaseException, so that no handler of errors takes it for one."""


def no_more_signals() -> None:
    """From here on nothing interrupts the stopping; inside ``stop_signals``, which gives the handlers back."""
    for number in _ASKED_TO_STOP:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stop_signals() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP raise Stopped once; a second one while stopping changes nothing."""

    def stop(number: int, _frame: object) -> None:
        no_more_signals()
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in _ASKED_TO_STOP}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
