"""How a run ended, judged from its events and the wrapper's closing event. Pure; the work tree is looked at elsewhere.

Exit 0 alone proves nothing, and neither does ``subtype: success``: API errors come as a success with ``is_error``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from atlas_pipeline.model import SpawnResult
from atlas_pipeline.spawn.events import AgentEvent, totals

# The agent says it in words, on a result or as a bare line; a stopped login stops every run, so it has a code of its
# own.
_LOGIN = re.compile(
    r"not logged in|please run /login|oauth session expired|failed to authenticate|invalid api key|invalid x-api-key",
    re.I,
)
# A subscription that is used up says so in words, with no status.
_USED_UP = re.compile(r"(usage|session|weekly) limit|rate.?limit", re.I)
# Codes of a run that failed through no fault of the message's: the agent's model could not be had. It is tried again when it can.
NO_MODEL = frozenset({"not_logged_in", "api_unavailable"})
BUDGET_SPENT = "budget_of_spawn_spent"
_KILLED = {129: 1, 130: 2, 137: 9, 143: 15}


@dataclass
class Observed:
    """What a session keeps of a run's events to judge it by; the events themselves go to the store."""

    events: int = 0
    result: AgentEvent | None = None
    exit: dict[str, Any] | None = field(default=None, repr=False)
    raw: str = field(default="", repr=False)

    def note(self, event: AgentEvent) -> None:
        """Take one event into account."""
        if event.type == "node_pty_exit":
            self.exit = event.payload
        elif event.type == "wrapper_raw":
            self.raw = f"{self.raw}\n{event.payload.get('text', '')}"[-8000:]
        else:
            self.events += 1
            if event.payload.get("type") == "result":
                self.result = event


def judge(observed: Observed, *, cancelled: bool, seconds: float) -> SpawnResult:
    """The result of a run; ``ok`` only with exit 0, a last result that is a success, and nothing cut short."""
    closing = observed.exit or {}
    code = _code(observed, closing, cancelled=cancelled)
    spent = totals([observed.result] if observed.result else [])
    return SpawnResult(
        ok=code == "ok",
        code=code,
        exit_status=_number(closing.get("exit_status")),
        signal=_number(closing.get("signal")),
        seconds=seconds,
        events=observed.events,
        result_seen=observed.result is not None,
        **vars(spent),
    )


def _code(observed: Observed, closing: Mapping[str, Any], *, cancelled: bool) -> str:
    if cancelled:
        return "cancelled"
    if observed.exit is None:
        return "wrapper_lost"
    cut_short = _cut_short(closing)
    if cut_short is not None:
        return cut_short
    if observed.result is None:
        return _without_result(observed, closing)
    return _with_result(observed.result.payload, closing)


def _cut_short(closing: Mapping[str, Any]) -> str | None:
    if closing.get("error"):
        return str(closing["error"])
    if closing.get("timed_out"):
        return f"timeout_{closing['timed_out']}"
    return "killed_by_signal" if closing.get("stopped") else None


def _without_result(observed: Observed, closing: Mapping[str, Any]) -> str:
    if closing.get("signal") is not None or closing.get("exit_status") in _KILLED:
        return "killed_by_signal"
    if _LOGIN.search(observed.raw):
        return "not_logged_in"
    return "no_result" if observed.events or observed.raw.strip() else "no_output"


def _with_result(result: Mapping[str, Any], closing: Mapping[str, Any]) -> str:
    text = result.get("result")
    failed = result.get("is_error") is not False
    if failed and (result.get("api_error_status") == 401 or (isinstance(text, str) and _LOGIN.search(text))):
        return "not_logged_in"
    if failed and (result.get("terminal_reason") == "api_error" or result.get("api_error_status") is not None):
        return _api_error(result.get("api_error_status"), text)
    if failed and result.get("subtype") == "error_max_budget_usd":
        return BUDGET_SPENT
    if failed or result.get("subtype") != "success":
        return "agent_error"
    if closing.get("signal") is not None:
        return "killed_by_signal"
    return "ok" if closing.get("exit_status") == 0 else "agent_error"


def _api_error(status: object, text: object) -> str:
    """Whether the same request may do better later: 408, 429, 5xx, no answer at all, a limit of use."""
    if not isinstance(status, int) or status in {408, 409, 429} or status >= 500:
        return "api_unavailable"
    return "api_unavailable" if isinstance(text, str) and _USED_UP.search(text) else "api_error"


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
