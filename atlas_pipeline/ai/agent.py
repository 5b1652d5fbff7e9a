"""Claude by agent invocation: the coding agent's command line, asked one question in an empty folder.

How the program is started is not known here: the caller hands in ``ask``, which goes through the pseudo-terminal session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from atlas_pipeline.ai.reply import Reply, completion, mapping
from atlas_pipeline.errors import InvalidAnswer, ProviderUnavailable
from atlas_pipeline.model import Completion, CompletionRequest

# System prompt, prompt, model, seconds → the payload of the run's ``result`` event. Raises ProviderUnavailable, NotConfigured.
Ask = Callable[[str, str, str, float], Mapping[str, Any]]


@dataclass
class AgentProvider:
    """The completion Protocol. The program knows no limit of tokens and no temperature."""

    ask: Ask = field(repr=False)
    name: str = "claude"

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        """Ask once (see ``CompletionProvider``)."""
        started = time.monotonic()
        result = self.ask(request.system, request.prompt, model, timeout_seconds)
        if result.get("is_error"):  # an API that is down or a login that ended says so as a success, in words
            raise ProviderUnavailable("agent_failed")
        if result.get("subtype") != "success":
            raise InvalidAnswer("answer_unfinished")
        usage = mapping(result.get("usage"))
        reply = Reply(
            content=result.get("result"),
            finish=result.get("stop_reason"),
            model=next(iter(mapping(result.get("modelUsage"))), None),
            tokens_in=usage.get("input_tokens"),
            tokens_out=usage.get("output_tokens"),
        )
        return completion(reply, provider=self.name, asked=model, started=started)
