"""The process that holds Chromium: one order a line, one look, one answer a line. ``browser_check`` starts it.

It is a process of its own because Playwright's calls can't be interrupted safely (after an exception from a signal the
next call never returns) and some have no time limit (a renderer in an endless loop answers nothing). Here a stuck look
is simply killed from outside, with Chromium and everything else that came out of it.

Orders: ``{base_url, route, timeout_seconds, screenshot, allowed_hosts}``. Answers: ``{ok, status, errors, screenshot,
spent}``; ``spent`` asks for a fresh process, since this one's browser may be stuck. What to do with an answer is not
decided here.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Error,
    FloatRect,
    HttpCredentials,
    Page,
    Route,
    ViewportSize,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from atlas_pipeline.release.address import credentials, origin, route_url, site_root
from atlas_pipeline.release.browser_watch import Watch
from atlas_pipeline.release.processes import MARKER, stop_others
from atlas_pipeline.release.wording import answered, one_line

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
SETTLE_MS = 250
ORPHAN_SECONDS = 2.0
ANSWER_MS = 1_000
CONTENT_MS = 1_500
SCREENSHOT_MS = 5_000
VIEWPORT: ViewportSize = {"width": 1280, "height": 800}
# A page without end would make a picture without end.
CLIP: FloatRect = {"x": 0, "y": 0, "width": 1280, "height": 4_000}
# Every host but the allowed ones is sent to a proxy that isn't there. Request interception alone does not see the hops
# of a redirect, so that a page could reach other hosts through its own server's 302.
DEAD_END = "http://127.0.0.1:1"
SOMETHING_TO_SEE = """() => {
  const body = document.body;
  if (!body) return false;
  if (body.innerText.trim()) return true;
  return [...body.querySelectorAll('img, svg, canvas, video, object, embed, iframe, input, button')]
    .some(element => { const box = element.getBoundingClientRect(); return box.width > 1 && box.height > 1; });
}"""


# Held by whoever ends the browser and removes its files: the other of the two threads must not end the process meanwhile.
_tidying = threading.Lock()


def main(arguments: list[str]) -> int:
    """Serve orders from standard input until it ends. Exit code 3: the browser could not be started.

    Arguments: Chromium's path, and the folder for temporary files, which is removed at the end.
    """
    executable, folder = arguments
    try:
        return _serve(executable, folder)
    finally:
        with _tidying:
            shutil.rmtree(folder, ignore_errors=True)


def _serve(executable: str, folder: str) -> int:
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS), chromium_sandbox=False)
        except Error as error:
            _say({"ready": False, "reason": one_line(error.message)})
            return 3
        _say({"ready": True})
        for order in _orders(folder):
            _say(look(browser, **order))
        browser.close()
    return 0


def look(
    browser: Browser,
    *,
    base_url: str,
    route: str,
    timeout_seconds: float,
    screenshot: str | None,
    allowed_hosts: list[str],
) -> dict[str, Any]:
    """One look at one route in a context of its own, which keeps cookies and broken pages from the next."""
    context = _context(browser, base_url, allowed_hosts)
    watch = Watch(base_url, route, allowed_hosts)
    context.route("**/*", lambda asked: _pass_or_block(asked, watch))
    page = context.new_page()
    watch.listen(page)
    status, alive = _visit(page, watch, route_url(base_url, route), timeout_seconds)
    taken = _screenshot(page, watch, screenshot) if alive and status is not None else None
    spent = not alive or watch.crashed
    if not spent:
        context.close()
    problems = watch.problems()
    errors = problems + watch.notes()
    return {"ok": not problems, "status": status, "errors": errors, "screenshot": taken, "spent": spent}


def _context(browser: Browser, base_url: str, allowed_hosts: list[str]) -> BrowserContext:
    site = origin(base_url)
    own = [] if site is None else [f"{site[0]}:{port}" for port in ((80, 443) if site[1] == 443 else (site[1],))]
    login = credentials(base_url)
    return browser.new_context(
        locale="fr-FR",
        viewport=VIEWPORT,
        service_workers="block",
        accept_downloads=False,
        proxy={"server": DEAD_END, "bypass": ",".join([*own, *allowed_hosts])},
        http_credentials=None if login is None else _login(base_url, *login),
    )


def _login(base_url: str, user: str, password: str) -> HttpCredentials:
    """Bound to the origin: no other host is ever shown the password."""
    return {"username": user, "password": password, "origin": site_root(base_url)}


def _pass_or_block(route: Route, watch: Watch) -> None:
    if watch.is_allowed(route.request.url):
        route.continue_()
    else:
        route.abort("blockedbyclient")


def _visit(page: Page, watch: Watch, url: str, timeout_seconds: float) -> tuple[int | None, bool]:
    """Go to the page and judge it. Returns the status (None: nothing came), and whether the renderer still answers."""
    finished = True
    try:
        page.goto(url, wait_until="load", timeout=timeout_seconds * 1000)
        # Not networkidle: it never comes on pages that poll, and elsewhere too early.
        page.wait_for_timeout(SETTLE_MS)
    except PlaywrightTimeout:
        finished = False
        watch.problem(f"{watch.name} did not finish loading within {timeout_seconds:g} s{watch.pending()}")
    except Error as error:
        watch.navigation_failed(error.message)
        return watch.main_status, not watch.crashed
    status = watch.main_status
    if status is None and not finished:
        return None, True  # still waiting for the server: there is no page to ask
    if not _answers(page):
        watch.problem(f"{watch.name} stopped answering: a script on it does not come to an end")
        return status, False
    if status is not None and status >= 400:
        watch.problem(f"{watch.name} answered {answered(status)} in the browser")
    elif finished and not _shows_something(page):
        watch.problem(f"{watch.name} is blank: nothing can be seen on the page")
    return status, True


def _answers(page: Page) -> bool:
    try:
        page.wait_for_function("() => true", timeout=ANSWER_MS)
    except Error:
        return False
    return True


def _shows_something(page: Page) -> bool:
    try:
        page.wait_for_function(SOMETHING_TO_SEE, timeout=CONTENT_MS)
    except Error:
        return False
    return True


def _screenshot(page: Page, watch: Watch, path: str | None) -> str | None:
    """Take the picture. That it fails says nothing about the page: a note."""
    if path is None:
        return None
    try:
        page.screenshot(path=path, full_page=True, clip=CLIP, timeout=SCREENSHOT_MS)
    except (Error, OSError):
        watch.note("the screenshot could not be taken")
        return None
    return path


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
