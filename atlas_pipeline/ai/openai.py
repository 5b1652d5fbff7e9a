"""OpenAI's API: chat completions and embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from atlas_pipeline.ai import chat_completions, vectors
from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.provider import Batch
from atlas_pipeline.model import AnswerFormat, Completion, CompletionRequest, Embeddings

URL = "https://api.openai.com"
_DIALECT = chat_completions.Dialect("max_completion_tokens", AnswerFormat.SCHEMA)

_BATCH = Batch(texts=256, characters=600_000, text_characters=16_000)


@dataclass
class OpenAi:
    """Both provider Protocols over one API."""

    api: JsonApi = field(repr=False)
    name: str = "openai"
    batch: Batch = _BATCH

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        """Ask the chat model once (see ``CompletionProvider``)."""
        return chat_completions.chat(
            self.api, _DIALECT, self.name, request, model=model, timeout_seconds=timeout_seconds
        )

    def embed(self, texts: Sequence[str], *, model: str, timeout_seconds: float) -> Embeddings:
        """One vector a text (see ``EmbeddingProvider``)."""
        more = {"encoding_format": "float"}
        return vectors.embed(self.api, self.name, list(texts), model=model, timeout_seconds=timeout_seconds, more=more)
