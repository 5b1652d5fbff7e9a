"""The pre-production server of the demo tenant, on loopback.

    python server.py --root DIR/current --port N

``app.py`` of the current release is loaded for every request, so a deployment needs no restart. An exception in it
becomes a 500 page that names it, as pre-production servers do. Standard library only, and run in Python's isolated
mode: the site's code is an agent's work, so nothing of ours is importable from it by accident. Deploying is
``deploy.py``'s part.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import traceback
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from urllib.parse import unquote, urlsplit

HTML = "text/html; charset=utf-8"


class SiteServer(ThreadingHTTPServer):
    """Serves one site; a page that hangs blocks neither the others nor the end."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        super().__init__(("127.0.0.1", port), SiteHandler)


class SiteHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD with what the site's ``handle`` returns."""

    server: SiteServer
    server_version = "preprod"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer with a body."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Answer without one."""
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Say nothing: addresses may hold what visitors typed."""

    def _answer(self, *, with_body: bool) -> None:
        status, kind, body = respond(self.server.root, self.path)
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if with_body:
                self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the visitor has left


def respond(root: Path, target: str) -> tuple[int, str, bytes]:
    """Status, content type and body for a request target. Whatever the site does, this returns."""
    path = _path(target)
    if path is None:
        return _error_page(HTTPStatus.BAD_REQUEST, "L’adresse n’est pas valable.")
    try:
        # Resolved once: a switch of the link in the middle of a request must not mix two releases.
        file = root.resolve(strict=True) / "app.py"
        namespace = {"__name__": "site_app", "__file__": str(file)}
        exec(compile(file.read_bytes(), str(file), "exec"), namespace)  # noqa: S102  # the tenant's own site
        status, kind, body = namespace["handle"](path)  # type: ignore[operator]  # checked by calling it
        return int(status), _header(kind), bytes(body)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the boundary to code that is not ours: it becomes a 500 page
        return _error_page(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}{_line(error)}")


def _path(target: str) -> str | None:
    """The decoded path of a request; None for one that tries to climb or can't be read."""
    try:
        path = unquote(urlsplit(target).path, errors="strict")
    except ValueError:
        return None
    if not path.startswith("/") or "\x00" in path or "\\" in path or ".." in path.split("/"):
        return None
    return path


def _header(kind: object) -> str:
    if not isinstance(kind, str) or not kind.isascii() or not kind.isprintable():
        raise TypeError("content type")
    return kind


def _line(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).name == "app.py"]
    return f" (app.py, ligne {frames[-1].lineno})" if frames else ""


def _error_page(status: HTTPStatus, reason: str) -> tuple[int, str, bytes]:
    page = (
        f'<!doctype html><html lang="fr"><meta charset="utf-8"><title>Erreur {status.value}</title>'
        '<body style="font:17px/1.6 sans-serif;max-width:40em;margin:15vh auto;padding:0 24px;color:#2b2520">'
        f"<h1>Erreur {status.value}</h1><p>La page n’a pas pu être affichée.</p>"
        f'<pre style="padding:16px;background:#f7f2ea;white-space:pre-wrap">{escape(reason[:500])}</pre></body></html>'
    )
    return status.value, HTML, page.encode("utf-8", "replace")


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description="Serve the current release of a site on 127.0.0.1.")
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    with SiteServer(options.root, options.port) as server:

        def end(_number: int, _frame: FrameType | None) -> None:
            # shutdown() waits for serve_forever(), which this very thread runs.
            threading.Thread(target=server.shutdown).start()

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        server.serve_forever(poll_interval=0.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
