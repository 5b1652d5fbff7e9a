"""Generating text: the order of providers, failover, and a tenant's own choice."""

from __future__ import annotations

import logging
from collections.abc import Callable

import httpx
import pytest

from atlas_pipeline.ai.gateway import Gateway, TenantAi, resolve_tenant_ai
from atlas_pipeline.ai.providers import Account, build
from atlas_pipeline.ai.router import CallRecord, build_router
from atlas_pipeline.ai.routing import load
from atlas_pipeline.errors import InvalidAnswer, ProviderUnavailable
from tests.fixtures_ai import KEY, Scripted, ScriptedServer, chat, said

ALL = ("mistral", "anthropic", "openai")


@pytest.fixture
def gateway(ai_server: ScriptedServer) -> Callable[..., Gateway]:
    """A gateway over the providers named, and the calls it made."""

    def make(*names: str, calls: list[CallRecord] | None = None) -> Gateway:
        providers = build({name: Account(KEY, ai_server.url) for name in names}, transport=httpx.HTTPTransport())
        router = build_router(load(None), providers, on_call=calls.append if calls is not None else None)
        router.sleep = lambda seconds: None
        return Gateway(router, providers)

    return make


def test_mistral_answers_first_with_its_large_model(gateway: Callable[..., Gateway], ai_server: ScriptedServer) -> None:
    calls: list[CallRecord] = []
    ai_server.script = [chat("Bonjour.", model="mistral-large-2512")]
    done = gateway(*ALL, calls=calls).generate_content("write", "be kind", message_key="k")
    assert (done.content, done.provider, done.model) == ("Bonjour.", "mistral", "mistral-large-2512")
    assert (done.tokens_in, done.tokens_out) == (41, 7)
    assert done.duration_ms >= 0
    sent = ai_server.asked[0]
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("mistral-large-latest", 4096, 0.7)
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert [(call.task, call.message_key, call.code) for call in calls] == [("generation", "k", "ok")]


def test_the_requested_provider_and_model_come_first(
    gateway: Callable[..., Gateway], ai_server: ScriptedServer
) -> None:
    ai_server.script = [said("Hello.")]
    done = gateway(*ALL).generate_content("write", provider="anthropic", model="claude-opus-4-5")
    assert (done.provider, ai_server.paths) == ("anthropic", ["/v1/messages"])
    assert ai_server.asked[0]["model"] == "claude-opus-4-5"


def test_on_failover_the_model_is_the_next_providers_own_and_the_failover_is_logged(
    gateway: Callable[..., Gateway], ai_server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    """OpenAI asked for first, then the sovereign order: Mistral, then Anthropic."""
    ai_server.script = [Scripted(401), Scripted(503, headers={"Retry-After": "99"}), said("Hello.")]
    with caplog.at_level(logging.WARNING):
        done = gateway(*ALL).generate_content("the mail's words", provider="openai", model="gpt-4.1")
    assert done.provider == "anthropic"
    assert [call["model"] for call in ai_server.asked] == ["gpt-4.1", "mistral-large-latest", "claude-sonnet-4-6"]
    told = [record.getMessage() for record in caplog.records if "failover" in record.getMessage()]
    assert told == [
        "failover: no text from openai (provider_access_refused)",
        "failover: no text from mistral (provider_overloaded)",
    ]
    assert "the mail's words" not in caplog.text


def test_a_provider_without_a_key_is_passed_over_in_silence(
    gateway: Callable[..., Gateway], ai_server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    ai_server.script = [chat("Hello.")]
    with caplog.at_level(logging.WARNING, logger="atlas_pipeline"):
        done = gateway("openai").generate_content("write", provider="mistral", model="mistral-small-latest")
    assert (done.provider, ai_server.asked[0]["model"]) == ("openai", "gpt-4o")
    assert [record for record in caplog.records if record.name.startswith("atlas")] == []


@pytest.mark.parametrize(("names", "tried", "last"), [(ALL, 3, "provider_overloaded"), ((), 0, "no_key")])
def test_when_all_are_down_there_is_one_clear_error(
    gateway: Callable[..., Gateway], ai_server: ScriptedServer, names: tuple[str, ...], tried: int, last: str
) -> None:
    ai_server.script = [Scripted(503)]
    with pytest.raises(ProviderUnavailable) as caught:
        gateway(*names).generate_content("write")
    assert caught.value.code == "all_providers_unavailable"
    assert caught.value.detail == {"tried": tried, "last": last}
    assert len(ai_server.asked) == 3 * tried


def test_a_text_that_is_no_good_is_asked_for_again_and_then_of_the_next(
    gateway: Callable[..., Gateway], ai_server: ScriptedServer
) -> None:
    def check(content: str) -> None:
        if "bad" in content:
            raise InvalidAnswer("draft_length")

    ai_server.script = [chat("bad"), chat("bad"), said("good")]
    assert gateway(*ALL).generate_content("write", check=check).provider == "anthropic"


def test_an_unknown_provider_is_refused(gateway: Callable[..., Gateway]) -> None:
    with pytest.raises(InvalidAnswer):
        gateway(*ALL).generate_content("write", provider="acme")


@pytest.mark.parametrize(
    ("config", "active", "chosen"),
    [
        ({}, True, ("mistral", "mistral-large-latest")),
        ({"provider": "anthropic"}, True, ("anthropic", "claude-sonnet-4-6")),
        ({"provider": "openai", "model": "gpt-4.1"}, True, ("openai", "gpt-4.1")),
        ({"model": "mistral-small-latest"}, True, ("mistral", "mistral-small-latest")),
        ({"provider": "openai"}, False, ("mistral", "mistral-large-latest")),
        ({"provider": "acme", "model": "x"}, True, ("mistral", "mistral-large-latest")),
        ({"provider": ["openai"]}, True, ("mistral", "mistral-large-latest")),
        ({"provider": "openai", "model": 7}, True, ("mistral", "mistral-large-latest")),
        ({"provider": None, "model": None}, True, ("mistral", "mistral-large-latest")),
        ("broken", True, ("mistral", "mistral-large-latest")),
        (None, True, ("mistral", "mistral-large-latest")),
    ],
)
def test_a_tenants_choice_that_makes_no_sense_is_mistral(config: object, active: bool, chosen: tuple[str, str]) -> None:
    assert resolve_tenant_ai(config, active=active) == TenantAi(*chosen)


def test_whatever_a_provider_raises_the_next_is_asked(
    gateway: Callable[..., Gateway], ai_server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    made = gateway(*ALL)

    def broken(*_arguments: object, **_more: object) -> None:
        raise ValueError("the mail's words")

    made.providers.completing["mistral"].complete = broken  # type: ignore[method-assign,assignment]
    ai_server.script = [said("Hello.")]
    with caplog.at_level(logging.WARNING):
        assert made.generate_content("write").provider == "anthropic"
    assert "unexpected_ValueError" in caplog.text
    assert "the mail's words" not in caplog.text
