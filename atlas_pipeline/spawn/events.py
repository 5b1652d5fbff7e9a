"""What the agent's lines mean: one ``AgentEvent`` a line, and the totals of a run. Pure; nothing is stored here.

Field sets belong to the agent's version: only ``type`` is required, the rest is looked at where it is there, and kept
as it came.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from atlas_pipeline.text import clean_json

MAX_PAYLOAD = 256 * 1024
_TYPE = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class AgentEvent:
    """One event. ``type`` carries its sub-type (``stream_event.content_block_delta``); ``tool`` names the tool, if
    any.
    """

    seq: int
    type: str
    tool: str | None
    payload: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Totals:
    """What the last result says a run cost; the list price in dollars is the agent's own estimate."""

    cost_usd: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cache_read: int | None = None
    turns: int | None = None
    denials: int = 0


def normalise(seq: int, obj: dict[str, Any], tools: dict[str, str] | None = None) -> AgentEvent:
    """One line's object as an event; never raises for any object.

    ``tools`` maps tool use ids to names and is added to: a tool's result names only the id. Over 256 kB the payload
    is shortened and says so in ``_cut``.
    """
    kind = _name(obj.get("type")) or "unknown"
    known = tools if tools is not None else {}
    detail, tool = _detail(kind, obj, known)
    return AgentEvent(seq, f"{kind}.{detail}" if detail else kind, _name(tool), _payload(obj))


def totals(events: Iterable[AgentEvent]) -> Totals:
    """Cost, tokens and turns from the last result event; usage inside assistant events is provisional."""
    last: dict[str, Any] | None = None
    for event in events:
        if event.payload.get("type") == "result":
            last = event.payload
    if last is None:
        return Totals()
    usage = _mapping(last.get("usage"))
    denials = last.get("permission_denials")
    return Totals(
        cost_usd=_amount(last.get("total_cost_usd")),
        tokens_in=_count(usage.get("input_tokens")),
        tokens_out=_count(usage.get("output_tokens")),
        tokens_cache_read=_count(usage.get("cache_read_input_tokens")),
        turns=_count(last.get("num_turns")),
        denials=len(denials) if isinstance(denials, list) else 0,
    )


def _detail(kind: str, obj: dict[str, Any], tools: dict[str, str]) -> tuple[str | None, object]:
    if kind == "stream_event":
        event = _mapping(obj.get("event"))
        block = _mapping(event.get("content_block"))
        return _name(event.get("type")), block.get("name")
    if kind in {"assistant", "user"}:
        return _message_detail(obj, tools)
    if kind == "system":
        hook = str(obj.get("hook_name") or "").partition(":")[2] or None
        return _name(obj.get("subtype")), obj.get("tool_name") or hook
    return _name(obj.get("subtype")), None


def _message_detail(obj: dict[str, Any], tools: dict[str, str]) -> tuple[str | None, object]:
    content = _mapping(obj.get("message")).get("content")
    if isinstance(content, str):
        return "text", None
    block = _mapping(content[0]) if isinstance(content, list) and content else {}
    kind = _name(block.get("type"))
    if kind == "tool_use" and isinstance(block.get("id"), str) and isinstance(block.get("name"), str):
        tools[block["id"]] = block["name"]
    if kind == "tool_result":
        return kind, tools.get(str(block.get("tool_use_id")))
    return kind, block.get("name")


def _payload(obj: dict[str, Any]) -> dict[str, Any]:
    try:
        cleaned = _mapping(clean_json(obj))
        size = len(json.dumps(cleaned))
        if size <= MAX_PAYLOAD:
            return cleaned
        shortened: dict[str, Any] = {**_shorten(cleaned), "_cut": {"bytes": size}}
        if len(json.dumps(shortened)) <= MAX_PAYLOAD:
            return shortened
    except RecursionError:
        size = -1
    return {"type": _name(obj.get("type")), "_cut": {"bytes": size}}


def _shorten(value: Any) -> Any:
    if isinstance(value, str) and len(value) > 2000:
        return f"{value[:2000]} [{len(value) - 2000} more characters]"
    if isinstance(value, list):
        return [_shorten(item) for item in value[:50]]
    if isinstance(value, dict):
        return {key[:200]: _shorten(item) for key, item in list(value.items())[:100]}
    return value


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _name(value: object) -> str | None:
    return _TYPE.sub("_", value[:80]) or None if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def _amount(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and 0 <= value < 1e6 else None
