r"""Bytes of a terminal into events: splitting lines, finding the JSON objects on them, setting everything else aside.

Works on bytes and strings only; who reads the terminal is ``pty``. Bytes are kept until a line is whole (a read of a
terminal ends wherever it likes, also inside a UTF-8 sequence), only ``\n`` ends a line (U+2028 inside a string does
not), and what is not an event becomes a ``wrapper_raw`` event with bounded text, never an error.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

import orjson

MAX_LINE = 16 * 1024 * 1024
RAW_TEXT = 2000

Event = dict[str, Any]

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, bracketed paste
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and its kin: titles
    r"|\x1b[()*+][0-9A-Za-z]|\x1b[ -z|}~]"  # character sets, single escapes
    r"|[\x00-\x08\x0b-\x1f\x7f]"  # what is left of control characters, \r too
)


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


# NaN, Infinity and 1e999 are no JSON, and PostgreSQL's jsonb refuses them.
_DECODER = json.JSONDecoder(parse_constant=lambda _name: None, parse_float=_finite)


@dataclass
class LineSplitter:
    """Feeds on chunks, gives whole lines. A line over ``limit`` bytes is cut, and its true length reported."""

    limit: int = MAX_LINE
    _chunks: list[bytes] = field(default_factory=list)
    _kept: int = 0
    _length: int = 0

    def feed(self, chunk: bytes) -> list[tuple[bytes, int]]:
        """The lines that ``chunk`` completes, each with its length before cutting."""
        *ended, rest = chunk.split(b"\n")
        lines = []
        for piece in ended:
            if self._length or len(piece) > self.limit:
                self._keep(piece)
                lines.append(self._take())
            else:
                lines.append((piece, len(piece)))
        self._keep(rest)
        return lines

    def close(self) -> list[tuple[bytes, int]]:
        """The last line, where it had no end; a truncated event is seen here."""
        return [self._take()] if self._length else []

    def _keep(self, piece: bytes) -> None:
        self._length += len(piece)
        room = self.limit - self._kept
        if piece and room > 0:
            self._chunks.append(piece[:room])
            self._kept += len(self._chunks[-1])

    def _take(self) -> tuple[bytes, int]:
        line, length = b"".join(self._chunks), self._length
        self._chunks, self._kept, self._length = [], 0, 0
        return line, length


# What some readers take for the end of a line inside a string: U+2028, U+2029, U+0085.
_LINE_ENDS = ("\u2028".encode(), "\u2029".encode(), "\u0085".encode())


def encoded_events(line: bytes, length: int) -> list[tuple[Event, bytes]]:
    """``events_of``, each with the line to pass it on by.

    A line that is one event and strict JSON already, as almost all are, is passed on as it came: to encode it anew would cost ten times
    as much. orjson takes nothing that PostgreSQL's jsonb refuses: no NaN, no lone surrogate, no invalid UTF-8.
    """
    if length == len(line) and (line.isascii() or not any(end in line for end in _LINE_ENDS)):
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            pass  # the long way finds out what it is
        else:
            if isinstance(event, dict) and isinstance(event.get("type"), str):
                return [(event, line.strip() + b"\n")]
    return [(event, line_of(event)) for event in events_of(line, length)]


def line_of(event: Event) -> bytes:
    """An event as one line of ASCII JSON."""
    try:
        return json.dumps(event, separators=(",", ":")).encode("ascii") + b"\n"
    except RecursionError:
        return b'{"type":"wrapper_raw","code":"too_deep","bytes":0,"text":""}\n'


def events_of(line: bytes, length: int) -> list[Event]:
    """Every event on one line, in order; what is none becomes ``wrapper_raw``. An empty line gives nothing."""
    if length > len(line):
        return [_raw(line[: RAW_TEXT * 4].decode("utf-8", "replace"), length, code="line_too_long")]
    text = line.decode("utf-8", "replace")
    events, rest = _objects(text)
    before, sign, after = rest.partition("{")
    if not events and sign and strip_escapes(before[: RAW_TEXT * 8]):
        # Words without a line end before an event (stderr shares the terminal). Only the first brace is tried: behind a
        # broken object nothing may pass for an event, or a truncated line could smuggle in what it quotes.
        late, late_rest = _objects(sign + after)
        if late:
            return [_raw(before, length), *late, *_left(late_rest, length)]
    return [*events, *_left(rest, length)]


def strip_escapes(text: str) -> str:
    """Text without terminal sequences and control characters."""
    return _ESCAPE.sub("", text).strip()


def _objects(text: str) -> tuple[list[Event], str]:
    events: list[Event] = []
    position = _skip(text, 0)
    while text.startswith("{", position):
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        if not isinstance(value.get("type"), str):
            break
        events.append(value)
        position = _skip(text, end)
    return events, text[position:]


def _skip(text: str, position: int) -> int:
    while position < len(text):
        match = _ESCAPE.match(text, position)
        if match:
            position = match.end()
        elif text[position].isspace():
            position += 1
        else:
            break
    return position


def _left(rest: str, length: int) -> list[Event]:
    return [_raw(rest, length)] if strip_escapes(rest[: RAW_TEXT * 8]) else []


def _raw(text: str, length: int, code: str = "not_an_event") -> Event:
    shown = strip_escapes(text[: RAW_TEXT * 8])[:RAW_TEXT]
    return {"type": "wrapper_raw", "code": code, "bytes": length, "text": shown}
