"""A house under Dagster for tests: the flow's bench, the environment a run worker would have, an instance on PostgreSQL.

What the daemon does between two ticks is done here by hand, in its order: partitions first, then runs, each run key once.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import psycopg
import pytest
from click.testing import CliRunner
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.definitions.sensor_definition import SensorExecutionData
from psycopg import sql

from atlas_pipeline.cli import main
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.embedded.resolve import for_dagster
from atlas_pipeline.flow.stage import INBOX_STAGES
from atlas_pipeline.orchestration.build import build_definitions
from atlas_pipeline.settings import load
from tests.fixtures_flow import ROOT, Bench

RUN_KEY = "dagster/run_key"


@dataclass
class DagsterHouse:
    """A bench whose settings stand in the environment, the definitions built from it, and an instance."""

    bench: Bench
    instance: dg.DagsterInstance
    defs: dg.Definitions
    dagster_url: str

    def partitions(self) -> list[str]:
        """The message keys that have a partition, in insertion order."""
        return list(self.instance.get_dynamic_partitions("messages"))

    def look(self, sensor: str) -> SensorExecutionData:
        """One tick, evaluated and then lost, as when the daemon dies right after it."""
        with dg.build_sensor_context(
            instance=self.instance, instance_ref=self.instance.get_ref(), definitions=self.defs
        ) as context:
            return self.defs.resolve_sensor_def(sensor).evaluate_tick(context)

    def tick(self, sensor: str) -> SensorExecutionData:
        """One tick whose partitions are added; what becomes of its run requests is the test's."""
        data = self.look(sensor)
        for request in data.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
        return data

    def start(self, request: dg.RunRequest, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED) -> dg.DagsterRun:
        """A run as the daemon makes it, in this status, without a worker. A run key is used once for ever."""
        return self.record(str(request.job_name), self._tags(request), status)

    def record(
        self,
        job: str,
        tags: Mapping[str, str],
        status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED,
        stages: Sequence[str] = (),
    ) -> dg.DagsterRun:
        """The record of a run, without a worker and without events; ``stages`` is what the UI selected."""
        selected = frozenset(dg.AssetKey(stage) for stage in stages) or None
        run = dg.DagsterRun(job, run_id=str(uuid.uuid4()), tags=dict(tags), status=status, asset_selection=selected)
        return self.instance.add_run(run)

    def run(self, request: dg.RunRequest, **facts: Any) -> dg.ExecuteInProcessResult:
        """A run as the daemon makes it, executed here."""
        return self.execute(str(request.job_name), tags=self._tags(request), **facts)

    def execute(self, job: str, **facts: Any) -> dg.ExecuteInProcessResult:
        """A run of a job, in this process, on the real instance."""
        definition = self.defs.resolve_job_def(job)
        return definition.execute_in_process(instance=self.instance, raise_on_error=False, **facts)

    def take_in(self) -> dg.ExecuteInProcessResult:
        """What lies in the mailbox, listed by the sensor and run."""
        (request,) = self.tick("mailbox_sensor").run_requests or ()
        return self.run(request)

    def intake(self, first: str, last: str, **facts: Any) -> dg.ExecuteInProcessResult:
        """An intake run over a range that somebody asked for by hand."""
        tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
        return self.execute("intake_job", tags=tags, **facts)

    def action(self, key: str, attempt: int = 1) -> dg.ExecuteInProcessResult:
        """An action run as the UI asks for it."""
        return self.execute("action_job", partition_key=place(key, attempt))

    def outcomes(self, result: dg.ExecuteInProcessResult) -> dict[str, list[str]]:
        """What each message materialised in a run: ``stage:outcome``, in order."""
        found: dict[str, list[str]] = {}
        for event in result.get_asset_materialization_events():
            done = event.step_materialization_data.materialization
            outcome = done.metadata["outcome"].value
            found.setdefault(str(done.partition), []).append(f"{done.asset_key.to_user_string()}:{outcome}")
        return found

    def statuses(self, asset: str, keys: Sequence[str]) -> dict[str, str | None]:
        """What the UI's partition view says of these partitions."""
        partitions = self.defs.resolve_asset_graph().get(dg.AssetKey(asset)).partitions_def
        assert partitions is not None
        with partition_loading_context(dynamic_partitions_store=self.instance):
            found = self.instance.get_status_by_partition(dg.AssetKey(asset), list(keys), partitions)
        return {key: status.value if status else None for key, status in (found or {}).items()}

    def environment(self, **changes: str) -> dict[str, str]:
        """The environment of a process of this house."""
        return {**os.environ, **changes}

    def _tags(self, request: dg.RunRequest) -> dict[str, str]:
        assert request.run_key is not None
        same = self.instance.get_runs(dg.RunsFilter(tags={RUN_KEY: request.run_key}))
        # The daemon looks for a run of the same sensor with this key, and asks for none where it finds one.
        sensor = request.tags.get("dagster/sensor_name")
        assert [run for run in same if run.tags.get("dagster/sensor_name") == sensor] == []
        return {**request.tags, RUN_KEY: request.run_key}


def words(house: DagsterHouse) -> str:
    """Everything that Dagster has stored, in its database and in its folder, as one text."""
    url = house.dagster_url.replace("postgresql+psycopg2://", "postgresql://")
    with psycopg.connect(url) as connection:
        tables = [row[0] for row in connection.execute("select tablename from pg_tables where schemaname = 'public'")]
        stored = [text for table in tables for text in _rows(connection, table)]
    files = [path for path in (house.bench.folder / "dagster").rglob("*") if path.is_file()]
    return "\n".join([*stored, *(path.read_bytes().decode("latin-1") for path in files), *map(str, files)])


def _rows(connection: psycopg.Connection[Any], table: str) -> Iterator[str]:
    for row in connection.execute(sql.SQL("select * from {}").format(sql.Identifier(table))):
        for value in row:
            yield _plain(value) if isinstance(value, bytes) else str(value)


def _plain(value: bytes) -> str:
    try:
        return zlib.decompress(value).decode("latin-1")
    except zlib.error:
        return value.decode("latin-1")


def place(key: str, attempt: int = 1) -> dg.MultiPartitionKey:
    """The partition of one message and attempt."""
    return dg.MultiPartitionKey({"message": key, "attempt": str(attempt)})


def all_stages(outcome: str) -> list[str]:
    """The four inbox stages with one outcome."""
    return [f"{stage}:{outcome}" for stage in INBOX_STAGES]


def failed_keys(result: dg.ExecuteInProcessResult) -> list[list[str]]:
    """The messages that the final Failure of an intake run names: key, stage, code."""
    (event,) = [event for event in result.all_events if event.is_step_failure]
    failure = event.step_failure_data.user_failure_data
    assert failure is not None
    named: list[list[str]] = failure.metadata["failed"].value  # type: ignore[assignment]  # JSON metadata of ours
    return named


@pytest.fixture(scope="session")
def dagster_template(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of a database that holds Dagster's empty tables, for others to be copied from."""
    name = "dagster_template"
    url = for_dagster(postgres_server.ensure_database(name))
    folder = tmp_path_factory.mktemp("dagster-template")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ATLAS_DAGSTER_URL", url)
        environment.setenv("ATLAS_DAGSTER_DIR", str(folder))
        with dg.DagsterInstance.from_config(str(ROOT)) as instance:
            instance.get_runs_count()
    return name


@pytest.fixture
def dagster_url(postgres_server: EmbeddedPostgres, dagster_template: str) -> Iterator[str]:
    """The URL, with Dagster's driver named, of a database with empty tables of Dagster."""
    name = f"dagster_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        names = (sql.Identifier(name), sql.Identifier(dagster_template))
        connection.execute(sql.SQL("create database {} template {}").format(*names))
        yield for_dagster(postgres_server.url(name))
        connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))


def clean_environment(environment: pytest.MonkeyPatch) -> None:
    """Take out every variable of Atlas and Dagster that the tests were started with."""
    for name in os.environ:
        if name.startswith(("ATLAS_", "DAGSTER_")) or name == "MISTRAL_API_KEY":
            environment.delenv(name)


def set_environment(environment: pytest.MonkeyPatch, bench: Bench) -> None:
    """The bench's settings as environment variables."""
    environment.setenv("ATLAS_DATABASE_URL", bench.database_url)
    for name, value in bench.values.items():
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        environment.setenv(name if name.isupper() else f"ATLAS_{name.upper()}", text)


@pytest.fixture
def dagster_house(bench: Bench, dagster_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[DagsterHouse]:
    """The bench under Dagster."""
    clean_environment(monkeypatch)
    set_environment(monkeypatch, bench)
    monkeypatch.setenv("ATLAS_DAGSTER_URL", dagster_url)
    monkeypatch.setenv("ATLAS_DAGSTER_DIR", str(bench.folder / "dagster"))
    with dg.DagsterInstance.from_config(str(ROOT)) as instance:
        yield DagsterHouse(bench, instance, build_definitions(load()), dagster_url)


@dataclass(frozen=True)
class Said:
    """How a verb ended and what it printed."""

    status: int
    out: str
    err: str


Atlas = Callable[..., Said]


@pytest.fixture
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to be in, and none of our variables set."""
    clean_environment(monkeypatch)
    folder = tmp_path / "somewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def atlas(somewhere: Path) -> Atlas:
    """Run a verb in this process, in an empty folder, with the variables given and no other of ours."""

    def run(*arguments: str | os.PathLike[str], **variables: str) -> Said:
        # The whole environment is put back: a verb under ATLAS_DEMO adds the demo's defaults to it.
        with patch.dict(os.environ, variables):
            result = CliRunner().invoke(main, [os.fspath(argument) for argument in arguments], prog_name="atlas")
        return Said(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def house_env(bench: Bench, somewhere: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose settings stand in the environment, for verbs that ask its database."""
    set_environment(monkeypatch, bench)
    return bench


def atlas_process(
    folder: Path, *arguments: str | os.PathLike[str], program: Sequence[str] = (), **variables: str
) -> Said:
    """Run ``atlas`` as a user does, in a process of its own."""
    command = [
        *(program or (str(Path(sys.executable).with_name("atlas")),)),
        *(os.fspath(argument) for argument in arguments),
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())
