"""The process that holds Chromium: one order a line, one look, one answer a line. ``browser_check`` starts it.

It is a process of its own because Playwright's calls can't be interrupted safely (after an exception from a signal the
next call never returns) and some have no time limit (a renderer in an endless loop answers nothing). Here a stuck look
is simply killed from outside, with Chromium and everything else that came out of it.

Orders: ``{base_url, route, timeout_seconds, screenshots, allowed_hosts}``, ``screenshots`` being a path for each width or
nothing. Answers: ``{ok, status, errors, screenshots, spent}``; ``spent`` asks for a fresh process, since this one's
browser may be stuck. What to do with an answer is not decided here.

A page is loaded once and looked at twice, at the width of a desk and at that of a phone. The time that its late errors
are waited for is the time that the pictures take anyway.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Error,
    FloatRect,
    HttpCredentials,
    Page,
    ViewportSize,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.release.address import credentials, origin, route_url, site_root
from atlas_pipeline.release.authority import trust
from atlas_pipeline.release.browser_watch import Watch
from atlas_pipeline.release.processes import MARKER, stop_others
from atlas_pipeline.release.wording import answered

FLAGS = (
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-sync",
    "--disable-extensions",
    "--disable-domain-reliability",
)
SETTLE_SECONDS = 0.25
ORPHAN_SECONDS = 2.0
ANSWER_MS = 1_000
# Pages drawn by scripts come a little after load; what another width hides is hidden at once.
CONTENT_MS = {"desktop": 1_500, "phone": 400}
SCREENSHOT_MS = 5_000
# (name, width, height): a laptop, and the commonest phones. Pictures end at 4000 pixels: a page may have no end.
WIDTHS = (("desktop", 1280, 800), ("phone", 390, 844))
PICTURE_HEIGHT = 4_000
# Every host but the allowed ones is sent to a proxy that isn't there: the hops of redirects too, which an interception
# of requests does not see, and without a word to this process for each request.
DEAD_END = "http://127.0.0.1:1"
# Null until something can be seen; then the images of the page that arrived and are no pictures.
LOOK = """() => {
  const body = document.body;
  if (!body || getComputedStyle(body).display === 'none') return null;
  const visible = element => { const box = element.getBoundingClientRect(); return box.width > 1 && box.height > 1; };
  const shows = body.innerText.trim()
    || [...body.querySelectorAll('img, svg, canvas, video, object, embed, iframe, input, button')].some(visible);
  if (!shows) return null;
  const broken = [...document.images].filter(image => image.complete && image.currentSrc && !image.naturalWidth);
  return {broken: broken.map(image => image.currentSrc).slice(0, 10)};
}"""


# Held by whoever ends the browser and removes its files: the other of the two threads must not end the process meanwhile.
_tidying = threading.Lock()


def main(arguments: list[str]) -> int:
    """Serve orders from standard input until it ends. Exit code 3: the browser could not be started.

    Arguments: Chromium's path, the folder for temporary files, which is removed at the end, and the file of a
    certificate authority to trust, or nothing.
    """
    executable, folder, ca_file = arguments
    try:
        return _serve(executable, folder, ca_file)
    finally:
        with _tidying:
            shutil.rmtree(folder, ignore_errors=True)


def _serve(executable: str, folder: str, ca_file: str) -> int:
    try:
        home = _home(folder, ca_file)
    except NotConfigured as error:
        _say({"ready": False, "reason": error.code})
        return 3
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(
                executable_path=executable, args=list(FLAGS), chromium_sandbox=False, env={**os.environ, "HOME": home}
            )
        except Error:
            _say({"ready": False, "reason": "did_not_start"})
            return 3
        _say({"ready": True})
        eyes = Eyes(browser)
        for order in _orders(folder):
            _say(eyes.look(**order))
        browser.close()
    return 0


def _home(folder: str, ca_file: str) -> str:
    """The browser's home folder: the user's, or one of its own in which it trusts another authority."""
    if not ca_file:
        return os.environ.get("HOME", folder)
    trust(Path(folder), Path(ca_file))
    return folder


class Eyes:
    """Looks at routes, in one tab as long as nothing was wrong with a page.

    A tab costs a quarter of a second on two cores, as much as a page. After a page with a problem the next one gets a
    new tab in a new context, so that no page is blamed for the one before it; cookies are forgotten after each.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._tab: tuple[BrowserContext, Page, object] | None = None

    def look(
        self,
        *,
        base_url: str,
        route: str,
        timeout_seconds: float,
        screenshots: dict[str, str],
        allowed_hosts: list[str],
    ) -> dict[str, Any]:
        """One look at one route: the answer to an order."""
        context, page, purpose = self._tab_for(base_url, allowed_hosts)
        watch = Watch(base_url, route, allowed_hosts)
        watch.listen(page)
        status, alive, taken = _visit(page, watch, route_url(base_url, route), timeout_seconds, screenshots)
        watch.leave(page)
        problems = watch.problems()
        spent = not alive or watch.crashed
        if not spent and problems:
            context.close()
        elif not spent:
            context.clear_cookies()
            self._tab = (context, page, purpose)
        errors = problems + watch.notes()
        return {"ok": not problems, "status": status, "errors": errors, "screenshots": taken, "spent": spent}

    def _tab_for(self, base_url: str, allowed_hosts: list[str]) -> tuple[BrowserContext, Page, object]:
        purpose = (base_url, allowed_hosts)
        tab, self._tab = self._tab, None
        if tab is not None and tab[2] == purpose:
            tab[1].set_viewport_size(_viewport(WIDTHS[0]))
            return tab
        if tab is not None:
            tab[0].close()
        context = _context(self._browser, base_url, allowed_hosts)
        return context, context.new_page(), purpose


def _context(browser: Browser, base_url: str, allowed_hosts: list[str]) -> BrowserContext:
    site = origin(base_url)
    own = [] if site is None else [f"{site[0]}:{port}" for port in ((80, 443) if site[1] == 443 else (site[1],))]
    login = credentials(base_url)
    return browser.new_context(
        locale="fr-FR",
        viewport=_viewport(WIDTHS[0]),
        service_workers="block",
        accept_downloads=False,
        proxy={"server": DEAD_END, "bypass": ",".join([*own, *allowed_hosts])},
        http_credentials=None if login is None else _login(base_url, *login),
    )


def _viewport(width: tuple[str, int, int]) -> ViewportSize:
    return {"width": width[1], "height": width[2]}


def _login(base_url: str, user: str, password: str) -> HttpCredentials:
    """Bound to the origin: no other host is ever shown the password."""
    return {"username": user, "password": password, "origin": site_root(base_url)}


def _visit(
    page: Page, watch: Watch, url: str, timeout_seconds: float, screenshots: dict[str, str]
) -> tuple[int | None, bool, dict[str, str]]:
    """Go to the page and judge it: its status (None: nothing came), whether its renderer still answers, the pictures."""
    finished = True
    if not watch.is_own(url):
        watch.problem(f"{watch.name} can't be opened: the site's address can't be read")
        return None, True, {}
    try:
        # Not networkidle: it never comes on pages that poll, and elsewhere too early.
        page.goto(url, wait_until="load", timeout=timeout_seconds * 1000)
    except PlaywrightTimeout:
        finished = False
        watch.problem(f"{watch.name} did not finish loading within {timeout_seconds:g} s{watch.pending()}")
    except Error as error:
        watch.navigation_failed(error.message)
        return watch.main_status, not watch.crashed, {}
    settled = time.monotonic() + SETTLE_SECONDS
    status = watch.main_status
    if status is None and not finished:
        return None, True, {}  # still waiting for the server: there is no page to ask
    if not finished and not _answers(page, watch):
        return status, False, {}
    taken: dict[str, str] = {}
    for width in WIDTHS:
        alive = _look_at(page, watch, width, screenshots.get(width[0]), taken, judged=finished)
        if not alive:
            return status, False, taken
    with contextlib.suppress(Error):
        page.wait_for_timeout(max(1.0, (settled - time.monotonic()) * 1000))
    # Who drew a picture at the second width has answered.
    if WIDTHS[-1][0] not in taken and not _answers(page, watch):
        return status, False, taken
    if status is not None and status >= 400:
        watch.problem(f"{watch.name} answered {answered(status)} in the browser")
    return status, True, taken


def _look_at(
    page: Page, watch: Watch, width: tuple[str, int, int], path: str | None, taken: dict[str, str], *, judged: bool
) -> bool:
    """One width: what can be seen, and the picture. False where the renderer does not answer any more."""
    name = width[0]
    try:
        if width is not WIDTHS[0]:
            if not _answers(page, watch):  # the next call would wait for ever
                return False
            page.set_viewport_size(_viewport(width))
        seen = page.wait_for_function(LOOK, timeout=CONTENT_MS[name]).json_value()
        watch.images(seen["broken"])
    except Error:
        if not _answers(page, watch):
            return False
        if judged and (watch.main_status or 0) < 400:
            watch.blank(name)
    if path is not None:
        if _screenshot(page, width, path):
            taken[name] = path
        elif not _answers(page, watch):
            return False
        else:
            # That it fails says nothing about the page.
            watch.note("the screenshot could not be taken")
    return True


def _answers(page: Page, watch: Watch) -> bool:
    try:
        page.wait_for_function("() => true", timeout=ANSWER_MS)
    except Error:
        if not watch.crashed:
            watch.problem(f"{watch.name} stopped answering: a script on it does not come to an end")
        return False
    return True


def _screenshot(page: Page, width: tuple[str, int, int], path: str) -> bool:
    clip: FloatRect = {"x": 0, "y": 0, "width": width[1], "height": PICTURE_HEIGHT}
    try:
        page.screenshot(path=path, full_page=True, clip=clip, timeout=SCREENSHOT_MS)
    except (Error, OSError):
        return False
    return True


def _orders(folder: str) -> Iterator[dict[str, Any]]:
    lines: SimpleQueue[str] = SimpleQueue()
    threading.Thread(target=_listen, args=(lines, folder), daemon=True).start()
    while line := lines.get():
        yield json.loads(line)


def _listen(lines: SimpleQueue[str], folder: str) -> None:
    """Queue what comes in, and end everything once nobody can order any more, even from within a look that is stuck.

    The parent may have been killed, and then nobody else would end the browser and remove its files.
    """
    for line in sys.stdin:
        lines.put(line)
    lines.put("")
    time.sleep(ORPHAN_SECONDS)
    with _tidying:
        # Descendants would not do: a browser's helpers put themselves under init, and write into the folder to be removed.
        stop_others(os.environ[MARKER])
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(4)


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
