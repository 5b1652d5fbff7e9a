"""All checks of one attempt: HTTP over every route, then Chromium over every route.

Which routes and what the result means is decided by the caller (``decide``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import QaResult, RouteCheck
from atlas_pipeline.release.browser_check import LEVEL, BrowserChecker
from atlas_pipeline.release.http_check import check_http, new_client


def run_qa(
    base_url: str,
    routes: Sequence[str],
    *,
    chromium: str,
    screenshot_dir: Path,
    timeout_seconds: float,
    allowed_hosts: Sequence[str] = (),
) -> QaResult:
    """Check every route on both levels, each once. ``timeout_seconds`` is for one route on one level.

    Without routes nothing is checked and the result is not ok. A browser that can't be started fails every route it
    was to look at (``browser_unavailable``). ``screenshot_dir`` is made where it is missing.
    """
    unique = list(dict.fromkeys(routes))
    if not unique:
        return QaResult(())
    with new_client(base_url) as client:
        checks = [check_http(base_url, route, timeout_seconds=timeout_seconds, client=client) for route in unique]
    try:
        screenshot_dir.mkdir(parents=True, exist_ok=True)
        with BrowserChecker(chromium, allowed_hosts=allowed_hosts) as browser:
            for number, route in enumerate(unique, start=1):
                path = screenshot_dir / screenshot_name(number, route)
                checks.append(browser.check(base_url, route, timeout_seconds=timeout_seconds, screenshot_path=path))
    except NotConfigured as error:
        looked_at = {check.route for check in checks if check.level == LEVEL}
        checks += [_not_looked_at(route, error) for route in unique if route not in looked_at]
    return QaResult(tuple(checks))


def screenshot_name(number: int, route: str) -> str:
    """A file name for the picture of a route: its number keeps two alike apart."""
    words = re.sub(r"[^a-z0-9]+", "-", route.lower()).strip("-")[:60]
    return f"{number:02d}-{words or 'home'}.png"


def _not_looked_at(route: str, error: NotConfigured) -> RouteCheck:
    reason = error.detail.get("reason")
    sentence = f"{error.code}: the page was not looked at, the browser could not be started ({reason})"
    return RouteCheck(route=route, level=LEVEL, ok=False, status=None, milliseconds=0, errors=(sentence,))
