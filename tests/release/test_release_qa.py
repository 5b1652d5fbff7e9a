"""A whole report over the real demo site."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas_pipeline.release.qa import Site, run_qa, screenshot_name
from tests.fixtures_release import DemoSite, WebServer


def test_a_report_looks_at_every_route_on_both_levels(demo_site: DemoSite, tmp_path: Path) -> None:
    """The demo site's two faults are found, each on its level; the sound pages pass. A route
    named twice is looked at once."""
    routes = [*demo_site.tenant.default_routes, "/"]
    shots = tmp_path / "new" / "shots"
    result = run_qa(Site(demo_site.url), routes, chromium="chromium", screenshot_dir=shots, timeout_seconds=10)
    assert not result.ok
    assert [(check.level, check.route, check.ok) for check in result.checks] == [
        ("http", "/", True),
        ("http", "/equipe", False),
        ("http", "/devis", True),
        ("http", "/contact", True),
        ("browser", "/", True),
        ("browser", "/equipe", False),
        ("browser", "/devis", False),
        ("browser", "/contact", True),
    ]
    failed: dict[str, list[str]] = {"http": [], "browser": []}
    for check in result.checks:
        failed[check.level] += check.errors
    assert failed == {
        "http": ["GET /equipe answered 500 Internal Server Error"],
        "browser": [
            "/equipe answered 500 Internal Server Error in the browser",
            "JavaScript error on /devis: ReferenceError: calculerTotale is not defined (at /static/devis.js:17:17)",
        ],
    }
    assert [shot.name for shot in sorted(shots.iterdir())] == [
        *("01-home-phone.png", "01-home.png", "02-equipe-phone.png", "02-equipe.png"),
        *("03-devis-phone.png", "03-devis.png", "04-contact-phone.png", "04-contact.png"),
    ]


def test_without_routes_nothing_has_passed(tmp_path: Path) -> None:
    """An agent must not pass by naming nothing."""
    result = run_qa(Site("http://127.0.0.1:1"), [], chromium="chromium", screenshot_dir=tmp_path, timeout_seconds=1)
    assert (result.checks, result.ok) == ((), False)


def test_a_missing_browser_is_coded_and_never_a_pass(web: WebServer, tmp_path: Path) -> None:
    """HTTP alone is half a report."""
    web.page("/x")
    result = run_qa(Site(web.base_url), ["/x"], chromium="no-such-browser", screenshot_dir=tmp_path, timeout_seconds=5)
    assert [check.ok for check in result.checks] == [True, False]
    expected = "browser_unavailable: the page was not looked at, the browser could not be started (program_missing)"
    assert result.checks[1].errors == (expected,)
    assert not result.ok


def test_a_report_on_a_site_that_is_not_there_ends(tmp_path: Path) -> None:
    """With a failed line for everything."""
    result = run_qa(Site("http://127.0.0.1:2"), ["/"], chromium="chromium", screenshot_dir=tmp_path, timeout_seconds=3)
    assert [(check.ok, check.status) for check in result.checks] == [(False, None), (False, None)]


@pytest.mark.parametrize(
    ("route", "name"),
    [
        ("/", "01-home.png"),
        ("/a/../../etc", "01-a-etc.png"),
        ("/É\x00?x=1", "01-x-1.png"),
        ("/" + "y" * 900, f"01-{'y' * 60}.png"),
    ],
)
def test_no_route_makes_a_dangerous_file_name(route: str, name: str) -> None:
    """Routes come from an agent's file."""
    assert screenshot_name(1, route) == name
