"""Which provider and model serves which task. The one way to a model for everything that runs in Python.

A task has a list of routes; the next is tried when one fails, and the completion names who really answered.
Classification has one route on purpose: when Mistral is configured and down, a mail waits in ``received``; it is not
quietly judged by a weaker model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.local import CLASSIFIER, EMBEDDER, Local
from atlas_pipeline.ai.mistral import Mistral
from atlas_pipeline.ai.provider import CompletionProvider, EmbeddingProvider
from atlas_pipeline.errors import AtlasError, InvalidAnswer, NotConfigured, TransientError
from atlas_pipeline.model import Completion, CompletionRequest, Embeddings

CLASSIFICATION = "classification"
EMBEDDING = "embedding"


@dataclass(frozen=True)
class Route:
    """One way to have a completion."""

    provider: CompletionProvider
    model: str
    timeout_seconds: float


@dataclass(frozen=True)
class EmbeddingRoute:
    """The way to have embeddings: one, since vectors of two models can't be searched together."""

    provider: EmbeddingProvider
    model: str
    timeout_seconds: float


@dataclass(frozen=True)
class CallRecord:
    """One call of a provider as it is kept: ``code`` is ``ok`` or the error's. No content."""

    task: str
    provider: str
    model: str
    code: str
    tokens_in: int | None
    tokens_out: int | None
    milliseconds: int

    @property
    def ok(self) -> bool:
        """Whether there was a usable answer."""
        return self.code == "ok"


@dataclass
class Router:
    """Routes per task, tried in order. ``on_call`` sees every call, failed ones too."""

    routes: Mapping[str, Sequence[Route]]
    embedding: EmbeddingRoute | None = None
    on_call: Callable[[CallRecord], None] | None = None
    closers: Sequence[Callable[[], None]] = field(default=(), repr=False)

    def complete(self, request: CompletionRequest) -> Completion:
        """The first usable answer.

        Raises NotConfigured for a task without a route. When every route failed, the error that leaves the most hope:
        a transient one, else one a changed setting mends, else InvalidAnswer.
        """
        failures: list[AtlasError] = []
        for route in self.routes.get(request.task, ()):
            started = time.monotonic()
            try:
                completion = route.provider.complete(request, model=route.model, timeout_seconds=route.timeout_seconds)
            except AtlasError as error:
                failures.append(error)
                self._record_failure(request.task, route, error, started)
            else:
                self._record_completion(request.task, completion)
                return completion
        if not failures:
            raise NotConfigured("task_not_routed")
        raise min(failures, key=_hopelessness)

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """One vector a text, in order, all of one model. Nothing is called for no texts at all."""
        route = self.embedding
        if route is None:
            raise NotConfigured("task_not_routed")
        if not texts:
            return Embeddings(model=f"{route.provider.name}/{route.model}", vectors=[])
        started = time.monotonic()
        try:
            embeddings = route.provider.embed(texts, model=route.model, timeout_seconds=route.timeout_seconds)
        except AtlasError as error:
            self._record_failure(EMBEDDING, route, error, started)
            raise
        self._record(CallRecord(EMBEDDING, route.provider.name, embeddings.model, "ok", None, None, _since(started)))
        return embeddings

    def close(self) -> None:
        """Close the providers' connections."""
        for closer in self.closers:
            closer()

    def _record_completion(self, task: str, done: Completion) -> None:
        self._record(
            CallRecord(task, done.provider, done.model, "ok", done.tokens_in, done.tokens_out, done.milliseconds)
        )

    def _record_failure(self, task: str, route: Route | EmbeddingRoute, error: AtlasError, started: float) -> None:
        tokens_in, tokens_out = _tokens(error, "tokens_in"), _tokens(error, "tokens_out")
        name = route.provider.name
        self._record(
            CallRecord(task, name, f"{name}/{route.model}", error.code, tokens_in, tokens_out, _since(started))
        )

    def _record(self, record: CallRecord) -> None:
        if self.on_call is not None:
            self.on_call(record)


def _hopelessness(error: AtlasError) -> int:
    if isinstance(error, TransientError):
        return 0
    return 2 if isinstance(error, InvalidAnswer) else 1


def _tokens(error: AtlasError, name: str) -> int | None:
    value = error.detail.get(name)
    return value if isinstance(value, int) else None


def _since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)


def build_router(
    *,
    mistral_key: str | None,
    mistral_url: str,
    classification_model: str,
    classification_timeout: float,
    embedding_model: str,
    transport: httpx.BaseTransport | None = None,
    on_call: Callable[[CallRecord], None] | None = None,
) -> Router:
    """Mistral where there is a key, else the local provider, for both tasks. Raises NotConfigured: bad URL or key."""
    if not mistral_key:
        local = Local()
        return Router(
            routes={CLASSIFICATION: [Route(local, CLASSIFIER, classification_timeout)]},
            embedding=EmbeddingRoute(local, EMBEDDER, classification_timeout),
            on_call=on_call,
        )
    mistral = Mistral(JsonApi(mistral_url, {"Authorization": f"Bearer {mistral_key}"}, transport=transport))
    return Router(
        routes={CLASSIFICATION: [Route(mistral, classification_model, classification_timeout)]},
        embedding=EmbeddingRoute(mistral, embedding_model, classification_timeout),
        on_call=on_call,
        closers=[mistral.close],
    )
