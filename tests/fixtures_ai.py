"""A loopback server that speaks the documented shapes of each provider's API, scripted answer by answer.

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
from atlas_pipeline.ai.provider import CompletionProvider
from atlas_pipeline.ai.providers import Account, build
from atlas_pipeline.ai.router import Route, Router, build_router
from atlas_pipeline.ai.routing import load

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


def said(content: object, stop: str | None = "end_turn", **more: object) -> Scripted:
    """An Anthropic message as documented; a string becomes one text block."""
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5-20251001",
        "content": blocks,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 40, "cache_read_input_tokens": 1, "output_tokens": 7},
        **more,
    }
    return Scripted(body=json.dumps(body).encode())


def tool_use(value: object) -> Scripted:
    """An Anthropic message whose one forced tool carries the answer."""
    return said([{"type": "tool_use", "id": "toolu_1", "name": "answer", "input": value}], "tool_use")


def vectors(*items: tuple[int, list[float]]) -> Scripted:
    """An embeddings answer as documented."""
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in items]
    usage = {"prompt_tokens": 12, "total_tokens": 12}
    return Scripted(body=json.dumps({"object": "list", "model": "emb", "data": data, "usage": usage}).encode())


class ScriptedServer(ThreadingHTTPServer):
    """Answers what ``script`` says, in order, the last one for ever; remembers what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Scripted] = []
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.asked.append(json.loads(self.rfile.read(length)))
        self.server.paths.append(self.path)
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
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
def mistral(ai_server: ScriptedServer) -> Iterator[Mistral]:
    """The real provider, talking to the scripted server; an explicit transport keeps a machine's proxy out of it."""
    api = JsonApi(ai_server.url, {"Authorization": f"Bearer {KEY}"}, transport=httpx.HTTPTransport())
    provider = Mistral(api)
    yield provider
    provider.api.close()


def patient(provider: CompletionProvider, waits: list[float], **more: Any) -> Router:
    """A router with this provider alone, whose waits are noted and not slept."""
    return Router(
        {"classification": [Route(provider, "mistral-small-latest", 5)]},
        sleep=waits.append,
        jitter=lambda: 0.5,
        **more,
    )


def routed(url: str, **changes: Any) -> Router:
    """What the house builds from its own routing file, every provider that has a key at this address."""
    names = changes.pop("keys", ("mistral",))
    known = build({name: Account(KEY, url) for name in names}, transport=httpx.HTTPTransport() if names else None)
    return build_router(load(None), known, **changes)
