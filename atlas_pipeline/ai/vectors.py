"""The embeddings answer that Mistral, OpenAI and Voyage share: ``data`` holds an ``index`` and an ``embedding`` a text."""

from __future__ import annotations

import math
from collections.abc import Mapping

from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.reply import count, mapping
from atlas_pipeline.errors import InvalidAnswer
from atlas_pipeline.model import Embeddings

PATH = "/v1/embeddings"


def embed(
    api: JsonApi, name: str, texts: list[str], *, model: str, timeout_seconds: float, more: Mapping[str, object]
) -> Embeddings:
    """Ask once for all of ``texts``; ``more`` is what only this provider is told. Raises InvalidAnswer("embedding_invalid")."""
    answer = api.post(PATH, {"model": model, "input": texts, **more}, timeout_seconds=timeout_seconds)
    usage = mapping(answer.get("usage"))
    tokens = count(usage.get("prompt_tokens", usage.get("total_tokens")))
    return Embeddings(f"{name}/{model}", _vectors(answer.get("data"), len(texts)), tokens)


def _vectors(data: object, wanted: int) -> list[list[float]]:
    """The vectors in the order of their ``index``; each exactly once, finite numbers only, all of one length."""
    found: dict[int, list[float]] = {}
    for item in data if isinstance(data, list) else []:
        index = count(item.get("index")) if isinstance(item, dict) else None
        vector = item.get("embedding") if isinstance(item, dict) else None
        if index is None or index in found or not isinstance(vector, list) or not _is_vector(vector):
            raise InvalidAnswer("embedding_invalid")
        found[index] = [float(number) for number in vector]
    if sorted(found) != list(range(wanted)) or len({len(vector) for vector in found.values()}) > 1:
        raise InvalidAnswer("embedding_invalid")
    return [found[index] for index in range(wanted)]


def _is_vector(value: list[object]) -> bool:
    return bool(value) and all(
        isinstance(item, int | float) and not isinstance(item, bool) and _is_finite(item) for item in value
    )


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer too large for a float
        return False
