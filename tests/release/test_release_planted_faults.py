"""A site with planted faults: each is found and named, and no sound page is accused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import QaResult, RouteCheck
from atlas_pipeline.release.http_check import Limits
from atlas_pipeline.release.qa import Site, run_qa
from atlas_pipeline.release.wording import NOTE, problems
from tests.fixtures_faulty_site import FAULTS, FIRST_BYTE_SECONDS, PAGE, PAGE_BYTES, SOUND, Fault, plant
from tests.fixtures_recap import Certificate
from tests.fixtures_release import WebServer, served

LIMITS = Limits(FIRST_BYTE_SECONDS, PAGE_BYTES)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QaResult]:
    """All pages, in two halves side by side, each with one browser."""
    shots = tmp_path_factory.mktemp("shots")
    routes = [*SOUND, *(fault.route for fault in FAULTS)]
    with served() as web, served() as other, ThreadPoolExecutor(2) as pool:
        plant(web, other)

        def half(number: int) -> QaResult:
            return run_qa(
                Site(web.base_url, ("localhost",)),
                routes[number::2],
                chromium="chromium",
                screenshot_dir=shots / str(number),
                timeout_seconds=1.8,
                limits=LIMITS,
            )

        yield QaResult(tuple(check for part in pool.map(half, (0, 1)) for check in part.checks))


def of(report: QaResult, route: str, level: str) -> RouteCheck:
    (check,) = [check for check in report.checks if (check.route, check.level) == (route, level)]
    return check


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.kind)
def test_every_planted_fault_is_found_and_named(report: QaResult, fault: Fault) -> None:
    """On the level that can see it, with the route and what is wrong, so that an agent can act on the sentence alone."""
    for level, words in (("http", fault.http), ("browser", fault.browser)):
        check = of(report, fault.route, level)
        found = problems(check)
        assert check.ok == (not found)
        if words:
            assert [sentence for sentence in found if words in sentence], found
            assert any(fault.route in sentence for sentence in found)
            assert len(found) <= 2
        else:
            assert found == ()


@pytest.mark.parametrize("route", SOUND)
def test_no_sound_page_is_accused(report: QaResult, route: str) -> None:
    """Noise of third parties, late scripts, polling, drawings: all of it is usual."""
    for level in ("http", "browser"):
        assert problems(of(report, route, level)) == ()
        assert of(report, route, level).ok
    assert of(report, route, "browser").screenshot
    assert of(report, route, "browser").phone_screenshot


def test_noise_of_third_parties_is_listed_apart(report: QaResult) -> None:
    """Of an allowed one what it says, of the others that they were not asked."""
    notes = {sentence.removeprefix(NOTE) for sentence in of(report, "/noise", "browser").errors}
    assert any(note.startswith("console error of localhost") for note in notes), notes
    assert {f"{host} was blocked on /noise: another host" for host in ("stats.example", "video.example")} <= notes
    assert any("live.example" in note for note in notes)


@pytest.fixture
def secure(smtp_certificate: Certificate) -> Iterator[WebServer]:
    """A site over TLS whose certificate an authority of our own has signed."""
    with served(smtp_certificate.server_context) as web:
        web.page("/sound", PAGE)
        web.page("/mixed", PAGE + "<script src='http://assets.example/lib.js'></script>")
        web.page("/mixed-picture", PAGE + "<img src='http://assets.example/a.png'>")
        web.redirect("/away", "https://localhost:1/")
        web.redirect("/start", "/login")
        web.page("/login", PAGE)
        yield web


def checked(site: Site, folder: Path, *routes: str) -> QaResult:
    return run_qa(site, routes, chromium="chromium", screenshot_dir=folder, timeout_seconds=5)


def test_tls_is_verified_with_our_own_authority_and_never_left_unverified(
    secure: WebServer, smtp_certificate: Certificate, tmp_path: Path
) -> None:
    """Casebook C105: a self-signed certificate fails; with its authority the site passes, another name of it does not."""
    assert not any(check.ok for check in checked(Site(secure.base_url), tmp_path, "/start").checks)
    unknown = checked(Site(secure.base_url), tmp_path, "/sound")
    assert [check.ok for check in unknown.checks] == [False, False]
    assert "the TLS certificate of 127.0.0.1" in unknown.checks[0].errors[0]
    assert "ERR_CERT_AUTHORITY_INVALID" in unknown.checks[1].errors[0]

    known = checked(
        Site(secure.base_url, ca_file=smtp_certificate.file),
        tmp_path,
        *("/sound", "/mixed", "/mixed-picture", "/away", "/start"),
    )
    assert [of(known, "/start", level).ok for level in ("http", "browser")] == [True, True]
    assert of(known, "/sound", "http").errors == of(known, "/sound", "browser").errors == ()
    (mixed,) = problems(of(known, "/mixed", "browser"))
    assert mixed.startswith("Mixed content on /mixed")
    assert "http://assets.example/lib.js" in mixed
    assert "Mixed content on /mixed-picture" in problems(of(known, "/mixed-picture", "browser"))[0]
    assert "redirects to another host" in of(known, "/away", "http").errors[0]
    assert not of(known, "/away", "browser").ok

    elsewhere = Site(secure.base_url.replace("127.0.0.1", "127.0.0.2"), ca_file=smtp_certificate.file)
    assert [check.ok for check in checked(elsewhere, tmp_path, "/sound").checks] == [False, False]


def test_an_authority_that_cannot_be_read_is_said_and_nothing_is_checked(tmp_path: Path, web: WebServer) -> None:
    """A slip in a setting must not turn into a site that passes."""
    (tmp_path / "ca.pem").write_text("no certificate")
    for file in (tmp_path / "ca.pem", tmp_path / "none.pem"):
        with pytest.raises(NotConfigured, match="qa_ca_file_unreadable"):
            checked(Site(web.base_url, ca_file=file), tmp_path, "/x")
    assert web.asked == []


def test_a_site_that_is_offline_fails_every_route(unused_port: int, tmp_path: Path) -> None:
    """And is not looked at in a browser where only the answering ones are asked for."""
    site = Site(f"http://127.0.0.1:{unused_port}")
    assert [check.ok for check in checked(site, tmp_path, "/x").checks] == [False, False]
    only = run_qa(site, ["/x"], chromium="nowhere", screenshot_dir=tmp_path, timeout_seconds=2, only_answering=True)
    assert [(check.level, check.status) for check in only.checks] == [("http", None)]
