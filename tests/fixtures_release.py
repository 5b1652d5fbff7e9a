"""Fixtures of the release tests: a web server with scripted pages, the demo tenant's real site, one real Chromium."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import psutil
import pytest

from atlas_pipeline.embedded.tenant import ensure_demo_tenant, site_command
from atlas_pipeline.model import Tenant
from atlas_pipeline.release.browser_check import BrowserChecker

HTML = "text/html; charset=utf-8"


@dataclass
class WebPage:
    """One answer of the scripted server; ``hangs`` answers nothing until the test ends, ``socket`` opens a WebSocket till then."""

    body: bytes
    status: int = 200
    kind: str = HTML
    headers: dict[str, str] = field(default_factory=dict)
    hangs: bool = False
    breaks_off: bool = False
    socket: bool = False


class WebServer(ThreadingHTTPServer):
    """Serves ``pages`` by path and remembers what was ``asked``; ``before`` says what happens before an answer."""

    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pages: dict[str, WebPage] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.before: dict[str, Callable[[], None]] = {}
        self.over = threading.Event()
        self.tls = False

    @property
    def base_url(self) -> str:
        """Where the server listens."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.server_port}"

    def use(self, certificate: ssl.SSLContext) -> None:
        """Speak TLS; handshakes are made in the thread of each connection, so that a refused one holds nobody up."""
        self.tls = True
        self.socket = certificate.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up or refuse a certificate are part of the tests."""

    def page(self, path: str, body: str | bytes = "<p>Bonjour</p>", **facts: object) -> None:
        """Script one page."""
        content = body.encode() if isinstance(body, str) else body
        self.pages[path] = WebPage(content, **facts)  # type: ignore[arg-type]  # named by the caller

    def redirect(self, path: str, to: str, status: int = 302) -> None:
        """Script one redirect."""
        self.page(path, "", status=status, headers={"Location": to})

    def paths(self) -> list[str]:
        """The paths asked for, in order."""
        return [path for path, _ in self.asked]


class _Handler(BaseHTTPRequestHandler):
    server: WebServer
    timeout = 5

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append((path, dict(self.headers.items())))
        self.server.before.get(path, _nothing)()
        page = self.server.pages.get(path, WebPage(b"nothing here", status=404))
        if page.socket:
            self._open_socket()
        if page.hangs or page.socket:
            self.server.over.wait(30)
            return
        try:
            self.send_response(page.status)
            self.send_header("Content-Type", page.kind)
            self.send_header("Content-Length", str(len(page.body) + (100 if page.breaks_off else 0)))
            for name, value in page.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page.body)
        except OSError:
            self.close_connection = True

    def _open_socket(self) -> None:
        """The handshake of RFC 6455; then nothing is said."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())  # noqa: S324
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Tests print nothing."""


def _nothing() -> None:
    """What happens before most answers."""


@contextlib.contextmanager
def served(certificate: ssl.SSLContext | None = None) -> Iterator[WebServer]:
    """A web server for the length of a block, over TLS where it has a certificate."""
    server = WebServer()
    if certificate is not None:
        server.use(certificate)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def web() -> Iterator[WebServer]:
    """A web server whose pages the test scripts."""
    with served() as server:
        yield server


@pytest.fixture
def other_web() -> Iterator[WebServer]:
    """A second one: another host, as far as the checks are concerned."""
    with served() as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[BrowserChecker]:
    """One real Chromium for all tests that do not end it."""
    with BrowserChecker("chromium") as checker:
        yield checker


@dataclass
class DemoSite:
    """The demo tenant with its site being served."""

    tenant: Tenant
    root: Path
    url: str


@pytest.fixture(scope="session")
def demo_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoSite]:
    """The demo tenant's repository, deployment and running server. Tests that deploy leave it as they found it."""
    root = tmp_path_factory.mktemp("tenant")
    port = _free_port()
    tenant = ensure_demo_tenant(root, port)
    process = subprocess.Popen(site_command(root, port), env={"PATH": "/usr/bin:/bin"})
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: _answers(url))
    yield DemoSite(tenant, root, url)
    process.terminate()
    assert process.wait(timeout=5) == 0


@pytest.fixture
def unused_port() -> int:
    """A port of loopback that nobody listens on."""
    return _free_port()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for something that other processes bring about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Whether a process is there and not merely waiting to be reaped."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/version", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
