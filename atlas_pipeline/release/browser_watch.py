"""Collects what a page does while it is looked at, and sorts it: problems of the site, notes about everyone else.

Errors are judged by whose they are. A broken own script, asset or answer fails the page; a third party that was
blocked or is down is worth a line. Driving the browser is ``browser_worker``'s part.
"""

from __future__ import annotations

import re

from playwright.sync_api import ConsoleMessage, Dialog, Page, Request, Response
from playwright.sync_api import Error as PlaywrightError

from atlas_pipeline.release.address import host_name, origin, path_name
from atlas_pipeline.release.wording import answered, note, one_line

MAX_SENTENCES = 10


class Watch:
    """The ears on one page. ``problems`` and ``notes`` are sentences, each at most 10."""

    def __init__(self, base_url: str, route: str, allowed_hosts: list[str]) -> None:
        self.name = one_line(route, 120)
        self.crashed = False
        self.main_status: int | None = None
        self._site = origin(base_url)
        self._allowed_hosts = {host.lower() for host in allowed_hosts}
        self._problems: dict[str, None] = {}
        self._notes: dict[str, None] = {}
        self._pending: dict[Request, None] = {}
        self._blocked_scripts: set[str] = set()
        self._page: Page | None = None

    def listen(self, page: Page) -> None:
        """Attach to a page before it goes anywhere."""
        self._page = page
        page.on("pageerror", self._on_page_error)
        page.on("console", self._on_console)
        page.on("request", self._on_request)
        page.on("requestfinished", lambda request: self._pending.pop(request, None))
        page.on("requestfailed", self._on_request_failed)
        page.on("response", self._on_response)
        page.on("dialog", _dismiss)
        page.on("popup", lambda popup: popup.close())
        page.on("crash", self._on_crash)

    def is_own(self, url: str) -> bool:
        """Whether the address is the tenant's site."""
        return origin(url) == self._site

    def is_allowed(self, url: str) -> bool:
        """Whether the browser may ask for the address: the site, the allowed hosts, and what needs no network."""
        found = origin(url)
        if found is None:
            return url.startswith(("data:", "blob:", "about:"))
        return found == self._site or found[0] in self._allowed_hosts

    def problem(self, sentence: str) -> None:
        """Something that fails the page."""
        if len(self._problems) < MAX_SENTENCES:
            self._problems[one_line(sentence)] = None

    def note(self, sentence: str) -> None:
        """Something worth a line."""
        if len(self._notes) < MAX_SENTENCES:
            self._notes[note(sentence)] = None

    def problems(self) -> list[str]:
        """What fails the page, in order of appearance, with a hint where blocking may have caused it."""
        return [self._with_hint(sentence) for sentence in self._problems]

    def notes(self) -> list[str]:
        """What fails nothing."""
        return list(self._notes)

    def pending(self) -> str:
        """``; still loading: /a, /b`` for the sentence on a page that did not finish, or nothing."""
        waiting = list(dict.fromkeys(path_name(request.url) for request in self._pending))[:3]
        return f"; still loading: {', '.join(waiting)}" if waiting else ""

    def navigation_failed(self, message: str) -> None:
        """The browser could not show the page at all."""
        if self.crashed or self._problems:
            return
        if "Download is starting" in message:
            self.problem(f"{self.name} answered with a download in place of a page")
            return
        known = re.search(r"net::(ERR_\w+)", message)
        reason = known.group(1) if known else one_line(message, 80)
        self.problem(f"{self.name} could not be opened in the browser ({reason})")

    def _with_hint(self, sentence: str) -> str:
        if not self._blocked_scripts or "is not defined" not in sentence:
            return sentence
        hosts = ", ".join(sorted(self._blocked_scripts)[:3])
        return one_line(f"{sentence} (scripts of {hosts} were blocked during the check, which may be the cause)", 450)

    def _is_main(self, request: Request) -> bool:
        try:
            return request.is_navigation_request() and self._page is not None and request.frame == self._page.main_frame
        except PlaywrightError:
            return False  # the frame of a request that came before its page has no name yet

    def _on_page_error(self, error: PlaywrightError) -> None:
        message = error.message or "an error without a message"
        if error.name and not message.startswith(f"{error.name}:"):
            message = f"{error.name}: {message}"
        self.problem(f"JavaScript error on {self.name}: {one_line(message, 200)}{_place(error.stack)}")

    def _on_console(self, message: ConsoleMessage) -> None:
        # The browser's own line on a resource that failed is already known from the request itself.
        if message.type != "error" or message.text.startswith("Failed to load resource"):
            return
        url = message.location.get("url", "")
        if not url or self.is_own(url):
            self.problem(f"Console error on {self.name}: {one_line(message.text, 200)}")
        else:
            self.note(f"console error of {host_name(url)} on {self.name}")

    def _on_request(self, request: Request) -> None:
        self._pending[request] = None

    def _on_request_failed(self, request: Request) -> None:
        self._pending.pop(request, None)
        if not self.is_allowed(request.url):
            self._on_blocked(request)
        elif not self.is_own(request.url):
            self.note(f"{host_name(request.url)} could not be reached on {self.name}")
        elif not self._is_main(request):
            failure = request.failure or "unknown reason"
            # A page that moves on breaks off its own requests.
            record = self.note if "ERR_ABORTED" in failure else self.problem
            record(f"{request.method} {path_name(request.url)} on {self.name} failed: {failure}")

    def _on_blocked(self, request: Request) -> None:
        host = host_name(request.url)
        if self._is_main(request):
            self.problem(f"{self.name} leaves the site for another host: {host}")
            return
        if request.resource_type == "script":
            self._blocked_scripts.add(host)
        self.note(f"{host} was blocked on {self.name}: another host")

    def _on_response(self, response: Response) -> None:
        request = response.request
        if self._is_main(request):
            self.main_status = response.status
        elif response.status >= 400:
            sentence = f"{request.method} {path_name(response.url)} on {self.name} answered {answered(response.status)}"
            # The browser asks for the icon by itself; no page of the site has to have one.
            harmless = not self.is_own(response.url) or path_name(response.url) == "/favicon.ico"
            (self.note if harmless else self.problem)(sentence)

    def _on_crash(self, _page: Page) -> None:
        self.crashed = True
        self.problem(f"{self.name} made the browser's renderer crash")


def _dismiss(dialog: Dialog) -> None:
    dialog.dismiss()


def _place(stack: str | None) -> str:
    """`` (at /static/devis.js:12:3)`` from the first frame of a stack, or nothing."""
    found = re.search(r"(https?://[^\s()]+?):(\d+):(\d+)", stack or "")
    return f" (at {path_name(found.group(1))}:{found.group(2)}:{found.group(3)})" if found else ""
