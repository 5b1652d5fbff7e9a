"""Mistral's API: chat completions and embeddings. Retries and statuses are in ``ai.http``, routing in ``ai.router``.

The finish reason is looked at before the content: what was cut off or refused is named as such, not as bad JSON.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.errors import InvalidAnswer
from atlas_pipeline.model import Completion, CompletionRequest, Embeddings
from atlas_pipeline.text import clean_text

_MODEL_NAME = re.compile(r"[\w.:-]{1,100}", re.ASCII)
_FINISH_CODES = {
    "length": "answer_truncated",
    "model_length": "answer_truncated",
    "refusal": "answer_refused",
    "content_filter": "answer_refused",
}
# One embedding request takes about 16k tokens in all; a French text has about three characters a token.
_EMBED_BATCH_TEXTS = 64
_EMBED_BATCH_CHARACTERS = 24_000
_EMBED_TEXT_CHARACTERS = 8_000


@dataclass
class Mistral:
    """Both provider Protocols over one API."""

    api: JsonApi = field(repr=False)
    name: str = "mistral"

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        """Ask the chat model once (see ``CompletionProvider``)."""
        started = time.monotonic()
        answer = self.api.post("/v1/chat/completions", _chat_payload(request, model), timeout_seconds=timeout_seconds)
        tokens_in, tokens_out = _usage(answer)
        try:
            content, finish = _read_choice(answer)
        except InvalidAnswer as error:  # it was paid for: the tokens must reach the record of calls
            raise InvalidAnswer(error.code, tokens_in=tokens_in, tokens_out=tokens_out) from None
        return Completion(
            content=content,
            provider=self.name,
            model=f"{self.name}/{_model_name(answer, model)}",
            tokens_in=tokens_in,
            tokens_out=tokens_out,
            milliseconds=round((time.monotonic() - started) * 1000),
            finish_reason=finish,
        )

    def embed(self, texts: Sequence[str], *, model: str, timeout_seconds: float) -> Embeddings:
        """One vector a text, asked for in batches (see ``EmbeddingProvider``). Texts are cut at 8000 characters."""
        vectors: list[list[float]] = []
        for batch in _batches([clean_text(text)[:_EMBED_TEXT_CHARACTERS] for text in texts]):
            answer = self.api.post("/v1/embeddings", {"model": model, "input": batch}, timeout_seconds=timeout_seconds)
            vectors += _read_vectors(answer, len(batch))
        if len({len(vector) for vector in vectors}) > 1:
            raise InvalidAnswer("embedding_invalid")
        return Embeddings(model=f"{self.name}/{model}", vectors=vectors)

    def close(self) -> None:
        """Close the connections."""
        self.api.close()


def _chat_payload(request: CompletionRequest, model: str) -> dict[str, object]:
    payload: dict[str, object] = {
        "model": model,
        "messages": [
            {"role": "system", "content": clean_text(request.system)},
            {"role": "user", "content": clean_text(request.prompt)},
        ],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
    }
    if request.json_mode:
        payload["response_format"] = {"type": "json_object"}
    return payload


def _read_choice(answer: dict[str, Any]) -> tuple[str, str | None]:
    """Content and finish reason of the first choice, or InvalidAnswer with a code."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise InvalidAnswer("answer_shape_unknown")
    finish = choice.get("finish_reason")
    if finish is not None and finish != "stop":
        raise InvalidAnswer(_FINISH_CODES.get(str(finish), "answer_unfinished"))
    message = choice.get("message")
    content = _join_text(message.get("content") if isinstance(message, dict) else None)
    if not content.strip():
        raise InvalidAnswer("answer_empty")
    return content, finish


def _join_text(content: object) -> str:
    """A string as it is; of a list of parts the text ones. What a model thought aloud is never its answer."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise InvalidAnswer("answer_shape_unknown")
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind not in {"thinking", "reference"}:
            raise InvalidAnswer("answer_shape_unknown")
    return "".join(texts)


def _usage(answer: dict[str, Any]) -> tuple[int | None, int | None]:
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    tokens_in, tokens_out = (_count(usage.get(key)) for key in ("prompt_tokens", "completion_tokens"))
    return tokens_in, tokens_out


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _model_name(answer: dict[str, Any], asked: str) -> str:
    """Who answered, if the name looks like one; it ends up in tables and metadata."""
    named = answer.get("model")
    return named if isinstance(named, str) and _MODEL_NAME.fullmatch(named) else asked


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == _EMBED_BATCH_TEXTS or size + len(text) > _EMBED_BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _read_vectors(answer: dict[str, Any], count: int) -> list[list[float]]:
    """The vectors in the order of their ``index``; each exactly once, finite numbers only."""
    data = answer.get("data")
    found: dict[int, list[float]] = {}
    for item in data if isinstance(data, list) else []:
        index = _count(item.get("index")) if isinstance(item, dict) else None
        vector = item.get("embedding") if isinstance(item, dict) else None
        if index is None or index in found or not isinstance(vector, list) or not _is_vector(vector):
            raise InvalidAnswer("embedding_invalid")
        found[index] = [float(number) for number in vector]
    if sorted(found) != list(range(count)):
        raise InvalidAnswer("embedding_invalid")
    return [found[index] for index in range(count)]


def _is_vector(value: list[object]) -> bool:
    return bool(value) and all(
        isinstance(item, int | float) and not isinstance(item, bool) and _is_finite(item) for item in value
    )


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer too large for a float
        return False
