"""The browser check with a real Chromium: whose fault an error is, and that no page can hold it up."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from PIL import Image

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import RouteCheck
from atlas_pipeline.release.browser_check import BrowserChecker
from atlas_pipeline.release.processes import MARKER
from tests.fixtures_release import DemoSite, WebServer, is_running, wait_until

ROOT = Path(__file__).resolve().parents[2]
SEEN = "<!doctype html><title>x</title><link rel=icon href='data:,'><p>Bonjour</p>"


def look(browser: BrowserChecker, web: WebServer, route: str = "/x", timeout: float = 5) -> RouteCheck:
    return browser.check(web.base_url, route, timeout_seconds=timeout, screenshot_path=None)


def test_a_sound_page_passes_with_a_picture(browser: BrowserChecker, demo_site: DemoSite, tmp_path: Path) -> None:
    """The pictures show the page at both widths, and are what the recap's reader sees."""
    picture = tmp_path / "contact.png"
    check = browser.check(demo_site.url, "/contact", timeout_seconds=10, screenshot_path=picture)
    assert (check.route, check.level, check.ok, check.status, check.errors) == ("/contact", "browser", True, 200, ())
    assert check.screenshot == str(picture)
    with Image.open(picture) as image:
        assert image.width == 1280
        assert len(image.convert("RGB").getcolors(1_000_000) or ()) > 20
    assert check.phone_screenshot == str(tmp_path / "contact-phone.png")
    with Image.open(check.phone_screenshot) as image:
        assert image.width == 390
        assert len(image.convert("RGB").getcolors(1_000_000) or ()) > 20


def test_own_console_errors_and_missing_assets_fail(browser: BrowserChecker, web: WebServer) -> None:
    """Each once, in order, with names an agent can search for."""
    web.page(
        "/x",
        SEEN + "<img src='/logo.png'><script>console.error('menu missing'); console.error('menu missing')</script>",
    )
    check = look(browser, web)
    assert not check.ok
    assert set(check.errors) == {
        "Console error on /x: menu missing",
        "GET /logo.png on /x answered 404 Not Found",
    }


def test_an_own_request_that_breaks_off_fails(browser: BrowserChecker, web: WebServer) -> None:
    """The browser's network errors carry no status."""
    web.page("/x", SEEN + "<script src='/a.js'></script>")
    web.page("/a.js", "1", kind="text/javascript", breaks_off=True)
    check = look(browser, web)
    assert not check.ok
    assert check.errors[0].startswith("GET /a.js on /x failed: net::ERR_")


def test_warnings_and_messages_do_not_fail(browser: BrowserChecker, web: WebServer) -> None:
    """Consoles are noisy."""
    web.page("/x", SEEN + "<script>console.log('a'); console.warn('b'); console.info('error')</script>")
    assert look(browser, web).errors == ()


def test_an_unhandled_rejection_fails(browser: BrowserChecker, web: WebServer) -> None:
    """As the console would show it."""
    web.page("/x", SEEN + "<script>setTimeout(() => Promise.reject(new TypeError('no data')), 50)</script>")
    assert look(browser, web).errors[0].startswith("JavaScript error on /x: TypeError: no data")


@pytest.mark.parametrize(
    "script",
    [
        'console.error(\'Warning: Text content did not match. Server: "a" Client: "b"\')',
        "console.error('Hydration completed but contains mismatches.')",
        "throw new Error('Minified React error #418; visit https://react.dev/errors/418')",
    ],
)
def test_a_page_whose_script_makes_another_page_than_the_server_is_named_so(
    browser: BrowserChecker, web: WebServer, script: str
) -> None:
    """Each framework says it in its own way, and a number says little to an agent."""
    web.page("/x", SEEN + f"<script>{script}</script>")
    assert look(browser, web).errors[0].startswith("Hydration error on /x, the server's page is not the script's: ")


def test_a_thrown_text_fails_too(browser: BrowserChecker, web: WebServer) -> None:
    """Not everything thrown is an error object."""
    web.page("/x", SEEN + "<script>throw 'plain text'</script>")
    assert "plain text" in look(browser, web).errors[0]


def test_a_blank_page_fails(browser: BrowserChecker, web: WebServer) -> None:
    """A 200 with nothing to see."""
    web.page("/x", "<!doctype html><link rel=icon href='data:,'><script>1</script><p style='display:none'>x</p>")
    check = look(browser, web)
    assert check.errors == ("/x is blank: nothing can be seen on the page",)


def test_a_page_that_is_blank_on_a_phone_alone_fails(browser: BrowserChecker, web: WebServer) -> None:
    """A menu that covers all, a column that hides: seen at no desk."""
    web.page("/x", SEEN + "<style>@media (max-width: 600px) { p { display: none } }</style>")
    assert look(browser, web).errors == ("/x is blank at the width of a phone: nothing can be seen on the page",)


@pytest.mark.parametrize(
    "body", ["<svg width=50 height=50></svg>", "<script>setTimeout(() => document.body.append('late'), 900)</script>"]
)
def test_a_page_of_pictures_or_with_late_words_is_not_blank(browser: BrowserChecker, web: WebServer, body: str) -> None:
    """Pages drawn by scripts come a little after load."""
    web.page("/x", "<!doctype html><link rel=icon href='data:,'><body>" + body)
    assert look(browser, web).ok


def test_a_strict_content_policy_does_not_blind_the_check(browser: BrowserChecker, web: WebServer) -> None:
    """The questions asked of the page are not subject to its own rules."""
    web.page(
        "/x", "<!doctype html><p>Bonjour</p>", headers={"Content-Security-Policy": "default-src 'none'; img-src 'self'"}
    )
    web.page("/favicon.ico", b"\x00", kind="image/x-icon")
    assert look(browser, web).ok


def test_a_missing_favicon_is_only_noted(browser: BrowserChecker, web: WebServer) -> None:
    """The browser asks for it by itself."""
    web.page("/x", "<!doctype html><p>Bonjour</p>")
    assert look(browser, web).ok


def test_third_party_noise_is_listed_and_fails_nothing(
    browser: BrowserChecker, web: WebServer, other_web: WebServer
) -> None:
    """Analytics are blocked, and that is our doing (C106)."""
    host = other_web.base_url.removeprefix("http://")
    web.page(
        "/x", SEEN + f"<script src='{other_web.base_url}/stats.js'></script><img src='http://pixel.example/1.gif'>"
    )
    check = look(browser, web)
    assert check.ok
    assert set(check.errors) == {
        f"note: {host} was blocked on /x: another host",
        "note: pixel.example was blocked on /x: another host",
    }
    assert other_web.asked == []


def test_an_own_error_beside_third_party_noise_still_fails(browser: BrowserChecker, web: WebServer) -> None:
    """And says that the blocked script may be why."""
    web.page("/x", SEEN + "<script src='https://cdn.example/lib.js'></script><script>Lib.start()</script>")
    check = look(browser, web)
    assert not check.ok
    assert check.errors[0].startswith("JavaScript error on /x: ReferenceError: Lib is not defined")
    assert "scripts of cdn.example were blocked" in check.errors[0]


def test_no_request_reaches_another_host_by_a_redirect(
    browser: BrowserChecker, web: WebServer, other_web: WebServer
) -> None:
    """Interception does not see the hops of a redirect; the network itself is closed."""
    web.page("/x", SEEN + "<img src='/moved.png'>")
    web.redirect("/moved.png", other_web.base_url + "/tracker.png")
    look(browser, web)
    assert other_web.asked == []


@pytest.mark.parametrize(
    "leave", ["<script>location = '{url}'</script>", "<meta http-equiv=refresh content='0;url={url}'>"]
)
def test_a_page_that_leaves_for_another_host_fails(
    browser: BrowserChecker, web: WebServer, other_web: WebServer, leave: str
) -> None:
    """The visitor would not see this site."""
    other_web.page("/", SEEN)
    web.page("/x", SEEN + leave.replace("{url}", other_web.base_url + "/"))
    check = look(browser, web)
    assert not check.ok
    assert any("leaves the site for another host" in sentence for sentence in check.errors)
    assert other_web.asked == []


def test_a_server_that_redirects_to_another_host_fails(
    browser: BrowserChecker, web: WebServer, other_web: WebServer
) -> None:
    """The page itself, sent away by the server."""
    other_web.page("/", SEEN)
    web.redirect("/x", other_web.base_url + "/")
    check = look(browser, web)
    assert not check.ok
    assert len(check.errors) == 1
    assert other_web.asked == []


def test_an_allowed_host_is_asked(web: WebServer, other_web: WebServer) -> None:
    """A tenant's CDN can be let in by name."""
    other_web.page("/lib.js", "window.Lib = {start() {}}", kind="text/javascript")
    url = other_web.base_url.replace("127.0.0.1", "localhost")
    web.page("/x", SEEN + f"<script src='{url}/lib.js'></script><script>Lib.start()</script>")
    with BrowserChecker("chromium", allowed_hosts=["localhost"]) as own:
        assert look(own, web).errors == ()
    assert "/lib.js" in other_web.paths()


def test_dialogs_popups_and_downloads_hold_nothing_up(browser: BrowserChecker, web: WebServer, tmp_path: Path) -> None:
    """Nobody is there to click."""
    script = "window.onbeforeunload = () => 'stay'; window.open('/y')"
    web.page("/x", SEEN + f"<script>{script}</script>")
    web.page("/y", SEEN + "<script>alert('a'); confirm('b'); prompt('c')</script>")
    assert look(browser, web).ok
    assert look(browser, web, "/y").errors == (
        "/y opens a dialog by itself (alert): a",
        "/y opens a dialog by itself (confirm): b",
        "/y opens a dialog by itself (prompt): c",
    )
    web.page("/file", b"PK", kind="application/zip", headers={"Content-Disposition": "attachment"})
    check = look(browser, web, "/file")
    assert check.errors == ("/file answered with a download in place of a page",)


def test_an_endless_script_is_bounded_and_the_next_page_is_judged_fairly(web: WebServer) -> None:
    """The renderer never answers again; a fresh browser takes over."""
    web.page("/x", SEEN + "<script>while (true) {}</script>")
    web.page("/freezes-later", SEEN + "<script>onload = () => setTimeout(() => { while (true) {} }, 50)</script>")
    web.page("/y", SEEN)
    with BrowserChecker("chromium") as own:
        started = time.monotonic()
        check = look(own, web, timeout=1)
        assert check.errors[0].startswith("/x did not finish loading within 1 s")
        check = look(own, web, "/freezes-later", timeout=2)
        assert check.errors == ("/freezes-later stopped answering: a script on it does not come to an end",)
        assert time.monotonic() - started < 30
        assert look(own, web, "/y").ok


def test_a_page_that_never_finishes_says_what_was_missing(browser: BrowserChecker, web: WebServer) -> None:
    """Polling and hanging resources are told apart from a broken page (C103)."""
    web.page("/x", SEEN + "<img src='/slow.png'>")
    web.page("/slow.png", hangs=True)
    check = look(browser, web, timeout=1)
    assert check.errors == ("/x did not finish loading within 1 s; still loading: /slow.png",)


def test_a_page_that_polls_for_ever_passes(browser: BrowserChecker, web: WebServer) -> None:
    """Waiting for a quiet network would never end here (C103)."""
    web.page("/poll", "1", kind="text/plain")
    web.page("/hang", hangs=True)
    web.page("/x", SEEN + "<script>onload = () => { setInterval(() => fetch('/poll'), 50); fetch('/hang') }</script>")
    assert look(browser, web).ok


def test_a_page_with_an_open_socket_passes(browser: BrowserChecker, web: WebServer) -> None:
    """The network is never quiet, and the page is whole (C103)."""
    web.page("/live", socket=True)
    web.page("/poll", "1", kind="text/plain")
    web.page(
        "/x",
        SEEN + "<script>const s = new WebSocket(location.origin.replace('http', 'ws') + '/live');"
        "s.onopen = () => document.title = 'open'; s.onerror = () => console.error('no socket');"
        "setInterval(() => fetch('/poll'), 1000)</script>",
    )
    check = look(browser, web)
    assert (check.ok, check.errors) == (True, ())
    assert "/live" in web.paths()


def test_a_hanging_server_fails_in_time(browser: BrowserChecker, web: WebServer) -> None:
    """Not a byte comes."""
    web.page("/x", hangs=True)
    check = look(browser, web, timeout=1)
    assert (check.ok, check.status) == (False, None)
    assert check.errors == ("/x did not finish loading within 1 s; still loading: /x",)


def test_a_server_that_is_not_there_is_a_failed_check(browser: BrowserChecker) -> None:
    """No exception."""
    check = browser.check("http://127.0.0.1:2", "/x", timeout_seconds=5, screenshot_path=None)
    assert (check.ok, check.status) == (False, None)
    assert check.errors == ("/x could not be opened in the browser (ERR_CONNECTION_REFUSED)",)


@pytest.mark.parametrize("base_url", ["", "http://[", "file:///etc"])
def test_a_base_url_that_cannot_be_read_is_a_failed_check(browser: BrowserChecker, base_url: str) -> None:
    """Neither is a slip in the topology table."""
    check = browser.check(base_url, "/passwd", timeout_seconds=3, screenshot_path=None)
    assert not check.ok
    assert check.errors


def test_a_picture_that_cannot_be_taken_is_only_noted(browser: BrowserChecker, web: WebServer) -> None:
    """It says nothing about the page (C107)."""
    web.page("/x", SEEN)
    check = browser.check(web.base_url, "/x", timeout_seconds=5, screenshot_path=Path("/proc/no/x.png"))
    assert check.ok
    assert check.screenshot is None
    assert check.errors == ("note: the screenshot could not be taken",)


def test_a_picture_that_cannot_be_taken_hides_no_fault(browser: BrowserChecker, web: WebServer) -> None:
    """The other way round (C107)."""
    web.page("/x", SEEN + "<script>nothing()</script>")
    check = browser.check(web.base_url, "/x", timeout_seconds=5, screenshot_path=Path("/proc/no/x.png"))
    assert not check.ok
    assert check.errors[0].startswith("JavaScript error on /x: ReferenceError: nothing is not defined")
    assert check.errors[-1] == "note: the screenshot could not be taken"


def test_a_font_that_never_comes_does_not_fail_a_page(browser: BrowserChecker, web: WebServer, tmp_path: Path) -> None:
    """Screenshots wait for fonts; the wait is bounded (C107)."""
    style = "<style>@font-face{font-family:f;src:url(/f.woff2)} p{font-family:f}</style>"
    web.page(
        "/x",
        "<!doctype html><link rel=icon href='data:,'><p id=p>Bonjour</p>"
        f"<script>onload=()=>document.head.insertAdjacentHTML('beforeend',`{style}`)</script>",
    )
    web.page("/f.woff2", hangs=True)
    check = browser.check(web.base_url, "/x", timeout_seconds=5, screenshot_path=tmp_path / "x.png")
    assert check.ok
    assert check.errors == ()
    assert check.screenshot is not None


def test_a_long_page_makes_a_bounded_picture(browser: BrowserChecker, web: WebServer, tmp_path: Path) -> None:
    """Pictures are kept."""
    web.page("/x", SEEN + "<div style='height:90000px;background:linear-gradient(red,blue)'></div>")
    assert browser.check(web.base_url, "/x", timeout_seconds=5, screenshot_path=tmp_path / "x.png").ok
    with Image.open(tmp_path / "x.png") as image:
        assert image.size == (1280, 4000)


def test_a_flood_of_errors_is_bounded(browser: BrowserChecker, web: WebServer) -> None:
    """A loop of errors must not become a report of a thousand lines."""
    web.page("/x", SEEN + "<script>for (let i = 0; i < 500; i++) console.error(i, 'x'.repeat(10000))</script>")
    check = look(browser, web)
    assert len(check.errors) == 10
    assert all(len(sentence) <= 300 for sentence in check.errors)


def test_the_login_is_shown_to_the_site_alone(browser: BrowserChecker, web: WebServer) -> None:
    """The browser answers the site's challenge with the URL's user and password (C104)."""
    web.page("/x", "who?", status=401, headers={"WWW-Authenticate": "Basic realm=pre"})
    base_url = web.base_url.replace("http://", "http://claire:secret@")
    check = browser.check(base_url, "/x", timeout_seconds=5, screenshot_path=None)
    assert "Basic Y2xhaXJlOnNlY3JldA==" in {headers.get("Authorization") for _, headers in web.asked}
    assert "secret" not in repr(check)


def test_a_third_host_that_asks_for_a_login_is_not_given_the_sites(web: WebServer, other_web: WebServer) -> None:
    """Also where the client lets it in by name: credentials go to the site's origin and nowhere else (C104)."""
    challenge = {"WWW-Authenticate": "Basic realm=pre"}
    other_web.page("/pixel.gif", "who?", status=401, headers=challenge)
    url = other_web.base_url.replace("127.0.0.1", "localhost")
    web.page("/x", SEEN + f"<img src='{url}/pixel.gif'>")
    base_url = web.base_url.replace("http://", "http://claire:secret@")
    with BrowserChecker("chromium", allowed_hosts=["localhost"]) as own:
        check = own.check(base_url, "/x", timeout_seconds=5, screenshot_path=None)
    assert check.ok, check.errors
    assert other_web.paths().count("/pixel.gif") >= 1
    assert [headers for _, headers in other_web.asked if "Authorization" in headers] == []


def test_a_crashing_renderer_fails_the_page_alone(web: WebServer) -> None:
    """Closing a crashed page hangs; the whole browser is replaced (C108)."""
    web.page("/x", SEEN)
    with BrowserChecker("chromium") as own:
        assert look(own, web).ok
        web.page("/crash", SEEN + "<img src='/slow.png'>")
        web.before["/slow.png"] = kill_renderers
        check = look(own, web, "/crash", timeout=4)
        assert check.errors == ("/crash made the browser's renderer crash",)
        assert look(own, web).ok


def kill_renderers() -> None:
    for child in family(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess):  # zombies too
            if "--type=renderer" in child.cmdline():
                child.kill()


def family(pid: int) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    return found


def test_nothing_is_left_after_an_exception(web: WebServer) -> None:
    """Whatever ends the report ends the browser."""
    before = {child.pid for child in family(os.getpid())}
    children: list[psutil.Process] = []
    web.page("/x", SEEN)

    class Cancelled(BaseException):
        pass

    def report() -> None:
        with BrowserChecker("chromium") as own:
            assert look(own, web).ok
            children.extend(child for child in family(os.getpid()) if child.pid not in before)
            raise Cancelled

    with pytest.raises(Cancelled):
        report()
    assert len(children) > 3
    assert not any(is_running(child.pid) for child in children)


def test_nothing_is_left_after_an_interrupt_in_the_middle_of_a_look(web: WebServer) -> None:
    """A cancelled run raises while the page is still loading (C108)."""
    before = {child.pid for child in family(os.getpid())}
    children: list[psutil.Process] = []
    web.page("/x", SEEN + "<img src='/slow.png'>")
    web.page("/slow.png", hangs=True)

    def interrupt(_number: int, _frame: object) -> None:
        children.extend(child for child in family(os.getpid()) if child.pid not in before)
        raise KeyboardInterrupt

    def report() -> None:
        with BrowserChecker("chromium") as own:
            signal.setitimer(signal.ITIMER_REAL, 0.7)
            look(own, web, timeout=20)

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            report()
    finally:
        signal.signal(signal.SIGALRM, old)
    assert children
    # What was killed is gone a moment later on a busy machine, and so is a worker that the database happened to start meanwhile.
    wait_until(lambda: not any(is_running(child.pid) for child in children), 20)


def test_nothing_is_left_after_the_checker_itself_was_killed(web: WebServer) -> None:
    """SIGKILL leaves no chance to tidy: the browser's process notices by itself, even from within an endless script."""
    web.page("/x", SEEN + "<script>while (true) {}</script>")
    script = (
        "import sys; from atlas_pipeline.release.browser_check import BrowserChecker\n"
        "with BrowserChecker('chromium') as b: b.check(sys.argv[1], '/x', timeout_seconds=60, screenshot_path=None)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, web.base_url], cwd=ROOT)
    wait_until(lambda: "/x" in web.paths(), 20)
    children = family(process.pid)
    folder = Path(children[0].environ()["TMPDIR"])
    assert folder.is_dir()
    process.kill()
    process.wait()
    wait_until(lambda: not any(is_running(child.pid) for child in children), 20)
    assert not folder.exists()


def test_the_browser_gets_none_of_our_secrets(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs the tenant's scripts."""
    monkeypatch.setenv("ATLAS_SMTP_URL", "smtps://u:secret@mail.example")
    web.page("/x", SEEN)
    with BrowserChecker("chromium") as own:
        assert look(own, web).ok
        workers = [child for child in psutil.Process().children() if MARKER in child.environ()]
        assert workers
        assert not any("ATLAS_SMTP_URL" in child.environ() for child in workers)


@pytest.mark.parametrize(
    ("program", "reason"), [("no-such-chromium", "program_missing"), ("/bin/false", "did_not_start")]
)
def test_a_browser_that_cannot_be_started_is_coded(program: str, reason: str) -> None:
    """Never a pass, never a bare traceback."""
    with pytest.raises(NotConfigured) as caught, BrowserChecker(program):
        pass
    assert (caught.value.code, caught.value.detail) == ("browser_unavailable", {"reason": reason})
