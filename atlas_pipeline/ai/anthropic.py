"""Anthropic's API: messages. JSON is asked for as the input of a tool that the model must use.

Source: Anthropic's API reference, "messages", version 2023-06-01.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.reply import Reply, completion, count, mapping
from atlas_pipeline.model import AnswerFormat, Completion, CompletionRequest
from atlas_pipeline.text import clean_text

URL = "https://api.anthropic.com"
PATH = "/v1/messages"
VERSION = "2023-06-01"
_TOOL = "answer"


@dataclass
class Anthropic:
    """The completion Protocol."""

    api: JsonApi = field(repr=False)
    name: str = "anthropic"

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        """Ask once (see ``CompletionProvider``)."""
        started = time.monotonic()
        answer = self.api.post(PATH, _payload(request, model), timeout_seconds=timeout_seconds)
        return completion(_reply(answer), provider=self.name, asked=model, started=started)


def _payload(request: CompletionRequest, model: str) -> dict[str, object]:
    payload: dict[str, object] = {
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": [{"role": "user", "content": clean_text(request.prompt)}],
    }
    if request.system:
        payload["system"] = clean_text(request.system)
    if request.temperature is not None:
        payload["temperature"] = min(request.temperature, 1.0)  # its scale ends there
    if request.schema is not None and (request.answer_format or AnswerFormat.SCHEMA) is AnswerFormat.SCHEMA:
        tool = {"name": _TOOL, "description": "Give the answer.", "input_schema": dict(request.schema)}
        payload |= {"tools": [tool], "tool_choice": {"type": "tool", "name": _TOOL}}
    return payload


def _reply(answer: dict[str, object]) -> Reply:
    usage = mapping(answer.get("usage"))
    content, finish = answer.get("content"), answer.get("stop_reason")
    if finish == "tool_use":  # there is one tool, and it carries the answer
        content, finish = _from_tool(content), "stop"
    # What was read from or written to the cache is counted apart, and was read all the same.
    read = [count(usage.get(f"{kind}input_tokens")) for kind in ("", "cache_read_", "cache_creation_")]
    return Reply(
        content=content,
        finish=finish,
        model=answer.get("model"),
        tokens_in=None if read[0] is None else sum(filter(None, read)),
        tokens_out=usage.get("output_tokens"),
    )


def _from_tool(content: object) -> object:
    """The parts, the tool's input as the text that it stands for; words around it are no part of the answer."""
    uses = (
        [part for part in content if isinstance(part, dict) and part.get("type") == "tool_use"]
        if isinstance(content, list)
        else []
    )
    if len(uses) != 1 or uses[0].get("name") != _TOOL:
        return 0  # no content of a known shape
    return json.dumps(uses[0].get("input"))
