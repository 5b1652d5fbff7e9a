"""The real Claude CLI, where it is found, and a Messages API on loopback that says to it what a test wants said."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import atlas_pipeline

ROOT = Path(atlas_pipeline.__file__).parent.parent
# Where scripts/claude installs it.
INSTALLED = ".claude-cli/node_modules/@anthropic-ai/claude-code-linux-*/claude"

Block = dict[str, Any]
Answer = list[Block] | int


def text(words: str) -> Block:
    """A block that says something."""
    return {"type": "text", "text": words}


def use(tool: str, **arguments: object) -> Block:
    """A block that uses a tool."""
    return {"type": "tool_use", "id": f"toolu_{tool}_{len(json.dumps(arguments))}", "name": tool, "input": arguments}


@dataclass
class MessagesApi:
    """Answers ``POST /v1/messages`` in the order of ``script``: blocks, streamed, or an HTTP status. Then with a last word."""

    script: list[Answer] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    def answer(self, request: dict[str, Any]) -> Answer:
        """What is said to this request. One without tools is no turn of the agent's (a title, a count)."""
        if not request.get("tools"):
            return [text("ok")]
        self.asked.append(request)
        return self.script.pop(0) if self.script else [text("Done.")]


def events_of_message(model: str, blocks: list[Block]) -> Iterator[dict[str, Any]]:
    """One message as server-sent events, in the documented order."""
    usage = {"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 0}
    head: dict[str, Any] = {
        "id": "msg_test",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
    }
    yield {"type": "message_start", "message": {**head, "stop_sequence": None, "usage": usage}}
    for index, block in enumerate(blocks):
        tool = block["type"] == "tool_use"
        empty = {**block, "input": {}} if tool else {**block, "text": ""}
        told = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])} if tool else None
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        delta = told or {"type": "text_delta", "text": block["text"]}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": 9},
    }
    yield {"type": "message_stop"}


def _handler(api: MessagesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Quiet."""

        def do_POST(self) -> None:
            """One message."""
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = api.answer(request)
            if isinstance(answer, int):
                kind = "authentication_error" if answer == 401 else "api_error"
                self._send(
                    answer, "application/json", json.dumps({"type": "error", "error": {"type": kind, "message": "no"}})
                )
                return
            events = list(events_of_message(request.get("model", "test"), answer))
            if not request.get("stream"):
                message = {**events[0]["message"], "content": answer, "stop_reason": "end_turn"}
                self._send(200, "application/json", json.dumps(message))
                return
            lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
            self._send(200, "text/event-stream", lines)

        def _send(self, status: int, kind: str, body: str) -> None:
            data = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


@pytest.fixture
def messages_api() -> Iterator[MessagesApi]:
    """A Messages API on loopback."""
    api = MessagesApi()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(api))
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield api
    server.shutdown()
    thread.join()
    server.server_close()


def real_claude(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The real program: named by ``ATLAS_AGENT_BIN``, on the PATH, or where ``make test-claude`` put it."""
    for found in (environment.get("ATLAS_AGENT_BIN"), shutil.which("claude"), *ROOT.glob(INSTALLED)):
        if found and os.access(found, os.X_OK):
            return Path(found).absolute()
    return None
