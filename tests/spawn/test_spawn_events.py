"""What lines mean: types, tools, bounded payloads, totals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_pipeline.spawn.events import MAX_PAYLOAD, Totals, normalise, totals

USE = {"type": "assistant", "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]}}
GIVEN = {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "message", "content"]), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("obj", "kind", "tool"),
    [
        ({"type": "system", "subtype": "init"}, "system.init", None),
        ({"type": "stream_event", "event": {"type": "content_block_delta"}}, "stream_event.content_block_delta", None),
        (
            {"type": "stream_event", "event": {"type": "content_block_start", "content_block": {"name": "Edit"}}},
            "stream_event.content_block_start",
            "Edit",
        ),
        (USE, "assistant.tool_use", "Bash"),
        ({"type": "assistant", "message": {"content": [{"type": "text", "text": ""}]}}, "assistant.text", None),
        ({"type": "user", "message": {"content": "words"}}, "user.text", None),
        ({"type": "result", "subtype": "success"}, "result.success", None),
        ({"type": "system", "subtype": "permission_denied", "tool_name": "Write"}, "system.permission_denied", "Write"),
        ({"type": "system", "subtype": "hook_started", "hook_name": "PreToolUse:Edit"}, "system.hook_started", "Edit"),
        ({"type": "node_pty_exit"}, "node_pty_exit", None),
        ({"type": "new\n<kind>"}, "new__kind_", None),
        ({"type": None}, "unknown", None),
    ],
)
def test_types_carry_their_sub_type_and_tools_their_name(obj: dict[str, Any], kind: str, tool: str | None) -> None:
    """The specification's event log; unknown kinds are kept, in a harmless spelling."""
    event = normalise(1, obj)
    assert (event.type, event.tool) == (kind, tool)


def test_a_tools_result_is_named_after_its_use() -> None:
    """The result only carries the id."""
    tools: dict[str, str] = {}
    normalise(1, USE, tools)
    assert normalise(2, GIVEN, tools).tool == "Bash"
    assert normalise(2, GIVEN).tool is None


@given(st.dictionaries(st.sampled_from(["type", "subtype", "event", "message", "hook_name", "tool_name"]), JSON))
def test_no_object_makes_it_fail(obj: dict[str, Any]) -> None:
    """Field sets belong to the agent's version."""
    event = normalise(1, obj)
    totals([event])
    json.dumps(event.payload)


def test_a_large_payload_is_shortened_and_says_so() -> None:
    """The row stays small; the stream log has the whole."""
    obj: dict[str, Any] = {
        "type": "result",
        "subtype": "success",
        "result": "x" * 1_000_000,
        "usage": {"input_tokens": 3},
    }
    event = normalise(1, obj)
    assert len(json.dumps(event.payload)) < MAX_PAYLOAD
    assert event.payload["_cut"]["bytes"] > 1_000_000
    assert totals([event]).tokens_in == 3
    wide = normalise(1, {"type": "x", "rows": [["y" * 1900] * 50] * 50})
    assert wide.payload.keys() == {"type", "_cut"}


def test_what_postgresql_refuses_is_cleaned() -> None:
    """One NUL would otherwise cost a whole batch of events."""
    payload = normalise(1, {"type": "x", "a\0": ["b\0c\ud800"]}).payload
    assert payload == {"type": "x", "a": ["bc\ufffd"]}


def test_a_payload_is_not_in_the_repr() -> None:
    """Reprs end up in logs."""
    assert "secret" not in repr(normalise(1, {"type": "x", "text": "secret"}))


def test_totals_are_the_last_results() -> None:
    """Usage inside assistant events is provisional and repeated."""
    first: dict[str, Any] = {"type": "result", "total_cost_usd": 9, "num_turns": 9}
    last: dict[str, Any] = {
        "type": "result",
        "total_cost_usd": 0.25,
        "num_turns": 3,
        "usage": {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 30},
        "permission_denials": [{}, {}],
    }
    events = [normalise(seq, obj) for seq, obj in enumerate([USE, first, last])]
    assert totals(events) == Totals(0.25, 10, 20, 30, 3, 2)
    assert totals(events[:1]) == Totals()


@pytest.mark.parametrize("value", [True, -1, "5", float("nan"), 10**30, None, []])
def test_totals_that_are_no_numbers_are_left_out(value: object) -> None:
    """An agent's own numbers go into numeric columns."""
    event = normalise(1, {"type": "result", "total_cost_usd": value, "num_turns": value, "usage": value})
    assert totals([event]) == Totals()
