"""What every AI provider can do, as Protocols. Implementations have modules of their own; routing is in ``router``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from atlas_pipeline.model import Completion, CompletionRequest, Embeddings


@dataclass(frozen=True)
class Batch:
    """What one embedding request may hold: texts, characters in all, and characters of one text (longer ones are cut)."""

    texts: int
    characters: int
    text_characters: int


class CompletionProvider(Protocol):
    """Answers one question."""

    @property
    def name(self) -> str:
        """The provider's name, the first half of ``Completion.model``."""
        ...

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        """Ask once: one call, one answer.

        Raises ProviderUnavailable, AccessRefused, NotConfigured or InvalidAnswer. An InvalidAnswer that was paid for
        carries ``tokens_in`` and ``tokens_out`` in its detail.
        """
        ...


class EmbeddingProvider(Protocol):
    """Turns texts into vectors; the vectors of two models must never be compared."""

    @property
    def name(self) -> str:
        """The provider's name, the first half of ``Embeddings.model``."""
        ...

    @property
    def batch(self) -> Batch:
        """What one request may hold."""
        ...

    def embed(self, texts: Sequence[str], *, model: str, timeout_seconds: float) -> Embeddings:
        """One vector a text, in order: one call, for texts within ``batch``. Raises the same errors as ``complete``."""
        ...
