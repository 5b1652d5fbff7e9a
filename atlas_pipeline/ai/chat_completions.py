"""The API that Mistral and OpenAI share, chat completions and embeddings, and where they differ. One call each, no retries.

Sources: the two providers' API references, "chat completions" and "embeddings".
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from atlas_pipeline.ai import vectors
from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.provider import Batch
from atlas_pipeline.ai.reply import Reply, completion, mapping
from atlas_pipeline.model import AnswerFormat, Completion, CompletionRequest, Embeddings
from atlas_pipeline.text import clean_text

PATH = "/v1/chat/completions"


@dataclass
class ChatCompletions:
    """Both provider Protocols over one API; a provider says in class variables what is its own.

    ``max_tokens_name`` is how it calls the limit of tokens, ``answer_format`` how it answers JSON unless a route says otherwise,
    ``embedding_options`` what it is told beside model and texts.
    """

    name: ClassVar[str]
    batch: ClassVar[Batch]
    max_tokens_name: ClassVar[str]
    answer_format: ClassVar[AnswerFormat]
    embedding_options: ClassVar[Mapping[str, object]] = {}

    api: JsonApi = field(repr=False)

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        """Ask the chat model once (see ``CompletionProvider``)."""
        started = time.monotonic()
        answer = self.api.post(PATH, self._payload(request, model), timeout_seconds=timeout_seconds)
        return completion(_reply(answer), provider=self.name, asked=model, started=started)

    def embed(self, texts: Sequence[str], *, model: str, timeout_seconds: float) -> Embeddings:
        """One vector a text (see ``EmbeddingProvider``)."""
        return vectors.embed(
            self.api, self.name, list(texts), model=model, timeout_seconds=timeout_seconds, more=self.embedding_options
        )

    def _payload(self, request: CompletionRequest, model: str) -> dict[str, object]:
        messages = [("system", request.system), ("user", request.prompt)]
        payload: dict[str, object] = {
            "model": model,
            "messages": [{"role": role, "content": clean_text(text)} for role, text in messages if text],
            self.max_tokens_name: request.max_tokens,
        }
        if request.temperature is not None:
            payload["temperature"] = request.temperature
        form = request.answer_format or self.answer_format
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
