"""``dagster.yaml`` and ``workspace.yaml`` as they lie at the root, on a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager
from dagster._core.workspace.load import location_origins_from_yaml_paths
from dagster_postgres.event_log import PostgresEventLogStorage

from atlas_pipeline.embedded.resolve import database_urls, for_dagster
from atlas_pipeline.settings import Settings, load
from tests.fixtures_flow import ROOT
from tests.fixtures_orchestration import DagsterHouse


def test_a_run_materialises_on_the_instance_that_the_yaml_describes(dagster_house: DagsterHouse) -> None:
    """Storage, event log and schedules in PostgreSQL, through psycopg2."""
    storage = dagster_house.instance.event_log_storage
    assert isinstance(storage, PostgresEventLogStorage)
    assert storage.postgres_url.startswith("postgresql+psycopg2://")
    result = dagster_house.execute("steering_job", asset_selection=[dg.AssetKey("mailbox_heartbeat")])
    assert result.success
    key = dg.AssetKey("mailbox_heartbeat")
    materialisation = dagster_house.instance.get_latest_materialization_event(key)
    assert materialisation is not None
    assert materialisation.run_id == result.run_id


def test_what_steps_print_goes_nowhere(dagster_house: DagsterHouse) -> None:
    """It may quote a mail."""
    assert isinstance(dagster_house.instance.compute_log_manager, NoOpComputeLogManager)
    dagster_house.execute("outbox_job")
    folder = Path(dagster_house.bench.folder / "dagster")
    assert [path for path in folder.rglob("*") if path.suffix in {".out", ".err", ".complete"}] == []


def test_the_instance_retries_nothing_and_watches_its_runs(dagster_house: DagsterHouse) -> None:
    """What has effects is asked for again by the sensor alone; a crashed worker's run ends."""
    instance = dagster_house.instance
    assert not instance.run_retries_enabled
    assert instance.run_monitoring_enabled
    assert not instance.telemetry_enabled
    limits = instance.get_concurrency_config().run_queue_config
    assert limits is not None
    assert limits.max_concurrent_runs == 6
    assert {limit["value"]: limit["limit"] for limit in limits.tag_concurrency_limits} == {"intake": 1, "action": 3}
    assert instance.get_tick_retention_settings(dg._core.definitions.run_request.InstigatorType.SENSOR)


def test_the_workspace_names_one_code_location() -> None:
    """The same file serves ``make demo`` and production."""
    file = ROOT / "workspace.yaml"
    origins = location_origins_from_yaml_paths([str(file)])
    assert [origin.location_name for origin in origins] == ["atlas"]
    (entry,) = yaml.safe_load(file.read_text())["load_from"]
    assert entry["python_module"]["module_name"] == "atlas_pipeline.definitions"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql://u:p@h:1/d?sslmode=require", "postgresql+psycopg2://u:p@h:1/d?sslmode=require"),
        ("postgres://u@h/d", "postgresql+psycopg2://u@h/d"),
        ("postgresql+psycopg2://u@h/d", "postgresql+psycopg2://u@h/d"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg://u@h/d"),
        ("nonsense", "nonsense"),
    ],
)
def test_dagsters_url_names_its_driver(given: str, used: str) -> None:
    """SQLAlchemy's own default is psycopg 3, on which Dagster's NOTIFY fails."""
    assert for_dagster(given) == used


def test_a_plain_url_from_the_environment_is_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside Atlas's database where none is named; options of the URL stay."""
    monkeypatch.setenv("ATLAS_DATABASE_URL", "postgresql://u:p@h:1/atlas?sslmode=require")
    monkeypatch.delenv("ATLAS_DAGSTER_URL", raising=False)
    assert database_urls(load()).dagster == "postgresql+psycopg2://u:p@h:1/dagster?sslmode=require"
    monkeypatch.setenv("ATLAS_DAGSTER_URL", "postgresql://u:p@other/dag")
    assert database_urls(load()).dagster == "postgresql+psycopg2://u:p@other/dag"


def test_dagsters_own_database_can_be_named_beside_an_embedded_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A setting that is given is not passed over."""
    monkeypatch.delenv("ATLAS_DATABASE_URL", raising=False)
    monkeypatch.setenv("ATLAS_DAGSTER_URL", "postgresql://u:p@other/dag")
    from atlas_pipeline.embedded.resolve import _dagster_url

    assert _dagster_url(Settings(home=tmp_path), "postgresql://x/atlas") == "postgresql+psycopg2://u:p@other/dag"
