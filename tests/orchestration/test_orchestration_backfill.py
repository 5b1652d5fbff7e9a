"""A backfill of months as the UI's button launches it: a real webserver, daemon and code server, asked over GraphQL."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from atlas_pipeline.embedded.house import House
from atlas_pipeline.embedded.process import free_port
from atlas_pipeline.embedded.resolve import DatabaseUrls
from atlas_pipeline.settings import load
from tests.fixtures_flow import letter
from tests.fixtures_orchestration import DagsterHouse
from tests.fixtures_release import wait_until

_LAUNCH = """mutation Launch($params: LaunchBackfillParams!) {launchPartitionBackfill(backfillParams: $params)
    {__typename ... on LaunchBackfillSuccess {backfillId}}}"""
_LOOK = """query Look($id: String!) {partitionBackfillOrError(backfillId: $id) {... on PartitionBackfill {status}}}"""
_CHECKS = """query Checks {assetNodeOrError(assetKey: {path: ["calibration_report"]}) {... on AssetNode {assetChecksOrError
    {... on AssetChecks {checks {name blocking executionForLatestMaterialization {status evaluation {severity}}}}}}}}"""


@pytest.fixture
def ui(dagster_house: DagsterHouse, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a running UI of this house, its daemon at work."""
    monkeypatch.setenv("ATLAS_UI_PORT", str(free_port()))
    house = House(load(), lambda _line: None)
    house.prepare(DatabaseUrls(dagster_house.bench.database_url, dagster_house.dagster_url, embedded=False))
    try:
        house.start_dagster()
        yield house.ui_url
    finally:
        house.stop()


def ask(ui: str, query: str, **variables: Any) -> dict[str, Any]:
    """What the browser sends, and the answer's data."""
    answer = httpx.post(
        f"{ui}/graphql", json={"query": query, "variables": variables}, timeout=60, trust_env=False
    ).json()
    assert "errors" not in answer, answer
    data: dict[str, Any] = answer["data"]
    return data


@pytest.mark.timeout(600)
def test_months_launched_from_the_ui_are_computed_and_their_checks_shown(dagster_house: DagsterHouse, ui: str) -> None:
    """Three months at once, one of them the running one; the checks warn and fail no run."""
    bench = dagster_house.bench
    bench.take_in(letter())
    months = [bench.one("select to_char(now() at time zone 'Europe/Paris', 'YYYY-MM')"), "2026-01", "2026-03"]
    params = {
        "assetSelection": [{"path": ["calibration_report"]}],
        "partitionNames": months,
        "fromFailure": False,
        "tags": [],
    }
    launched = ask(ui, _LAUNCH, params=params)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess"

    def status() -> str:
        return str(ask(ui, _LOOK, id=launched["backfillId"])["partitionBackfillOrError"]["status"])

    wait_until(lambda: status() not in {"REQUESTED"}, 300)
    assert status() == "COMPLETED_SUCCESS"
    stored = bench.rows(
        "select month, (metrics->>'classifications')::int as n from atlas.calibration_reports order by 1"
    )
    assert {row["month"]: row["n"] for row in stored} == {"2026-01": 0, "2026-03": 0, months[0]: 1}
    checks = ask(ui, _CHECKS)["assetNodeOrError"]["assetChecksOrError"]["checks"]
    assert sorted(check["name"] for check in checks) == ["drift", "enough_data", "error_rate", "gate"]
    assert not any(check["blocking"] for check in checks)
    assert {check["executionForLatestMaterialization"]["status"] for check in checks} <= {"SUCCEEDED", "FAILED"}
    assert {check["executionForLatestMaterialization"]["evaluation"]["severity"] for check in checks} == {"WARN"}
