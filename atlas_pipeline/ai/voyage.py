"""Voyage's API: embeddings alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from atlas_pipeline.ai import vectors
from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.provider import Batch
from atlas_pipeline.model import Embeddings

URL = "https://api.voyageai.com"

_BATCH = Batch(texts=128, characters=300_000, text_characters=16_000)


@dataclass
class Voyage:
    """The embedding Protocol. Texts and questions are embedded alike, so that lessons and missions lie in one space."""

    api: JsonApi = field(repr=False)
    name: str = "voyage"
    batch: Batch = _BATCH

    def embed(self, texts: Sequence[str], *, model: str, timeout_seconds: float) -> Embeddings:
        """One vector a text (see ``EmbeddingProvider``)."""
        more = {"truncation": True}
        return vectors.embed(self.api, self.name, list(texts), model=model, timeout_seconds=timeout_seconds, more=more)
