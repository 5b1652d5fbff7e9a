"""The HTTP check against a real server: what passes, what fails, and in which words."""

from __future__ import annotations

import socket
import time

import pytest

from atlas_pipeline.release.address import credentials, host_name, origin, path_name, route_url
from atlas_pipeline.release.http_check import check_http, new_client
from atlas_pipeline.release.wording import note, one_line, problems
from tests.fixtures_release import DemoSite, WebServer


def sentences(web: WebServer, route: str, timeout: float = 5) -> tuple[str, ...]:
    check = check_http(web.base_url, route, timeout_seconds=timeout)
    assert not check.ok
    assert check.level == "http"
    return check.errors


def test_a_sound_page_passes(web: WebServer) -> None:
    """And says how long it took."""
    web.page("/devis", "<h1>Devis</h1>")
    check = check_http(web.base_url, "/devis", timeout_seconds=5)
    assert (check.route, check.level, check.ok, check.status, check.errors) == ("/devis", "http", True, 200, ())
    assert 0 <= check.milliseconds < 5000


def test_the_demo_sites_broken_page_is_found(demo_site: DemoSite) -> None:
    """The fault the demo's mails complain about."""
    check = check_http(demo_site.url, "/equipe", timeout_seconds=5)
    assert check.errors == ("GET /equipe answered 500 Internal Server Error",)
    assert check.status == 500


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "404 Not Found"), (410, "410 Gone"), (502, "502 Bad Gateway"), (599, "599"), (304, "304 Not Modified")],
)
def test_a_bad_status_fails_by_name(web: WebServer, status: int, words: str) -> None:
    """Numbers without a name stay numbers."""
    web.page("/x", "" if status == 304 else "oops", status=status)
    assert sentences(web, "/x") == (f"GET /x answered {words}",)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_not_called_a_broken_site(web: WebServer, status: int) -> None:
    """Nothing the agent could mend (C104)."""
    web.page("/x", "no", status=status)
    assert "needs a login" in sentences(web, "/x")[0]


@pytest.mark.parametrize("body", ["", " \n\t "])
def test_an_empty_page_is_flagged(web: WebServer, body: str) -> None:
    """200 and nothing is what a crashed template often looks like."""
    web.page("/x", body)
    assert sentences(web, "/x") == ("GET /x answered 200 OK with an empty body",)


def test_redirects_on_the_site_are_followed(web: WebServer) -> None:
    """A missing slash is no fault."""
    web.redirect("/x", "/y/")
    web.redirect("/y/", f"{web.base_url}/z", status=308)
    web.page("/z")
    check = check_http(web.base_url, "/x", timeout_seconds=5)
    assert (check.ok, check.status) == (True, 200)


def test_a_redirect_to_another_host_fails_and_is_not_followed(web: WebServer, other_web: WebServer) -> None:
    """Production must not be checked in place of pre-production (C105)."""
    other_web.page("/")
    web.redirect("/x", other_web.base_url + "/")
    host = other_web.base_url.removeprefix("http://")
    assert sentences(web, "/x") == (f"GET /x redirects to another host: {host}",)
    assert other_web.asked == []


def test_a_redirect_without_end_fails(web: WebServer) -> None:
    """After five, as many as a sound site never needs."""
    web.redirect("/x", "/x")
    assert sentences(web, "/x") == ("GET /x redirects more than 5 times",)
    assert web.paths() == ["/x"] * 6


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "javascript:alert(1)", "//", "http://[", "mailto:x@y.example"]
)
def test_a_redirect_to_nowhere_fails(web: WebServer, location: str) -> None:
    """Only web addresses of the site are followed."""
    web.redirect("/x", location)
    assert len(sentences(web, "/x")) == 1


def test_a_hanging_server_fails_in_time(web: WebServer) -> None:
    """Bounded, with a sentence and no status."""
    web.page("/x", hangs=True)
    started = time.monotonic()
    assert sentences(web, "/x", timeout=0.4) == ("GET /x did not answer in time",)
    assert time.monotonic() - started < 2


def test_a_broken_off_answer_fails(web: WebServer) -> None:
    """A worker killed in the middle."""
    web.page("/x", "half", breaks_off=True)
    assert "broke off" in sentences(web, "/x")[0]


def test_a_server_that_is_not_there_is_a_failed_check() -> None:
    """No exception: the report has a line for it."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    check = check_http(f"http://127.0.0.1:{port}", "/x", timeout_seconds=2)
    assert (check.ok, check.status) == (False, None)
    assert check.errors == (f"GET /x failed: 127.0.0.1:{port} can't be reached",)


@pytest.mark.parametrize("base_url", ["", "nonsense", "http://[", "ftp://x.example", "http://a b/", "http://x:99999/"])
def test_a_base_url_that_cannot_be_read_is_a_failed_check(base_url: str) -> None:
    """A slip in the topology table must not look like a crash."""
    check = check_http(base_url, "/x", timeout_seconds=1)
    assert (check.ok, check.status, len(check.errors)) == (False, None, 1)


@pytest.mark.parametrize(
    "route", ["//evil.example/x", "@evil.example", "\\\\evil.example", "http://evil.example", "/\r\nX: y"]
)
def test_no_route_leaves_the_site(web: WebServer, route: str) -> None:
    """Routes come from an agent's file."""
    assert origin(route_url(web.base_url, route)) == origin(web.base_url)
    assert not check_http(web.base_url, route, timeout_seconds=2).ok


def test_user_and_password_of_the_url_are_sent_and_never_shown(web: WebServer) -> None:
    """Pre-production often has a login."""
    web.redirect("/x", f"{web.base_url}/y")
    base_url = web.base_url.replace("http://", "http://claire:s%20cret@")
    with new_client(base_url) as client:
        check = check_http(base_url, "/x", timeout_seconds=5, client=client)
    assert [headers.get("Authorization") for _, headers in web.asked] == ["Basic Y2xhaXJlOnMgY3JldA=="] * 2
    assert "cret" not in repr(check)


def test_hosts_are_told_apart_as_visitors_would() -> None:
    """An upgrade to https stays on the site; another port or name does not."""
    assert origin("http://site.example/") == origin("https://SITE.example:443/x")
    assert origin("http://site.example:8080/") != origin("http://site.example/")
    assert origin("http://www.site.example/") != origin("http://site.example/")
    assert [origin(url) for url in ("", "data:text/html,x", "http://", "http://x:y/")] == [None] * 4


def test_addresses_are_named_without_secrets() -> None:
    """Sentences end up in prompts and recaps."""
    assert host_name("https://u:p@site.example:8443/x") == "site.example:8443"
    assert path_name("https://u:p@site.example/x?y=1") == "/x?y=1"
    assert path_name("data:text/html," + "x" * 1000) == "data:"
    assert credentials("https://site.example") is None
    assert credentials("https://u:p%40@site.example") == ("u", "p@")


def test_sentences_are_one_bounded_line(web: WebServer) -> None:
    """A page's own words must not break out of their line."""
    assert one_line("a\r\n\x1b[31m b\x00\u2028c") == "a [31m b c"
    assert len(one_line("x" * 10_000_000)) == 300
    check = check_http(web.base_url, "/" + "y" * 5000, timeout_seconds=5)
    assert len(check.errors[0]) <= 300


def test_notes_are_no_problems(web: WebServer) -> None:
    """They are seen, and fail nothing."""
    check = check_http(web.base_url, "/x", timeout_seconds=5)
    assert problems(check) == check.errors
    assert note("x").startswith("note: ")
