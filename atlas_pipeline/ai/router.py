"""Which provider and model serves which task. The one way to a model for everything that runs in Python.

A task has a list of routes; the next is tried when one fails, and the completion names who really answered. One call of a
route is: wait for a place (``at_once``), is there money (``budget``), is the model resting (``breaker``), ask, note the call.

    ProviderUnavailable   asked again, MAX_CALLS times in all, ``Retry-After`` as a floor; above MAX_WAIT_SECONDS not at all
    an unusable answer    asked once more with a reminder and four times the tokens
    a refusal             not asked again: it would be paid for and be the same
    then, and for any other error: the next route
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from atlas_pipeline.ai.breaker import Breaker
from atlas_pipeline.ai.budget import Budget
from atlas_pipeline.ai.local import CLASSIFIER, EMBEDDER
from atlas_pipeline.ai.provider import Batch, CompletionProvider, EmbeddingProvider
from atlas_pipeline.ai.providers import Providers
from atlas_pipeline.ai.routing import ROOM, BudgetSpec, RouteSpec, Routing, TaskSpec
from atlas_pipeline.errors import (
    AtlasError,
    DatabaseUnavailable,
    InvalidAnswer,
    NotConfigured,
    ProviderUnavailable,
    TransientError,
)
from atlas_pipeline.model import Completion, CompletionRequest, Embeddings
from atlas_pipeline.text import clean_text

CLASSIFICATION = "classification"
COMPLETION = "completion"
EMBEDDING = "embedding"
LOCAL = "local"
MAX_CALLS = 3
MAX_WAIT_SECONDS = 20.0
MAX_TOKENS = 200_000
REMINDER = "\n\nYour previous answer was unusable. Answer exactly as described above and add nothing to it."
_FINAL_CODES = {"answer_refused", "provider_request_rejected", "ai_budget_of_message_spent"}
# Asking again in a second would bring the same.
_NOT_NOW = {"provider_resting", "ai_budget_of_day_spent"}

T = TypeVar("T")


@dataclass(frozen=True)
class Route:
    """One way to have a completion; what is None here is as the request has it."""

    provider: CompletionProvider
    model: str
    timeout_seconds: float
    spec: RouteSpec | None = None

    def fitted(self, request: CompletionRequest) -> CompletionRequest:
        """The request with this route's own parameters."""
        if self.spec is None:
            return request
        return replace(
            request,
            max_tokens=self.spec.max_tokens or request.max_tokens,
            temperature=request.temperature if self.spec.temperature is None else self.spec.temperature,
            answer_format=self.spec.answer_format or request.answer_format,
        )


@dataclass(frozen=True)
class EmbeddingRoute:
    """The way to have embeddings: one, since vectors of two models can't be searched together."""

    provider: EmbeddingProvider
    model: str
    timeout_seconds: float


@dataclass(frozen=True)
class CallRecord:
    """One call of a provider as it is kept: ``code`` is ``ok`` or the error's. No content. ``euros`` None: not known."""

    task: str
    provider: str
    model: str
    code: str
    tokens_in: int | None
    tokens_out: int | None
    milliseconds: int
    euros: float | None = None
    message_key: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there was a usable answer."""
        return self.code == "ok"


@dataclass
class Guard:
    """What lasts longer than one routing: breakers, places, and the calls that are under way.

    A breaker is a provider's and model's: a model that a provider does not know says nothing of its others.
    """

    breakers: dict[str, Breaker] = field(default_factory=dict)
    rooms: dict[tuple[str, int], threading.BoundedSemaphore] = field(default_factory=dict)
    under_way: Counter[str | None] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def room(self, provider: str, size: int) -> threading.BoundedSemaphore:
        """The places of a provider; another size makes others, and calls in the old ones end there."""
        with self.lock:
            return self.rooms.setdefault((provider, size), threading.BoundedSemaphore(size))

    @contextmanager
    def counted(self, budget: Budget, message_key: str | None) -> Iterator[None]:
        """Hold a call's place in the budget while it is not written down yet. Raises what ``Budget.check`` raises."""
        with self.lock:
            budget.check(message_key, day=self.under_way[None], message=self.under_way[message_key])
            self.under_way.update({None, message_key})
        try:
            yield
        finally:
            with self.lock:
                self.under_way.subtract({None, message_key})

    def breaker(self, name: str, routing: Routing | None) -> Breaker:
        """That of ``provider/model``, under the limits of now."""
        failures, rest = (routing.breaker.failures, routing.breaker.rest_seconds) if routing else (5, 60.0)
        with self.lock:
            found = self.breakers.setdefault(name, Breaker(failures, rest))
        found.failures, found.rest_seconds = failures, rest
        return found


@dataclass
class Router:
    """Routes per task, tried in order. Thread-safe. ``on_call`` sees every call, failed ones too.

    ``sleep`` and ``jitter`` (0..1) are injected so that tests need no waiting.
    """

    routes: Mapping[str, Sequence[Route]]
    embedding: EmbeddingRoute | None = None
    on_call: Callable[[CallRecord], None] | None = None
    routing: Routing | None = None
    budget: Budget = field(default_factory=lambda: Budget(BudgetSpec()))
    guard: Guard = field(default_factory=Guard)
    closer: Callable[[], None] | None = field(default=None, repr=False)
    sleep: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random

    def complete(self, request: CompletionRequest) -> Completion:
        """The first usable answer; errors as ``judged``."""
        return self.judged(request, lambda completion: completion)[0]

    def judged(
        self, request: CompletionRequest, read: Callable[[Completion], T], routes: Sequence[Route] | None = None
    ) -> tuple[T, Completion]:
        """The first answer that ``read`` can read, as read and as it came. ``read`` raises InvalidAnswer where it can't.

        Raises NotConfigured for a task without a route. When every route failed, the error that leaves the most hope: a
        transient one, else one a changed setting mends, else InvalidAnswer.
        """
        failures: list[AtlasError] = []
        for route in self.routes.get(request.task, ()) if routes is None else routes:
            try:
                return self._on_route(route, route.fitted(request), read)
            except DatabaseUnavailable:  # of ours: another provider would not be noted down either
                raise
            except AtlasError as error:
                failures.append(error)
        if not failures:
            raise NotConfigured("task_not_routed", task=request.task)
        raise min(failures, key=_hopelessness)

    def _on_route(
        self, route: Route, request: CompletionRequest, read: Callable[[Completion], T]
    ) -> tuple[T, Completion]:
        try:
            return self._patiently(lambda: self._ask(route, request, read))
        except InvalidAnswer as error:
            if error.code in _FINAL_CODES:
                raise
        again = replace(request, system=request.system + REMINDER, max_tokens=min(4 * request.max_tokens, MAX_TOKENS))
        return self._patiently(lambda: self._ask(route, again, read))

    def _ask(self, route: Route, request: CompletionRequest, read: Callable[[Completion], T]) -> tuple[T, Completion]:
        name = route.provider.name
        with self._call(request.task, name, route.model, request.message_key) as call:
            done = route.provider.complete(request, model=route.model, timeout_seconds=route.timeout_seconds)
            call.model, call.tokens = done.model, (done.tokens_in, done.tokens_out)
            return read(done), done

    def embed(self, texts: Sequence[str], *, message_key: str | None = None) -> Embeddings:
        """One vector a text, in order, all of one model. Nothing is called for no texts at all."""
        route = self.embedding
        if route is None:
            raise NotConfigured("task_not_routed", task=EMBEDDING)
        name = route.provider.name
        model, vectors, tokens = f"{name}/{route.model}", list[list[float]](), 0

        def ask(batch: list[str]) -> Embeddings:
            with self._call(EMBEDDING, name, route.model, message_key) as call:
                found = route.provider.embed(batch, model=route.model, timeout_seconds=route.timeout_seconds)
                call.model, call.tokens = found.model, (found.tokens, None)
                if vectors and (found.model != model or len(found.vectors[0]) != len(vectors[0])):
                    raise InvalidAnswer("embedding_invalid")
                return found

        for batch in _batches(texts, route.provider.batch):
            found = self._patiently(partial(ask, batch))
            model = found.model
            vectors += found.vectors
            tokens += found.tokens or 0
        return Embeddings(model, vectors, tokens or None)

    def close(self) -> None:
        """Close the providers' connections."""
        if self.closer is not None:
            self.closer()

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask again what may go through; never wait longer inside a run than MAX_WAIT_SECONDS."""
        for call in range(1, MAX_CALLS + 1):
            try:
                return ask()
            except ProviderUnavailable as error:
                asked = float(error.detail.get("retry_after") or 0.0)
                if call == MAX_CALLS or asked > MAX_WAIT_SECONDS or error.code in _NOT_NOW:
                    raise
                self.sleep(max(asked, 0.5 * 2 ** (call - 1)) + 0.5 * self.jitter())
        raise AssertionError("unreachable")

    @contextmanager
    def _call(self, task: str, provider: str, model: str, message_key: str | None) -> Iterator[_Call]:
        """Everything around one call of a provider."""
        paid = provider != LOCAL
        breaker = self.guard.breaker(f"{provider}/{model}", self.routing) if paid else _NEVER_RESTS
        call = _Call(f"{provider}/{model}")
        code: str = "ok"
        failure: AtlasError | None = None
        counted = self.guard.counted(self.budget, message_key) if paid else nullcontext()
        with self.guard.room(provider, self._size(provider)), counted:
            breaker.enter()
            started = time.monotonic()
            try:
                yield call
            except AtlasError as error:
                code, failure = error.code, error
                if call.tokens == (None, None):
                    call.tokens = (_tokens(error, "tokens_in"), _tokens(error, "tokens_out"))
                raise
            except BaseException:
                code, failure = "interrupted", ProviderUnavailable("interrupted")
                raise
            finally:
                milliseconds = round((time.monotonic() - started) * 1000)
                breaker.leave(failure)
                euros = self.routing.euros(call.model, *call.tokens) if self.routing else None
                if self.on_call is not None:
                    self.on_call(
                        CallRecord(task, provider, call.model, code, *call.tokens, milliseconds, euros, message_key)
                    )

    def _size(self, provider: str) -> int:
        return self.routing.room(provider) if self.routing else ROOM

    @property
    def classifiers(self) -> list[str]:
        """Who classifies, ``provider/model``, in the order in which they are asked."""
        return [f"{route.provider.name}/{route.model}" for route in self.routes.get(CLASSIFICATION, ())]

    @property
    def at_once(self) -> int:
        """How many classifications can usefully be asked side by side: as many as the first route's provider takes."""
        route = next(iter(self.routes.get(CLASSIFICATION, ())), None)
        return 1 if route is None else self._size(route.provider.name)


_NEVER_RESTS = Breaker(failures=sys.maxsize, rest_seconds=0.0)


@dataclass
class _Call:
    """What becomes known during a call."""

    model: str
    tokens: tuple[int | None, int | None] = (None, None)


def _hopelessness(error: AtlasError) -> int:
    if isinstance(error, TransientError):
        return 0
    return 2 if isinstance(error, InvalidAnswer) else 1


def _tokens(error: AtlasError, name: str) -> int | None:
    value = error.detail.get(name)
    return value if isinstance(value, int) else None


def _batches(texts: Sequence[str], limits: Batch) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        cut = clean_text(text)[: limits.text_characters]
        if batch and (len(batch) == limits.texts or size + len(cut) > limits.characters):
            yield batch
            batch, size = [], 0
        batch.append(cut)
        size += len(cut)
    if batch:
        yield batch


def build_router(
    routing: Routing,
    providers: Providers,
    *,
    on_call: Callable[[CallRecord], None] | None = None,
    budget: Budget | None = None,
    guard: Guard | None = None,
) -> Router:
    """The routing over the providers that are there; where a task has none of its own, the local one if it can serve it."""
    local = providers.completing[LOCAL]
    embedding = routing.tasks.embedding
    embedder = providers.embedding.get(embedding.provider)
    if embedder is None:
        embedding_route = EmbeddingRoute(providers.embedding[LOCAL], EMBEDDER, embedding.timeout_seconds)
    else:
        embedding_route = EmbeddingRoute(embedder, embedding.model, embedding.timeout_seconds)
    classification = routes_of(routing.tasks.classification, providers)
    seconds = routing.tasks.classification.timeout_seconds
    return Router(
        routes={
            CLASSIFICATION: classification or [Route(local, CLASSIFIER, seconds)],
            COMPLETION: routes_of(routing.tasks.completion, providers),
        },
        embedding=embedding_route,
        on_call=on_call,
        routing=routing,
        budget=budget or Budget(routing.budget),
        guard=guard or Guard(),
        closer=providers.close,
    )


def routes_of(task: TaskSpec, providers: Providers) -> list[Route]:
    """A task's routes whose providers are there, in order."""
    return [
        Route(providers.completing[spec.provider], spec.model, seconds, spec)
        for spec, seconds in task.routes()
        if spec.provider in providers.completing
    ]
