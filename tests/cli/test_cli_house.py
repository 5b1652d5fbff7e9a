"""``atlas up`` from the outside: one house a folder, a killed one is swept up after, a stopped one leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from atlas_pipeline.embedded import house as house_module
from atlas_pipeline.embedded.house import MARKER, House, Stopped, no_more_signals, only_one, stop_signals
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.embedded.process import free_port, processes_with_marker, stop_marked
from atlas_pipeline.errors import NotConfigured, PermanentError
from atlas_pipeline.settings import Settings
from tests.fixtures_flow import letter, put
from tests.fixtures_orchestration import Atlas, atlas_process
from tests.fixtures_release import wait_until
from tests.fixtures_services import CLAMD_STREAM_MAX_BYTES


@dataclass
class Up:
    """A house's state folder and environment; ``start`` runs ``atlas up`` on it."""

    home: Path
    variables: dict[str, str]

    @property
    def marked(self) -> list[int]:
        """Processes of this house, whoever started them."""
        return processes_with_marker(MARKER, House(Settings(home=self.home), print).marker)

    @property
    def postgres(self) -> EmbeddedPostgres:
        """Its database server."""
        return EmbeddedPostgres(self.home / "postgres")

    @contextmanager
    def start(self, name: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """``atlas up``, with what it says in a file."""
        log = self.home.parent / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("atlas")), "up"],
                env={**os.environ, **self.variables},
                cwd=self.home.parent,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            yield process, log
        finally:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=20)

    def statuses(self) -> dict[str, int]:
        """Messages by status, as ``atlas status`` tells while the house runs."""
        said = atlas_process(self.home.parent, "status", "--json", **self.variables)
        found: dict[str, int] = json.loads(said.out)["messages"] if said.status == 0 else {}
        return found


@pytest.fixture
def house(somewhere: Path, clamd: str) -> Iterator[Up]:
    """A folder with one mail in its Maildir; nothing of the house outlives the test."""
    put(somewhere / "maildir", letter("Newsletter", "Nos offres de décembre. Pour vous désabonner, cliquez ici.\n"))
    up = Up(
        somewhere / "maison é",
        {
            "ATLAS_HOME": str(somewhere / "maison é"),
            "ATLAS_UI_PORT": str(free_port()),
            "ATLAS_MAILDIR": str(somewhere / "maildir"),
            "ATLAS_POLL_SECONDS": "2",
            "ATLAS_CLAMD": clamd,
            "ATLAS_CLAMD_STREAM_MAX_BYTES": str(CLAMD_STREAM_MAX_BYTES),
        },
    )
    yield up
    stop_marked(MARKER, House(Settings(home=up.home), print).marker, 5.0)
    up.postgres.stop()


def test_a_killed_house_is_swept_up_after_and_a_stopped_one_leaves_nothing(house: Up) -> None:
    """One long story, since each start costs ten seconds: start, refuse a second, kill -9, start again, work, stop."""
    with house.start("first") as (first, log):
        wait_until(lambda: len(house.marked) >= 2, 90)
        assert "dagster: starting" in log.read_text()
        second = atlas_process(house.home.parent, "up", **house.variables)
        assert (second.status, second.err) == (1, "error: already_running (home=maison é)\n")
        first.kill()
        first.wait(timeout=10)
    left = house.marked
    assert left != []
    assert house.postgres.status()["running"]

    with house.start("again") as (process, log):
        wait_until(lambda: "Dagster UI: http" in log.read_text(), 120)
        assert "that an earlier run had left behind" in log.read_text()
        assert set(left) & set(house.marked) == set()
        wait_until(lambda: sum(house.statuses().values()) == 1 and "received" not in house.statuses(), 90)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 130
        assert "Traceback" not in log.read_text()
    assert house.marked == []
    assert not house.postgres.status()["running"]
    assert [one.pid for one in psutil.process_iter(["cwd"]) if str(one.info["cwd"]).startswith(str(house.home))] == []


def test_a_verb_stops_the_database_that_it_started_for_its_question_and_no_other(house: Up) -> None:
    """Asked where no house runs, ``atlas`` leaves the server as it found it, running or not."""
    assert atlas_process(house.home.parent, "migrate", **house.variables).status == 0
    assert not house.postgres.status()["running"]
    assert house.statuses() == {}
    assert atlas_process(house.home.parent, "status", **house.variables).status == 0
    assert not house.postgres.status()["running"]
    house.postgres.ensure()
    for verb in (["status"], ["migrate"], ["migrate", "--check"]):
        assert atlas_process(house.home.parent, *verb, **house.variables).status == 0
        assert house.postgres.status()["running"]


def test_two_houses_on_one_folder_are_one_too_many(tmp_path: Path) -> None:
    """The lock is the kernel's: a killed house holds it no longer."""
    with only_one(tmp_path), pytest.raises(NotConfigured, match="already_running"), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass


@pytest.mark.parametrize("home", ["a file", "/proc/atlas", "/dev/null/atlas"])
def test_a_state_folder_that_is_none_is_named(atlas: Atlas, somewhere: Path, home: str) -> None:
    """Before anything is started."""
    (somewhere / "a file").touch()
    said = atlas("up", ATLAS_HOME=str(somewhere / home))
    assert said.status == 1
    assert said.err.splitlines()[-1].startswith("error: home_unusable (home=")


def test_a_house_of_ones_own_does_not_move_in_with_the_demo(atlas: Atlas, somewhere: Path) -> None:
    """Its database holds the demo's client and mails."""
    (somewhere / ".atlas" / "demo").mkdir(parents=True)
    (somewhere / ".atlas" / "demo" / "scene").touch()
    assert atlas("up").err == "error: home_holds_the_demo (home=.atlas)\n"


def test_code_that_does_not_load_is_no_running_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster shows its UI all the same; without this the operator sees a house that does nothing."""
    (tmp_path / "workspace.yaml").write_text("load_from:\n  - python_module: {module_name: atlas_pipeline.nowhere}\n")
    monkeypatch.setattr(house_module, "PROJECT", tmp_path)
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    (tmp_path / "logs").mkdir()
    one = House(Settings(home=tmp_path, ui_port=free_port()), print)
    try:
        with pytest.raises(PermanentError, match="dagster_code_not_loaded"):
            one.start_dagster()
    finally:
        one.stop()


def test_a_signal_stops_the_house_once_and_a_second_one_does_not_disturb_it() -> None:
    """Two impatient Ctrl-C: the first stops, the second must not leave half of it running."""
    before = signal.getsignal(signal.SIGTERM)
    with stop_signals():
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_house_that_stops_by_itself_is_not_disturbed_either() -> None:
    """One of its processes ended; a Ctrl-C while it takes the others down comes too late."""
    with stop_signals():
        no_more_signals()
        signal.raise_signal(signal.SIGINT)


def test_what_goes_wrong_with_one_part_does_not_keep_the_others_running(tmp_path: Path) -> None:
    """The last registered first, as they were built up; the error is told when all were asked."""
    done: list[str] = []

    def fails() -> None:
        done.append("antivirus")
        raise NotConfigured("antivirus_stuck")

    house = House(Settings(home=tmp_path), done.append)
    house.on_stop(lambda: done.append("database"))
    house.on_stop(fails)
    house.start("sleeper", ["sleep", "60"], {})
    assert len(processes_with_marker(MARKER, house.marker)) == 1
    with pytest.raises(NotConfigured, match="antivirus_stuck"):
        house.stop()
    assert done == ["antivirus", "database"]
    assert processes_with_marker(MARKER, house.marker) == []
    house.stop()
    assert done == ["antivirus", "database"]
