"""A loopback server that speaks Mistral's documented shapes, scripted answer by answer.

The real HTTP client talks to a real socket; only the model behind it is missing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.mistral import Mistral

KEY = "test-key-not-a-secret"


@dataclass(frozen=True)
class Scripted:
    """One answer of the server. ``delay`` in seconds before the status line; ``cut`` sends half of the body."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    cut: bool = False


def chat(content: object, finish: str | None = "stop", **more: object) -> Scripted:
    """A chat completion as documented."""
    body = {
        "id": "cmpl-1",
        "object": "chat.completion",
        "model": "mistral-small-2506",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 41, "completion_tokens": 7, "total_tokens": 48},
        **more,
    }
    return Scripted(body=json.dumps(body).encode())


def vectors(*items: tuple[int, list[float]]) -> Scripted:
    """An embeddings answer as documented."""
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in items]
    return Scripted(body=json.dumps({"object": "list", "model": "mistral-embed", "data": data}).encode())


class ScriptedServer(ThreadingHTTPServer):
    """Answers what ``script`` says, in order, the last one for ever; remembers what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Scripted] = []
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.asked.append(json.loads(self.rfile.read(length)))
        self.server.paths.append(self.path)
        self.server.authorizations.append(self.headers["Authorization"])
        answer = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        time.sleep(answer.delay)
        try:
            self._send(answer)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client gave up waiting, as it should

    def _send(self, answer: Scripted) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if answer.cut else answer.body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing on stderr."""


@pytest.fixture
def ai_server() -> Iterator[ScriptedServer]:
    """The server, listening on a free port of loopback."""
    server = ScriptedServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(timeout=5)


@pytest.fixture
def waits() -> list[float]:
    """The seconds that would have been slept between two calls."""
    return []


@pytest.fixture
def mistral(ai_server: ScriptedServer, waits: list[float]) -> Iterator[Mistral]:
    """The real provider, talking to the scripted server; an explicit transport keeps a machine's proxy out of it."""
    api = JsonApi(
        ai_server.url,
        {"Authorization": f"Bearer {KEY}"},
        transport=httpx.HTTPTransport(),
        sleep=waits.append,
        jitter=lambda: 0.5,
    )
    provider = Mistral(api)
    yield provider
    provider.close()
