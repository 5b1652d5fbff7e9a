"""The AI router as the settings and the routing file have it: keys, the file read again when it changes, what was spent."""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from atlas_pipeline.ai import providers
from atlas_pipeline.ai import routing as routing_file
from atlas_pipeline.ai.budget import Budget, Spent
from atlas_pipeline.ai.gateway import Gateway
from atlas_pipeline.ai.local import Local
from atlas_pipeline.ai.providers import Account, Providers
from atlas_pipeline.ai.router import CallRecord, Guard, Router, build_router
from atlas_pipeline.ai.routing import Routing, Stamp
from atlas_pipeline.errors import NotConfigured, ProviderUnavailable
from atlas_pipeline.flow.means import start_of_day
from atlas_pipeline.model import Profile
from atlas_pipeline.settings import Settings
from atlas_pipeline.spawn.events import AgentEvent
from atlas_pipeline.spawn.session import AgentSpec, run_agent
from atlas_pipeline.store import verdicts
from atlas_pipeline.store.database import Database

log = logging.getLogger(__name__)


@dataclass
class Models:
    """One process's way to models. ``db`` None: nothing is noted and nothing counts against a budget (``atlas inspect``).

    ``complain`` is told the code of a routing file that changed into one that can't be used; the last good one goes on.
    """

    settings: Settings
    db: Database | None
    local: Local
    complain: Callable[[NotConfigured], None]
    _guard: Guard = field(default_factory=Guard)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stamp: Stamp | None = None
    _routing: Routing | None = None
    _router: Router | None = None
    _providers: Providers | None = None

    def routing(self) -> Routing:
        """The routing of now. Raises NotConfigured where there never was a good one."""
        with self._lock:
            return self._now()

    def router(self) -> Router:
        """The router of now. Raises NotConfigured: the routing file, a URL or a key is no good."""
        with self._lock:
            routing = self._now()
            if self._router is None:
                self._router = build_router(
                    routing,
                    self._known_providers(),
                    on_call=None if self.db is None else partial(_note, self.db),
                    budget=Budget(routing.budget, self._spent),
                    guard=self._guard,
                )
            return self._router

    def gateway(self) -> Gateway:
        """The gateway over the same router and providers."""
        router = self.router()
        with self._lock:
            return Gateway(router, self._known_providers())

    def beside(self, routing: Routing, *, note: Callable[[CallRecord], None], budget: Budget) -> Router:
        """A router of another routing over the same keys, for what leaves no trace among the house's own calls.

        Its local model has learnt nothing from corrections: they hold the answers to mails that are judged again.
        """
        with self._lock:
            known = self._known_providers()
        blank = Local()
        apart = Providers({**known.completing, "local": blank}, {**known.embedding, "local": blank})
        return build_router(routing, apart, on_call=note, budget=budget)

    def close(self) -> None:
        """Close the providers' connections."""
        if self._providers is not None:
            self._providers.close()

    def _now(self) -> Routing:
        """The routing, read again if its file changed. Calls in flight end under the one they began with."""
        file = self.settings.ai_routing
        stamp = routing_file.stamp(file)
        if self._routing is not None and stamp == self._stamp:
            return self._routing
        try:
            found = routing_file.load(file)
        except NotConfigured as error:
            if self._routing is None:
                raise
            self.complain(error)
            found = self._routing
        else:
            self._router = None
        self._routing, self._stamp = found, stamp
        return found

    def _known_providers(self) -> Providers:
        if self._providers is None:
            settings = self.settings
            accounts = {
                "mistral": Account(_secret(settings.mistral_api_key), settings.mistral_url),
                "anthropic": Account(_secret(settings.anthropic_api_key), settings.anthropic_url),
                "openai": Account(_secret(settings.openai_api_key), settings.openai_url),
                "voyage": Account(_secret(settings.voyage_api_key), settings.voyage_url),
            }
            ask = None if settings.agent_bin is None else agent_ask(settings.agent_bin)
            self._providers = providers.build(accounts, ask_agent=ask, local=self.local)
        return self._providers

    def _spent(self, message_key: str | None) -> Spent:
        if self.db is None:
            return Spent()
        with self.db.transaction() as conn:
            if message_key is not None:
                calls, euros = verdicts.spent_on(conn, message_key)
            else:
                calls, euros = verdicts.spent_since(conn, start_of_day(self.settings.time_zone))
        return Spent(calls, euros)


def check(settings: Settings) -> None:
    """Raise NotConfigured where the routing file is no good, before a house is started that could judge nothing."""
    routing_file.load(settings.ai_routing)


def _note(db: Database, call: CallRecord) -> None:
    """Written down at once: a call that was paid for counts even if this process dies next."""
    with db.transaction() as conn:
        verdicts.add_ai_call(
            conn,
            call.message_key,
            task=call.task,
            provider=call.provider,
            model=call.model,
            code=call.code,
            tokens_in=call.tokens_in,
            tokens_out=call.tokens_out,
            milliseconds=call.milliseconds,
            euros=call.euros,
        )


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value else None


def agent_ask(agent_bin: Path) -> Callable[[str, str, str, float], Mapping[str, Any]]:
    """Ask the coding agent one question: a ``draft`` session, in an empty folder that is gone afterwards."""

    def ask(system: str, prompt: str, model: str, seconds: float) -> Mapping[str, Any]:
        if not agent_bin.is_file():
            raise NotConfigured("agent_missing")
        results: list[AgentEvent] = []

        def watch(events: list[AgentEvent]) -> None:
            results.extend(event for event in events if event.payload.get("type") == "result")

        with tempfile.TemporaryDirectory(prefix="atlas-ask-") as folder:
            spec = AgentSpec(
                spawn_id=Path(folder).name,
                agent_bin=agent_bin,
                cwd=Path(folder),
                prompt=prompt,
                system_prompt=system,
                model=model,
                work_dir=Path(folder) / "work",
                profile=Profile.DRAFT,
                timeout_seconds=seconds,
                start_timeout_seconds=seconds,
                idle_timeout_seconds=seconds,
            )
            ended = run_agent(spec, watch, lambda: False)
        if not results:
            code = "provider_timed_out" if ended.code.startswith("timeout") else "agent_gave_no_answer"
            raise ProviderUnavailable(code, ending=ended.code)
        if not ended.ok and results[-1].payload.get("subtype") == "success":
            raise ProviderUnavailable("agent_failed", ending=ended.code)
        return results[-1].payload

    return ask
