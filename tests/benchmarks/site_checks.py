"""How long the checks of 10 routes take, beside a bare Playwright script that loads the same pages and takes the same pictures.

    python -m tests.benchmarks.site_checks [ROUNDS]

Both in one run on one machine, in turns, each in a process of its own. The script starts Chromium, opens each page in one
context, waits for ``load`` and takes both pictures, and does nothing else: it judges nothing, blocks nothing, limits nothing
and asks nothing over HTTP beforehand. Prints a table with the ratio of the medians; asserts nothing about time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from atlas_pipeline.release.qa import Site, run_qa
from tests.fixtures_release import WebServer, served

ROUTES = [f"/page-{number}" for number in range(10)]
BARE = """
import sys
from playwright.sync_api import sync_playwright

base, folder, *routes = sys.argv[1:]
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--disable-gpu", "--disable-dev-shm-usage"])
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    for number, route in enumerate(routes):
        page = context.new_page()
        page.goto(base + route, wait_until="load")
        for name, width, height in (("desktop", 1280, 800), ("phone", 390, 844)):
            page.set_viewport_size({"width": width, "height": height})
            clip = {"x": 0, "y": 0, "width": width, "height": 4000}
            page.screenshot(path=f"{folder}/{number}-{name}.png", full_page=True, clip=clip)
        page.close()
    browser.close()
"""
STYLE = "body{font-family:sans-serif;margin:2em} section{display:flex;flex-wrap:wrap;gap:1em} article{width:18em;padding:1em;border:1px solid #999}"


def script(web: WebServer) -> None:
    """Ten pages as a small site has them: a style sheet, a script that draws, images, some screens of text."""
    web.page("/style.css", STYLE, kind="text/css")
    web.page(
        "/app.js", "addEventListener('load', () => document.querySelector('h1').append(' !'))", kind="text/javascript"
    )
    picture = "<svg xmlns='http://www.w3.org/2000/svg' width='300' height='200'><rect width='300' height='200' fill='{}'/></svg>"
    for number in range(4):
        web.page(f"/{number}.svg", picture.format(("teal", "olive", "navy", "maroon")[number]), kind="image/svg+xml")
    cards = "".join(
        f"<article><img src='/{n % 4}.svg' width=260><h2>Carte {n}</h2><p>{'Du bois, posé pour longtemps. ' * 12}</p></article>"
        for n in range(16)
    )
    for route in ROUTES:
        web.page(
            route,
            "<!doctype html><title>x</title><link rel=icon href='data:,'><link rel=stylesheet href=/style.css>"
            f"<meta name=viewport content='width=device-width'><h1>{route}</h1><section>{cards}</section><script src=/app.js></script>",
        )


def bare(base_url: str, folder: Path) -> float:
    """Seconds of the bare script."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", BARE, base_url, str(folder), *ROUTES], check=True)
    return time.monotonic() - started


def checked(base_url: str, folder: Path) -> float:
    """Seconds of the whole report: HTTP and browser, judged."""
    started = time.monotonic()
    result = run_qa(Site(base_url), ROUTES, chromium="chromium", screenshot_dir=folder, timeout_seconds=20)
    if not result.ok:
        raise SystemExit(f"the pages are sound, yet: {[check.errors for check in result.checks if not check.ok][:3]}")
    return time.monotonic() - started


def main(rounds: int) -> None:
    """Measure in turns and print the table."""
    times: dict[str, list[float]] = {"bare script": [], "checks": []}
    with served() as web, tempfile.TemporaryDirectory() as folder:
        script(web)
        for number in range(rounds + 1):
            for name, work in (("bare script", bare), ("checks", checked)):
                place = Path(folder) / f"{name[0]}{number}"
                place.mkdir()
                seconds = work(web.base_url, place)
                if len(list(place.iterdir())) != 2 * len(ROUTES):
                    raise SystemExit(f"{name}: {len(list(place.iterdir()))} pictures")
                if number:  # the first start after others is slower for whoever comes first
                    times[name].append(seconds)
    print(f"{len(ROUTES)} routes, {rounds} rounds\n{'':<12} {'median s':>9} {'least s':>9}")
    for name, found in times.items():
        print(f"{name:<12} {statistics.median(found):>9.2f} {min(found):>9.2f}")
    medians = {name: statistics.median(found) for name, found in times.items()}
    least = {name: min(found) for name, found in times.items()}
    ratio = medians["checks"] / medians["bare script"]
    print(f"ratio        {ratio:>9.2f} {least['checks'] / least['bare script']:>9.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
