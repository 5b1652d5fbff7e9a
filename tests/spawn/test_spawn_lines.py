"""Bytes of a terminal into events, at every chunk size, with every kind of dirt."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_pipeline.spawn.events import normalise
from atlas_pipeline.spawn.lines import LineSplitter, encoded_events, events_of
from atlas_pipeline.spawn.outcome import Observed, judge

INIT = '{"type":"system","subtype":"init"}'
RESULT = '{"subtype":"success","is_error":false,"type":"result"}'


def feed(data: bytes, size: int, limit: int = 1 << 20) -> list[dict[str, Any]]:
    splitter = LineSplitter(limit)
    lines = [line for at in range(0, len(data), size) for line in splitter.feed(data[at : at + size])]
    return [event for line in [*lines, *splitter.close()] for event in events_of(*line)]


@given(st.lists(st.text(max_size=40), max_size=8), st.integers(1, 50))
def test_events_do_not_depend_on_where_the_reads_end(texts: list[str], size: int) -> None:
    """A read may end inside a UTF-8 sequence; U+2028 and its kin inside a string are no line ends."""
    events = [{"type": "assistant", "text": text} for text in texts]
    data = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events).encode("utf-8", "surrogatepass")
    assert feed(data, size) == feed(data, 1 << 20)
    if all(text.isprintable() for text in texts):
        assert feed(data, size) == events


@given(st.binary(max_size=300), st.integers(1, 64))
def test_any_bytes_give_events_that_json_can_carry(data: bytes, size: int) -> None:
    """Nothing that a terminal can show makes the reader fail."""
    for event in feed(data, size):
        assert isinstance(event["type"], str)
        json.dumps(event, allow_nan=False).encode("ascii")


_ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["type", "a", "é"]), _ANY_JSON),
    st.sampled_from(["", "\r", " \x1b[?25h", "{", "x"]),
    st.booleans(),
)
def test_what_is_passed_on_reads_as_the_event_it_was(value: dict[str, Any], behind: str, ascii_only: bool) -> None:
    """The short way, by which a line passes as it came, and the long way say the same; one event is one line for everybody."""
    line = (json.dumps(value, ensure_ascii=ascii_only) + behind).encode("utf-8", "surrogatepass")
    passed = encoded_events(line, len(line))
    assert [event for event, _line in passed] == events_of(line, len(line))
    for event, encoded in passed:
        assert encoded.endswith(b"\n")
        assert len(encoded.decode().splitlines()) == 1
        assert json.loads(encoded) == event
        json.dumps(json.loads(encoded), allow_nan=False)


def test_two_objects_on_one_line_are_two_events() -> None:
    """Seen in the wild when a line end is lost."""
    assert [event["type"] for event in feed(f"{INIT}{RESULT}\n".encode(), 7)] == ["system", "result"]


def test_terminal_sequences_are_stripped_outside_of_json_only() -> None:
    """A title, a mode switch and a cursor code around an event; inside a string an escape is content."""
    line = '\x1b]0;claude {x}\x07\x1b[?2004h{"type":"assistant","text":"\\u001b[31mred"}\x1b[?25h\r\n'
    assert feed(line.encode(), 5) == [{"type": "assistant", "text": "\x1b[31mred"}]


def test_words_are_kept_as_bounded_raw_events() -> None:
    """Warnings share the terminal; an object without a type is not an event."""
    events = feed(b'Warning: \x1b[1mhelp\x1b[0m\n[log] request {"a":1}\n{"a":2}\n' + b"x" * 5000 + b"\n", 100)
    assert [event["type"] for event in events] == ["wrapper_raw"] * 4
    assert events[0]["text"] == "Warning: help"
    assert (len(events[3]["text"]), events[3]["bytes"]) == (2000, 5000)


def test_an_event_behind_words_without_a_line_end_is_found() -> None:
    """Otherwise one stray warning would cost the result event, and with it the run."""
    events = feed(f"Warning: x{RESULT}\n".encode(), 9)
    assert [event["type"] for event in events] == ["wrapper_raw", "result"]


def test_what_a_truncated_event_quotes_is_not_an_event() -> None:
    """A broken line must not smuggle in a result that it only quotes."""
    line = f'{{"type":"user","message":{RESULT},"rest":'
    assert [event["type"] for event in feed(line.encode(), 3)] == ["wrapper_raw"]


def test_a_line_over_the_limit_is_cut_with_a_code_and_the_next_is_read() -> None:
    """Memory stays bounded, and the stream goes on."""
    events = feed(b'{"type":"a","x":"' + b"y" * 5000 + b'"}\n' + INIT.encode() + b"\n", 64, limit=1000)
    assert [event.get("code") for event in events] == ["line_too_long", None]
    assert events[0]["bytes"] == 5019


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_no_json_become_null(number: str) -> None:
    """PostgreSQL refuses them, and would refuse the whole batch."""
    assert feed(f'{{"type":"x","n":{number}}}\n'.encode(), 4) == [{"type": "x", "n": None}]


@pytest.mark.parametrize("hostile", ['{"a":' * 100_000, "[" * 100_000, '{"type":"x","n":' + "9" * 5000 + "}"])
def test_deep_or_huge_json_is_raw(hostile: str) -> None:
    """Neither the recursion limit nor the limit of digits ends the reader."""
    assert [event["type"] for event in feed(hostile.encode(), 65536)] == ["wrapper_raw"]


EXPECTED = {
    "ok": "ok",
    "ok_crlf_pty": "ok",
    "ok_ansi_osc": "ok",
    "concatenated_no_newline": "ok",
    "no_final_newline": "ok",
    "log_lines_between": "ok",
    "no_result": "no_result",
    "truncated_result": "no_result",
    "fake_result_in_tool_output": "no_result",
    "is_error_success_subtype_429": "api_unavailable",
    "is_error_not_logged_in": "not_logged_in",
    "error_max_turns": "agent_error",
    "two_results": "agent_error",
    "empty": "no_output",
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("size", [1, 7, 4096, 65536])
def test_recorded_streams_end_as_their_reports_say(name: str, size: int) -> None:
    """Streams made after public bug reports, all of them ended with exit code 0."""
    corpus = Path(os.environ.get("ATLAS_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
    file = corpus / "synthetic" / "claude_stream" / f"{name}.jsonl"
    if not file.is_file():
        pytest.skip("corpus not there")
    observed = Observed()
    for seq, event in enumerate([*feed(file.read_bytes(), size), {"type": "node_pty_exit", "exit_status": 0}]):
        observed.note(normalise(seq, event))
    assert judge(observed, cancelled=False, seconds=1.0).code == EXPECTED[name]
