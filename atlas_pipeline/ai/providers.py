"""The providers that can be asked: those with a key, the agent where there is one, and always the local one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import httpx

from atlas_pipeline.ai import anthropic, mistral, openai, voyage
from atlas_pipeline.ai.agent import AgentProvider, Ask
from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.local import Local
from atlas_pipeline.ai.provider import CompletionProvider, EmbeddingProvider


@dataclass(frozen=True)
class Account:
    """A provider's key, and its address where it is another one than usual."""

    key: str | None = field(default=None, repr=False)
    url: str | None = None


@dataclass(frozen=True)
class Providers:
    """By name: who completes, who embeds."""

    completing: Mapping[str, CompletionProvider]
    embedding: Mapping[str, EmbeddingProvider]
    closers: tuple[Callable[[], None], ...] = field(default=(), repr=False)

    def close(self) -> None:
        """Close every connection."""
        for closer in self.closers:
            closer()


def build(
    accounts: Mapping[str, Account],
    *,
    ask_agent: Ask | None = None,
    local: Local | None = None,
    transport: httpx.BaseTransport | None = None,
) -> Providers:
    """Providers for these accounts; one without a key is left out. Raises NotConfigured: bad URL or key."""
    apis = {name: _api(name, account, transport) for name, account in accounts.items() if account.key}
    embedded = local or Local()
    completing: dict[str, CompletionProvider] = {"local": embedded}
    embedding: dict[str, EmbeddingProvider] = {"local": embedded}
    if "mistral" in apis:
        completing["mistral"] = embedding["mistral"] = mistral.Mistral(apis["mistral"])
    if "anthropic" in apis:
        completing["anthropic"] = anthropic.Anthropic(apis["anthropic"])
    if "openai" in apis:
        completing["openai"] = embedding["openai"] = openai.OpenAi(apis["openai"])
    if "voyage" in apis:
        embedding["voyage"] = voyage.Voyage(apis["voyage"])
    if ask_agent is not None:
        completing["claude"] = AgentProvider(ask_agent)
    return Providers(completing, embedding, tuple(api.close for api in apis.values()))


_URLS = {"mistral": mistral.URL, "anthropic": anthropic.URL, "openai": openai.URL, "voyage": voyage.URL}


def _api(name: str, account: Account, transport: httpx.BaseTransport | None) -> JsonApi:
    key = account.key or ""
    headers = {"Authorization": f"Bearer {key}"}
    if name == "anthropic":
        headers = {"x-api-key": key, "anthropic-version": anthropic.VERSION}
    return JsonApi(account.url or _URLS[name], headers, transport=transport)
