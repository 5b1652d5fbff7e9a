"""All checks of one attempt: HTTP over every route, then Chromium over every route.

Which routes and what the result means is decided by the caller (``decide``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import QaResult, RouteCheck
from atlas_pipeline.release.browser_check import LEVEL, BrowserChecker
from atlas_pipeline.release.http_check import Limits, check_http, new_client


@dataclass(frozen=True)
class Site:
    """The site to check and how to come to it.

    ``base_url`` may carry the user and password of HTTP auth. ``allowed_hosts`` (names) may be asked by its pages besides
    itself. ``ca_file`` holds certificate authorities that are trusted besides the public ones.
    """

    base_url: str = field(repr=False)
    allowed_hosts: tuple[str, ...] = ()
    ca_file: Path | None = None


def run_qa(
    site: Site,
    routes: Sequence[str],
    *,
    chromium: str,
    screenshot_dir: Path,
    timeout_seconds: float,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    only_answering: bool = False,
) -> QaResult:
    """Check every route on both levels, each once. ``timeout_seconds`` is for one route on one level.

    Without routes nothing is checked and the result is not ok. A browser that can't be started fails every route it
    was to look at (``browser_unavailable``). ``only_answering``: routes that gave no answer over HTTP are not looked at,
    and no browser is started where none did. ``screenshot_dir`` is made where it is missing. Raises NotConfigured
    (``qa_ca_file_unreadable``).
    """
    unique = list(dict.fromkeys(routes))
    if not unique:
        return QaResult(())

    def over_http() -> list[RouteCheck]:
        with new_client(site.base_url, ca_file=site.ca_file) as client:
            return [
                check_http(site.base_url, route, timeout_seconds=timeout_seconds, client=client, limits=limits)
                for route in unique
            ]

    if only_answering:
        checks = over_http()
        unique = [check.route for check in checks if check.status is not None]
        if unique:
            checks += _in_browser(site, unique, chromium, screenshot_dir, timeout_seconds, lambda: None)
        return QaResult(tuple(checks))
    # The browser starts meanwhile, and looks only then: a page must not be slow because it is asked for twice at once.
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(over_http)
        seen = _in_browser(site, unique, chromium, screenshot_dir, timeout_seconds, lambda: _wait(future))
        return QaResult((*future.result(), *seen))


def _wait(future: Future[list[RouteCheck]]) -> None:
    future.exception()


def _in_browser(
    site: Site,
    routes: Sequence[str],
    chromium: str,
    screenshot_dir: Path,
    timeout_seconds: float,
    before_looking: Callable[[], None],
) -> list[RouteCheck]:
    seen: list[RouteCheck] = []
    try:
        screenshot_dir.mkdir(parents=True, exist_ok=True)
        with BrowserChecker(chromium, allowed_hosts=site.allowed_hosts, ca_file=site.ca_file) as browser:
            before_looking()
            for number, route in enumerate(routes, start=1):
                path = screenshot_dir / screenshot_name(number, route)
                seen.append(browser.check(site.base_url, route, timeout_seconds=timeout_seconds, screenshot_path=path))
    except NotConfigured as error:
        seen += [_not_looked_at(route, error) for route in routes[len(seen) :]]
    return seen


def screenshot_name(number: int, route: str) -> str:
    """A file name for the picture of a route: its number keeps two alike apart."""
    words = re.sub(r"[^a-z0-9]+", "-", route.lower()).strip("-")[:60]
    return f"{number:02d}-{words or 'home'}.png"


def _not_looked_at(route: str, error: NotConfigured) -> RouteCheck:
    reason = error.detail.get("reason")
    sentence = f"{error.code}: the page was not looked at, the browser could not be started ({reason})"
    return RouteCheck(route=route, level=LEVEL, ok=False, status=None, milliseconds=0, errors=(sentence,))
