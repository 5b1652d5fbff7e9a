"""The chat completions that Mistral and OpenAI share, and where they differ (``Dialect``). One call each, no retries.

Sources: the two providers' API references, "chat completions".
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.reply import Reply, completion, mapping
from atlas_pipeline.model import AnswerFormat, Completion, CompletionRequest
from atlas_pipeline.text import clean_text

PATH = "/v1/chat/completions"


@dataclass(frozen=True)
class Dialect:
    """How a provider calls the limit of tokens, and the format in which it answers JSON unless a route says otherwise."""

    max_tokens: str
    answer_format: AnswerFormat


def chat(
    api: JsonApi, dialect: Dialect, name: str, request: CompletionRequest, *, model: str, timeout_seconds: float
) -> Completion:
    """Ask once; errors as in ``CompletionProvider``."""
    started = time.monotonic()
    answer = api.post(PATH, _payload(request, model, dialect), timeout_seconds=timeout_seconds)
    return completion(_reply(answer), provider=name, asked=model, started=started)


def _payload(request: CompletionRequest, model: str, dialect: Dialect) -> dict[str, object]:
    messages = [("system", request.system), ("user", request.prompt)]
    payload: dict[str, object] = {
        "model": model,
        "messages": [{"role": role, "content": clean_text(text)} for role, text in messages if text],
        dialect.max_tokens: request.max_tokens,
    }
    if request.temperature is not None:
        payload["temperature"] = request.temperature
    form = request.answer_format or dialect.answer_format
    if request.schema is not None and form is AnswerFormat.SCHEMA:
        schema = {"name": request.task, "schema": dict(request.schema), "strict": True}
        payload["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif request.schema is not None and form is AnswerFormat.OBJECT:
        payload["response_format"] = {"type": "json_object"}
    return payload


def _reply(answer: dict[str, object]) -> Reply:
    """The first choice."""
    usage = mapping(answer.get("usage"))
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        choice = {"message": {"content": 0}}  # no content of a known shape: named so by the one reader
    message = mapping(choice.get("message"))
    return Reply(
        content=message.get("content"),
        finish="refusal" if message.get("refusal") else choice.get("finish_reason"),
        model=answer.get("model"),
        tokens_in=usage.get("prompt_tokens"),
        tokens_out=usage.get("completion_tokens"),
    )
