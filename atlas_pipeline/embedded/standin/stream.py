"""The events of one session, in the shape and order of the real program's ``--output-format stream-json``.

Order within a turn: status, message_start, then for each block its start, its deltas, *the assistant event*, its
stop; then message_delta, message_stop; then the tool's result as a user event. In a result, ``type`` is not the first
field.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

VERSION = "2.1.332"


@dataclass
class Stream:
    """Writes events to stdout. ``partial`` adds the stream events of ``--include-partial-messages``."""

    model: str
    partial: bool
    session: str = field(default_factory=lambda: str(uuid.uuid4()))
    turns: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    denials: list[dict[str, Any]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def emit(self, event: dict[str, Any]) -> None:
        """One event on one line, as UTF-8 whatever the locale."""
        event = {**event, "session_id": self.session, "uuid": str(uuid.uuid4())}
        sys.stdout.buffer.write(json.dumps(event, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        sys.stdout.buffer.flush()

    def init(self, *, mode: str, tools: list[str], folders: list[str]) -> None:
        """``system/init``, which the real program prints first unless there are hooks."""
        self.emit(
            {
                "type": "system",
                "subtype": "init",
                "cwd": os.getcwd(),  # noqa: PTH109 - the string as the shell sees it
                "tools": tools,
                "mcp_servers": [],
                "model": self.model,
                "permissionMode": mode,
                "apiKeySource": "none",
                "claude_code_version": VERSION,
                "additional_directories": folders,
            }
        )

    def say(self, text: str) -> None:
        """A turn that only says something."""
        self._turn([{"type": "text", "text": text}])

    def use(self, tool: str, arguments: dict[str, Any], saying: str = "") -> str:
        """A turn that uses a tool; gives the id that its result must name."""
        use_id = f"toolu_{uuid.uuid4().hex[:24]}"
        blocks: list[dict[str, Any]] = [{"type": "text", "text": saying}] if saying else []
        self._turn([*blocks, {"type": "tool_use", "id": use_id, "name": tool, "input": arguments}])
        return use_id

    def tool_result(self, use_id: str, content: str, *, error: bool = False) -> None:
        """What a tool gave back. ``is_error`` is absent where there was none, as with the real program."""
        block: dict[str, Any] = {"tool_use_id": use_id, "type": "tool_result", "content": content}
        if error:
            block["is_error"] = True
        message = {"role": "user", "content": [block]}
        self.emit({"type": "user", "message": message, "parent_tool_use_id": None, "tool_use_result": content})

    def denied(self, use_id: str, tool: str, arguments: dict[str, Any]) -> None:
        """A tool that the permissions forbid: told to the model as an error; the run goes on and may still end well."""
        text = f"Claude requested permissions to use {tool}, but you haven't granted it yet."
        self.denials.append({"tool_name": tool, "tool_use_id": use_id, "tool_input": arguments})
        notice = {"type": "system", "subtype": "permission_denied", "tool_name": tool, "tool_use_id": use_id}
        self.emit({**notice, "message": text})
        self.tool_result(use_id, text, error=True)

    def result(self, text: str, *, subtype: str = "success", error: bool = False, **more: Any) -> None:
        """The last event. Tokens are estimated at four characters each, over all turns; the stand-in costs nothing."""
        milliseconds = int((time.monotonic() - self.started) * 1000)
        usage = {"input_tokens": self.tokens_in, "output_tokens": self.tokens_out, "cache_read_input_tokens": 0}
        self.emit(
            {
                "subtype": subtype,
                "is_error": error,
                "duration_ms": milliseconds,
                "duration_api_ms": 0,
                "num_turns": self.turns,
                "type": "result",
                "result": text,
                "stop_reason": "end_turn",
                "terminal_reason": "completed",
                "api_error_status": None,
                "total_cost_usd": 0.0,
                "usage": usage,
                "modelUsage": {self.model: {"inputTokens": self.tokens_in, "outputTokens": self.tokens_out}},
                "permission_denials": self.denials,
                **more,
            }
        )

    def _turn(self, blocks: list[dict[str, Any]]) -> None:
        self.turns += 1
        message_id = f"msg_{uuid.uuid4().hex[:24]}"
        head = {"id": message_id, "type": "message", "role": "assistant", "model": self.model}
        self.emit({"type": "system", "subtype": "status", "status": "requesting"})
        self._raw({"type": "message_start", "message": {**head, "content": [], "stop_reason": None}})
        for index, block in enumerate(blocks):
            self._block(index, block, head)
        stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
        self._raw({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {}})
        self._raw({"type": "message_stop"})

    def _block(self, index: int, block: dict[str, Any], head: dict[str, Any]) -> None:
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            text: str = block["text"]
            deltas = [{"type": "text_delta", "text": text[at : at + 80]} for at in range(0, min(len(text), 8000), 80)]
        else:
            empty, text = {**block, "input": {}}, json.dumps(block["input"], ensure_ascii=False)
            deltas = [{"type": "input_json_delta", "partial_json": text}]
        self.tokens_out += len(text) // 4 + 1
        self._raw({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            self._raw({"type": "content_block_delta", "index": index, "delta": delta})
        usage = {"input_tokens": self.tokens_in, "output_tokens": 1}  # provisional, as with the real program
        message = {**head, "content": [block], "stop_reason": None, "usage": usage}
        self.emit({"type": "assistant", "message": message, "parent_tool_use_id": None})
        self._raw({"type": "content_block_stop", "index": index})

    def _raw(self, event: dict[str, Any]) -> None:
        if self.partial:
            self.emit({"type": "stream_event", "event": event, "parent_tool_use_id": None})
