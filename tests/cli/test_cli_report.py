"""``atlas report`` under odd orders: months that are none, settings with a typing error, clients with a tag for a name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures_flow import SLUG, Bench
from tests.fixtures_orchestration import Atlas, Said


def code_of(said: Said) -> str:
    """The one line of an error."""
    assert (said.status, said.out) == (1, ""), said
    (line,) = said.err.splitlines()
    return line.removeprefix("error: ")


@pytest.mark.parametrize(
    "month", ["2026-13", "2026-00", "0000-01", "3026-01", "9" * 5000, "2026-11\n", "<script>", "2026_11"],
    ids=["13", "0", "year0", "year3026", "huge", "newline", "tag", "underscore"],
)  # fmt: skip
def test_a_month_that_is_none_is_one_line_and_stores_nothing(house_env: Bench, atlas: Atlas, month: str) -> None:
    for form in ((), ("--json",), ("--html",)):
        assert code_of(atlas("report", month, *form)) == "month_malformed"
    assert house_env.rows("select from atlas.calibration_reports") == []


def test_a_month_that_has_not_begun_is_empty_and_decides_nothing(house_env: Bench, atlas: Atlas) -> None:
    assert json.loads(atlas("report", "2999-12", "--json").out)["classifications"] == 0
    assert "2999-12" in atlas("report", "2999-12", "--html").out
    assert house_env.rows("select from atlas.phase_decisions") == []


@pytest.mark.parametrize("zone", ["Europe/Pariss", "Europe", "Paris", "UTC+1", "Europe/Paris\n", "../../etc/passwd"],
                         ids=["letter", "folder", "city", "offset", "newline", "path"])  # fmt: skip
def test_a_time_zone_with_a_typing_error_is_named_and_no_month_is_counted_in_another(
    house_env: Bench, atlas: Atlas, zone: str
) -> None:
    """Counted in UTC by mistake, the last hour of a month would be missing from its report."""
    assert code_of(atlas("report", "2026-11", ATLAS_TIME_ZONE=zone)) == "setting_invalid (ATLAS_TIME_ZONE)"
    assert house_env.rows("select from atlas.calibration_reports") == []


def test_a_client_with_a_tag_for_a_name_is_shown_by_its_slug(house_env: Bench, atlas: Atlas, tmp_path: Path) -> None:
    """And a slug can't be one: it names branches and folders."""
    facts = json.loads(atlas("tenant", "show", SLUG, "--json").out)
    file = tmp_path / "client.json"
    file.write_text(json.dumps({**facts, "slug": "<script>"}), encoding="utf-8")
    assert code_of(atlas("tenant", "add", file)).startswith("tenant_fields")
    file.write_text(json.dumps({**facts, "name": "<script>alert(1)</script>"}), encoding="utf-8")
    assert atlas("tenant", "add", file).status == 0
    house_env.chantier()
    for form in ((), ("--html",), ("--json",)):
        assert "<script" not in atlas("report", *form).out
    assert SLUG in atlas("report", "--html").out
