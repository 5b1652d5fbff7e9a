"""Collects what a page does while it is looked at, and sorts it: problems of the site, notes about everyone else.

Errors are judged by whose they are. A broken own script, asset or answer fails the page; a third party that was
blocked or is down is worth a line. Driving the browser is ``browser_worker``'s part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from playwright.sync_api import ConsoleMessage, Dialog, Page, Request, Response
from playwright.sync_api import Error as PlaywrightError

from atlas_pipeline.release.address import host_name, origin, path_name
from atlas_pipeline.release.wording import answered, note, one_line

MAX_SENTENCES = 10
# What frameworks say, as errors or as mere warnings, when the page that the server sent is not the one that its scripts make.
_HYDRATION = re.compile(
    r"hydrat\w*.{0,200}(mismatch|fail|error|did not match|didn't match)|did not match.{0,40}(server|client)",
    re.I | re.S,
)
_REACT_HYDRATION = re.compile(r"Minified React error #4(18|19|2[1-5])\b")
_ADDRESS = re.compile(r"https?://[^\s()]+")
_SOCKET = re.compile(r"WebSocket connection to '([^']+)' failed")


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
        self._asked: set[Request] = set()
        self._pending: dict[Request, None] = {}
        self._blocked_scripts: set[str] = set()
        self._blocked_calls: set[str] = set()
        self._whole: set[str] = set()
        self._page: Page | None = None
        self._ears: dict[str, Callable[[Any], object]] = {
            "pageerror": self._on_page_error,
            "console": self._on_console,
            "request": self._on_request,
            "requestfinished": self._on_request_finished,
            "requestfailed": self._on_request_failed,
            "response": self._on_response,
            "dialog": self._on_dialog,
            "popup": _close,
            "crash": self._on_crash,
        }

    def listen(self, page: Page) -> None:
        """Attach to a page before it goes anywhere."""
        self._page = page
        for event, ear in self._ears.items():
            page.on(event, ear)  # type: ignore[call-overload]  # the overloads want each event's name as a literal

    def leave(self, page: Page) -> None:
        """Listen no more; what the page still does is nobody's."""
        for event, ear in self._ears.items():
            page.remove_listener(event, ear)

    def is_own(self, url: str) -> bool:
        """Whether the address is the tenant's site."""
        return self._site is not None and origin(url) == self._site

    def is_allowed(self, url: str) -> bool:
        """Whether the browser may ask for the address: the site, the allowed hosts, and what needs no network."""
        found = origin(url)
        if found is None:
            return url.startswith(("data:", "blob:", "about:"))
        return found == self._site or found[0] in self._allowed_hosts

    def blank(self, width: str) -> None:
        """At this width nothing can be seen; said once of a page that is blank at every width."""
        everywhere = f"{self.name} is blank: nothing can be seen on the page"
        if width == "desktop":
            self.problem(everywhere)
        elif one_line(everywhere) not in self._problems:
            self.problem(f"{self.name} is blank at the width of a {width}: nothing can be seen on the page")

    def images(self, broken: list[str]) -> None:
        """These images arrived and can't be shown; those that did not arrive at all are known from their requests."""
        for url in broken:
            if url in self._whole and not path_name(url).partition("?")[0].endswith(".svg"):
                self.problem(f"image {path_name(url)} on {self.name} is broken: what the server sent is no picture")

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
        if self._blocked_calls and "Failed to fetch" in message:
            # Our doing: on the open network the call would have gone through.
            self.note(
                f"a call to {', '.join(sorted(self._blocked_calls)[:3])} was blocked on {self.name} and not caught"
            )
        elif self._is_all_foreign(error.stack):
            self.note(
                f"JavaScript error in a script of {host_name(_ADDRESS.findall(error.stack or '')[0])} on {self.name}"
            )
        elif _REACT_HYDRATION.search(message) or _HYDRATION.search(message):
            self._hydration(message)
        else:
            self.problem(f"JavaScript error on {self.name}: {one_line(message, 200)}{_place(error.stack)}")

    def _is_all_foreign(self, stack: str | None) -> bool:
        """Whether an error came about without a line of the site's own: where one called, the site may call wrongly."""
        places = _ADDRESS.findall(stack or "")
        return bool(places) and not any(map(self.is_own, places))

    def _hydration(self, message: str) -> None:
        self.problem(f"Hydration error on {self.name}, the server's page is not the script's: {one_line(message, 160)}")

    def _on_console(self, message: ConsoleMessage) -> None:
        text, url = message.text, message.location.get("url", "")
        # The browser's own line on a resource that failed is already known from the request itself.
        if message.type not in {"error", "warning"} or text.startswith("Failed to load resource"):
            return
        socket = _SOCKET.match(text)
        if (url and not self.is_own(url)) or (socket and not self.is_own(socket.group(1))):
            if message.type == "error":
                self.note(f"console error of {host_name(socket.group(1) if socket else url)} on {self.name}")
        elif text.startswith("Mixed Content:"):
            self.problem(
                f"Mixed content on {self.name}, a page over https asks for something over http: {_address_in(text)}"
            )
        elif _HYDRATION.search(text) or _REACT_HYDRATION.search(text):
            self._hydration(text)
        elif message.type == "error" and "Content Security Policy" in text:
            if text.startswith("[Report Only]"):
                self.note(f"{self.name} would break its own Content-Security-Policy: {one_line(text, 160)}")
            else:
                self.problem(f"{self.name} breaks its own Content-Security-Policy: {one_line(text, 200)}")
        elif message.type == "error" and not self._is_of_the_blocked(text):
            self.problem(f"Console error on {self.name}: {one_line(text, 200)}")

    def _is_of_the_blocked(self, text: str) -> bool:
        """What the browser says of a call across origins that we ourselves did not let out."""
        called = re.match(r"Access to \w+ at '([^']+)'", text)
        return called is not None and not self.is_allowed(called.group(1))

    def _on_dialog(self, dialog: Dialog) -> None:
        if dialog.type == "beforeunload":
            dialog.accept()  # the page before asks whether to leave it
        else:
            dialog.dismiss()
            self.problem(f"{self.name} opens a dialog by itself ({dialog.type}): {one_line(dialog.message, 120)}")

    def _on_request(self, request: Request) -> None:
        self._pending[request] = None
        self._asked.add(request)

    def _on_request_finished(self, request: Request) -> None:
        self._pending.pop(request, None)

    def _on_request_failed(self, request: Request) -> None:
        if request not in self._asked:
            return  # of the page before, ended by this one
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
        if request.resource_type in {"fetch", "xhr"}:
            self._blocked_calls.add(host)
        self.note(f"{host} was blocked on {self.name}: another host")

    def _on_response(self, response: Response) -> None:
        request = response.request
        if request not in self._asked:
            return
        if self._is_main(request):
            self.main_status = response.status
        elif response.status == 200 and self.is_own(response.url):
            self._whole.add(response.url)
        elif response.status >= 400:
            sentence = f"{request.method} {path_name(response.url)} on {self.name} answered {answered(response.status)}"
            # The browser asks for the icon by itself; no page of the site has to have one.
            harmless = not self.is_own(response.url) or path_name(response.url) == "/favicon.ico"
            (self.note if harmless else self.problem)(sentence)

    def _on_crash(self, _page: Page) -> None:
        self.crashed = True
        self.problem(f"{self.name} made the browser's renderer crash")


def _close(popup: Page) -> None:
    popup.close()


def _address_in(text: str) -> str:
    """The last address in the browser's sentence: what the page asked for."""
    found = re.findall(r"'(https?://[^']+)'", text)
    return one_line(found[-1] if found else text, 160)


def _place(stack: str | None) -> str:
    """`` (at /static/devis.js:12:3)`` from the first frame of a stack, or nothing."""
    found = re.search(r"(https?://[^\s()]+?):(\d+):(\d+)", stack or "")
    return f" (at {path_name(found.group(1))}:{found.group(2)}:{found.group(3)})" if found else ""
