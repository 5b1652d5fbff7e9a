"""Mistral's API: chat completions and embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from atlas_pipeline.ai import chat_completions, vectors
from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.provider import Batch
from atlas_pipeline.model import AnswerFormat, Completion, CompletionRequest, Embeddings

URL = "https://api.mistral.ai"
_DIALECT = chat_completions.Dialect("max_tokens", AnswerFormat.OBJECT)

# One request takes about 16k tokens in all; a French text has about three characters a token.
_BATCH = Batch(texts=64, characters=24_000, text_characters=8_000)


@dataclass
class Mistral:
    """Both provider Protocols over one API."""

    api: JsonApi = field(repr=False)
    name: str = "mistral"
    batch: Batch = _BATCH

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        """Ask the chat model once (see ``CompletionProvider``)."""
        return chat_completions.chat(
            self.api, _DIALECT, self.name, request, model=model, timeout_seconds=timeout_seconds
        )

    def embed(self, texts: Sequence[str], *, model: str, timeout_seconds: float) -> Embeddings:
        """One vector a text (see ``EmbeddingProvider``)."""
        return vectors.embed(self.api, self.name, list(texts), model=model, timeout_seconds=timeout_seconds, more={})
