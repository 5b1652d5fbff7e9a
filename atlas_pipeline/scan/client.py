"""The conversation with clamd: INSTREAM over a Unix or TCP socket, and what each answer means. No file is written.

Fails closed: only the exact reply ``stream: OK`` is clean. Everything clamd could not look into is ``unscannable``, and
everything that is no verdict is ``error``, which the caller holds and asks again later.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from atlas_pipeline.errors import ScannerUnavailable
from atlas_pipeline.model import ScanResult, Verdict
from atlas_pipeline.scan.scanner import ClamdAddress, parse_address

CHUNK_BYTES = 131_072  # clamd answers twice as fast as with the 1 KB chunks of the common clients
REPLY_MAX_BYTES = 4_096
TRIES = 3
BACKOFF_SECONDS = 0.2  # doubled after each try: a reload of signatures answers ERROR for a moment

_FOUND = re.compile(rb"stream: (\S[^\0\r\n]*) FOUND\0")
_TOO_LARGE = b"INSTREAM size limit exceeded. ERROR\0"
_UNSCANNABLE = {"Heuristics.Encrypted.": "encrypted", "Heuristics.Limits.Exceeded.": "limits_exceeded"}


@dataclass(frozen=True)
class ScannerVersion:
    """What clamd says it is. Without an official database it names only its engine."""

    engine: str
    signatures: int | None = None
    signatures_date: str | None = None

    def age_days(self, now: datetime) -> float | None:
        """How old the database was at ``now`` (local time, as clamd writes it), in days; None without an official one."""
        try:
            made = datetime.strptime(" ".join((self.signatures_date or "").split()), "%a %b %d %H:%M:%S %Y")  # noqa: DTZ007
        except ValueError:
            return None
        return (now - made).total_seconds() / 86_400

    def objection(self, now: datetime, *, max_days: float) -> str | None:
        """Why its verdict is no protection: ``scanner_signatures_missing`` or ``scanner_signatures_old``; None where it is one."""
        age = self.age_days(now) if self.signatures else None
        if age is None:
            return "scanner_signatures_missing"
        return "scanner_signatures_old" if age > max_days else None


class ClamdClient:
    """A Scanner over one clamd. One connection a scan; safe to share between threads."""

    def __init__(
        self,
        address: str,
        *,
        timeout_seconds: float = 30.0,
        stream_max_bytes: int = 26_214_400,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``stream_max_bytes`` is clamd's StreamMaxLength; ``timeout_seconds`` bounds one try, sending included."""
        self._address = parse_address(address)
        self._timeout = timeout_seconds
        self._stream_max = stream_max_bytes
        self._sleep = sleep

    def scan(self, data: bytes) -> ScanResult:
        """The verdict on ``data``; never raises for a scanner in trouble.

        Empty data is asked about like any other, and its clean answer carries the code ``empty``. A time-out is not
        tried again: clamd would still be busy with the first try, and a second would double its load.
        """
        started = time.monotonic()
        result = self._too_large(data) or self._scan_with_retries(data)
        return replace(result, milliseconds=round((time.monotonic() - started) * 1000))

    def ping(self) -> bool:
        """Whether clamd answers as clamd does, within the time-out."""
        try:
            return self._command(b"zPING\0") == b"PONG\0"
        except OSError:
            return False

    def version(self) -> ScannerVersion:
        """Engine, number and date of the signature database. Raises ScannerUnavailable."""
        try:
            reply = self._command(b"zVERSION\0")
        except OSError as error:
            raise ScannerUnavailable(_trouble(error)) from None
        match = re.fullmatch(r"ClamAV ([^/\0]+)(?:/(\d+)/([^\0]+))?\0", reply.decode("ascii", "replace"))
        if match is None:
            raise ScannerUnavailable("scanner_reply_unknown")
        engine, number, date = match.groups()
        return ScannerVersion(engine, int(number) if number else None, date)

    def _too_large(self, data: bytes) -> ScanResult | None:
        if len(data) > self._stream_max:
            return ScanResult(Verdict.UNSCANNABLE, code="too_large")
        return None

    def _scan_with_retries(self, data: bytes) -> ScanResult:
        result = ScanResult(Verdict.ERROR, code="scanner_not_asked")
        for attempt in range(TRIES):
            if attempt:
                self._sleep(BACKOFF_SECONDS * 2 ** (attempt - 1))
            try:
                result = _judge(self._stream(data), len(data))
            except OSError as error:
                result = ScanResult(Verdict.ERROR, code=_trouble(error))
            if result.verdict is not Verdict.ERROR or result.code == "scanner_timeout":
                break
        return result

    def _stream(self, data: bytes) -> bytes:
        """One INSTREAM. clamd may answer and hang up while we still send: its reply is read all the same."""
        deadline = time.monotonic() + self._timeout
        with _connect(self._address, deadline) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                _send(connection, b"zINSTREAM\0", deadline)
                for start in range(0, len(data), CHUNK_BYTES):
                    chunk = data[start : start + CHUNK_BYTES]
                    _send(connection, struct.pack("!L", len(chunk)) + chunk, deadline)
                _send(connection, struct.pack("!L", 0), deadline)
            return _receive(connection, deadline)

    def _command(self, command: bytes) -> bytes:
        deadline = time.monotonic() + self._timeout
        with _connect(self._address, deadline) as connection:
            _send(connection, command, deadline)
            return _receive(connection, deadline)


def _judge(reply: bytes, size: int) -> ScanResult:
    """What a reply means. A reply without its closing NUL was cut, and proves nothing."""
    if reply == b"stream: OK\0":
        return ScanResult(Verdict.CLEAN, code=None if size else "empty")
    if reply == _TOO_LARGE:
        return ScanResult(Verdict.UNSCANNABLE, code="too_large")
    if match := _FOUND.fullmatch(reply):
        signature = match[1].decode("ascii", "replace")
        for prefix, code in _UNSCANNABLE.items():
            if signature.startswith(prefix):
                return ScanResult(Verdict.UNSCANNABLE, signature=signature, code=code)
        return ScanResult(Verdict.INFECTED, signature=signature)
    if not reply:
        return ScanResult(Verdict.ERROR, code="scanner_reply_empty")
    known_trouble = reply.endswith(b" ERROR\0")
    return ScanResult(Verdict.ERROR, code="scanner_error_reply" if known_trouble else "scanner_reply_unknown")


def _trouble(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "scanner_timeout"
    if isinstance(error, FileNotFoundError):
        return "scanner_socket_missing"
    return "scanner_refused" if isinstance(error, ConnectionRefusedError) else "scanner_connection_lost"


def _remaining(deadline: float) -> float:
    """Seconds left; the limit is on the whole conversation, so a peer that drips bytes can't stretch it."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connect(address: ClamdAddress, deadline: float) -> socket.socket:
    if address.path is None:
        return socket.create_connection((address.host, address.port), timeout=_remaining(deadline))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_remaining(deadline))
        connection.connect(address.path)
    except OSError:
        connection.close()
        raise
    return connection


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    connection.settimeout(_remaining(deadline))
    connection.sendall(data)


def _receive(connection: socket.socket, deadline: float) -> bytes:
    """Everything up to the closing NUL or the end of the stream; more than a reply can be is cut, and so unknown."""
    reply = b""
    while not reply.endswith(b"\0") and len(reply) < REPLY_MAX_BYTES:
        connection.settimeout(_remaining(deadline))
        received = connection.recv(REPLY_MAX_BYTES)
        if not received:
            break
        reply += received
    return reply
