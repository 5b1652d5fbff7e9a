"""Generating text for people: the sovereign order Mistral, Anthropic, OpenAI, whichever is asked for first in front.

The same providers, calls, budget and breakers as ``router``; another policy. A provider without a key is passed over in
silence; one that fails is logged, and the next one answers with a model of its own, never with the one meant for the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from atlas_pipeline.ai.providers import Providers
from atlas_pipeline.ai.router import Route, Router
from atlas_pipeline.errors import AtlasError, DatabaseUnavailable, InvalidAnswer, ProviderUnavailable
from atlas_pipeline.model import Completion, CompletionRequest

log = logging.getLogger(__name__)

ORDER = ("mistral", "anthropic", "openai")
DEFAULT_MODELS = {"mistral": "mistral-large-latest", "anthropic": "claude-sonnet-4-6", "openai": "gpt-4o"}
TIMEOUT_SECONDS = 120.0
GENERATION = "generation"


@dataclass(frozen=True)
class Generated:
    """A text, who really wrote it, and what it took. ``model`` is the model's own name, without its provider."""

    content: str = field(repr=False)
    provider: str
    model: str
    tokens_in: int | None
    tokens_out: int | None
    duration_ms: int


@dataclass(frozen=True)
class TenantAi:
    """The provider and model with which a tenant's texts are written."""

    provider: str
    model: str


def resolve_tenant_ai(
    config: object, *, active: bool, models: Mapping[str, str] = MappingProxyType(DEFAULT_MODELS)
) -> TenantAi:
    """A tenant's choice, from its ``ai_config`` (``{"provider": …, "model": …}``); ``models`` are the providers' default ones.

    Unknown, inactive or broken is Mistral with its default model: a tenant's odd settings must not leave it without an answer.
    """
    values: Mapping[str, object] = config if active and isinstance(config, dict) else {}
    provider = values.get("provider", ORDER[0])
    model = values.get("model")
    if not isinstance(provider, str) or provider not in DEFAULT_MODELS or not isinstance(model, str | None):
        return TenantAi(ORDER[0], models[ORDER[0]])
    return TenantAi(provider, model or models[provider])


@dataclass(frozen=True)
class Gateway:
    """``router`` for the calls themselves, ``providers`` for who is there."""

    router: Router
    providers: Providers

    def generate_content(
        self,
        prompt: str,
        system_prompt: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        max_tokens: int = 4096,
        temperature: float = 0.7,
        *,
        check: Callable[[str], None] = lambda _content: None,
        message_key: str | None = None,
    ) -> Generated:
        """A text by the first provider that gives one. ``check`` raises InvalidAnswer for one that is no good.

        Raises ProviderUnavailable("all_providers_unavailable") with the last cause as ``last``; ``tried`` is how many had a key.
        Raises InvalidAnswer("provider_unknown") for a name that is none of the three.
        """
        first = provider or ORDER[0]
        if first not in ORDER:
            raise InvalidAnswer("provider_unknown")
        request = CompletionRequest(
            GENERATION,
            system_prompt or "",
            prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            message_key=message_key,
        )

        def read(completion: Completion) -> None:
            check(completion.content)

        tried, last = 0, "no_key"
        for name in (first, *(other for other in ORDER if other != first)):
            asked = self.providers.completing.get(name)
            if asked is None:
                continue
            tried += 1
            chosen = model if name == first and model else DEFAULT_MODELS[name]
            try:
                _none, done = self.router.judged(request, read, [Route(asked, chosen, TIMEOUT_SECONDS)])
            except DatabaseUnavailable:
                raise
            except Exception as error:  # noqa: BLE001  # whatever one provider does wrong, the next is asked
                last = error.code if isinstance(error, AtlasError) else f"unexpected_{type(error).__name__}"
                log.warning("failover: no text from %s (%s)", name, last)
            else:
                return Generated(
                    done.content,
                    done.provider,
                    done.model.removeprefix(f"{done.provider}/"),
                    done.tokens_in,
                    done.tokens_out,
                    done.milliseconds,
                )
        raise ProviderUnavailable("all_providers_unavailable", tried=tried, last=last)
