"""The conversation with a real clamd, and with peers that say what clamd says in trouble, or nonsense."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atlas_pipeline.embedded.clamd import eicar
from atlas_pipeline.embedded.process import free_port
from atlas_pipeline.errors import NotConfigured, ScannerUnavailable
from atlas_pipeline.model import Verdict
from atlas_pipeline.scan.client import TRIES, ClamdClient
from atlas_pipeline.scan.scanner import ClamdAddress, parse_address
from tests.scan_archives import encrypted, zipped

HANG = b"hang"
STREAM_MAX_BYTES = 1_000_000  # of the clamd of these tests
Peer = Callable[..., str]


@pytest.fixture
def peer(short_folder: Path) -> Iterator[Peer]:
    """Starts a server on a Unix socket that answers each connection with the next reply, and repeats the last one."""
    listener = socket.socket(socket.AF_UNIX)
    over = threading.Event()
    threads: list[threading.Thread] = []

    def serve(replies: list[bytes], read_all: bool) -> None:
        turn = 0
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                reply = replies[min(turn, len(replies) - 1)]
                turn += 1
                connection.settimeout(2)
                received = connection.recv(1_000)
                while read_all and not received.endswith(b"\0\0\0\0"):
                    received = connection.recv(1_000_000)
                if reply == HANG:
                    over.wait(5)
                else:
                    connection.sendall(reply)

    def start(*replies: bytes, read_all: bool = True) -> str:
        listener.bind(str(short_folder / "peer"))
        listener.listen()
        listener.settimeout(0.05)
        threads.append(threading.Thread(target=serve, args=(list(replies), read_all)))
        threads[0].start()
        return f"unix:{short_folder / 'peer'}"

    yield start
    over.set()
    for thread in threads:
        thread.join()
    listener.close()


# What a real clamd says


def test_clean_bytes_are_clean(clamd_client: ClamdClient) -> None:
    """The ordinary mail passes, over several chunks too."""
    assert clamd_client.scan(b"Bonjour,\r\n").verdict is Verdict.CLEAN
    assert clamd_client.scan(secrets.token_bytes(700_000)).verdict is Verdict.CLEAN


def test_the_virus_is_found_however_it_is_wrapped(clamd_client: ClamdClient) -> None:
    """Plain, zipped, and zipped twice."""
    for data in (eicar(), eicar() + b"\n", zipped({"a": eicar()}), zipped({"inner.zip": zipped({"a": eicar()})})):
        result = clamd_client.scan(data)
        assert (result.verdict, result.signature) == (Verdict.INFECTED, "Atlas.Test.Eicar.UNOFFICIAL")


def test_an_encrypted_archive_is_neither_clean_nor_infected(clamd_client: ClamdClient) -> None:
    """clamd can't look inside: out of the box it says OK (C46)."""
    result = clamd_client.scan(encrypted(zipped({"a": b"payroll"})))
    assert (result.verdict, result.code) == (Verdict.UNSCANNABLE, "encrypted")


def test_what_clamd_does_not_scan_to_its_end_is_unscannable(clamd_client: ClamdClient) -> None:
    """A bomb, an archive nested too deep, and a member beyond the file limit whose end nobody looked at (C51)."""
    deep = eicar()
    for _ in range(13):
        deep = zipped({"a.zip": deep})
    scan_max = STREAM_MAX_BYTES * 4
    for data in (deep, zipped({"a": bytes(scan_max + 1)}), zipped({"a": bytes(scan_max * 2 + 1) + eicar()})):
        result = clamd_client.scan(data)
        assert (result.verdict, result.code) == (Verdict.UNSCANNABLE, "limits_exceeded")


def test_a_stream_of_exactly_the_limit_is_scanned_and_a_byte_more_is_not(clamd_client: ClamdClient) -> None:
    """Too large is a property of the mail, so there is nothing to try again."""
    assert clamd_client.scan(bytes(STREAM_MAX_BYTES)).verdict is Verdict.CLEAN
    result = clamd_client.scan(bytes(STREAM_MAX_BYTES + 1))
    assert (result.verdict, result.code) == (Verdict.UNSCANNABLE, "too_large")


def test_clamds_own_limit_is_understood_while_we_are_still_sending(clamd: str) -> None:
    """clamd answers and hangs up; the broken pipe is not "scanner down" (C48)."""
    waits: list[float] = []
    result = ClamdClient(clamd, sleep=waits.append).scan(bytes(5_000_000))
    assert (result.verdict, result.code, waits) == (Verdict.UNSCANNABLE, "too_large", [])


def test_nothing_at_all_is_clean_and_says_why(clamd_client: ClamdClient) -> None:
    """An empty attachment is asked about like any other."""
    result = clamd_client.scan(b"")
    assert (result.verdict, result.code) == (Verdict.CLEAN, "empty")


def test_ping_and_version_tell_who_answers(clamd_client: ClamdClient) -> None:
    """For doctor. A private database has no number and no date."""
    assert clamd_client.ping()
    version = clamd_client.version()
    assert version.engine[0].isdigit()
    assert (version.signatures, version.signatures_date) == (None, None)


def test_many_threads_may_share_a_client(clamd_client: ClamdClient) -> None:
    """Verdicts must not get mixed up."""
    verdicts: dict[int, Verdict] = {}

    def scan(number: int) -> None:
        verdicts[number] = clamd_client.scan(eicar() if number % 2 else b"fine").verdict

    threads = [threading.Thread(target=scan, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == {n: Verdict.INFECTED if n % 2 else Verdict.CLEAN for n in range(8)}


# A scanner in trouble is never clean


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (b"", "scanner_reply_empty"),
        (b"\0", "scanner_reply_unknown"),
        (b"stream: OK", "scanner_reply_unknown"),
        (b"stream: OK\n", "scanner_reply_unknown"),
        (b"OK\0", "scanner_reply_unknown"),
        (b"stream: ok\0", "scanner_reply_unknown"),
        (b"stream: OK\0stream: OK\0", "scanner_reply_unknown"),
        (b"Infected files: 0\0", "scanner_reply_unknown"),
        (b"stream: Eicar FOU", "scanner_reply_unknown"),
        (b"stream:  FOUND\0", "scanner_reply_unknown"),
        (b"UNKNOWN COMMAND\0", "scanner_reply_unknown"),
        (b"\xff\xfe" * 10_000, "scanner_reply_unknown"),
        (b"stream: Can't allocate memory ERROR\0", "scanner_error_reply"),
    ],
)
def test_only_the_exact_ok_is_clean(peer: Peer, reply: bytes, code: str) -> None:
    """Everything else is asked again, twice, and then held (C49)."""
    waits: list[float] = []
    result = ClamdClient(peer(reply), sleep=waits.append).scan(b"data")
    assert (result.verdict, result.code) == (Verdict.ERROR, code)
    assert waits == [0.2, 0.4]


def test_errors_during_a_reload_are_waited_out(peer: Peer) -> None:
    """clamd is short of memory for a moment, then fine again (C50)."""
    trouble = b"stream: Can't allocate memory ERROR\0"
    waits: list[float] = []
    result = ClamdClient(peer(trouble, trouble, b"stream: OK\0"), sleep=waits.append).scan(b"data")
    assert (result.verdict, len(waits)) == (Verdict.CLEAN, TRIES - 1)


def test_a_scan_that_never_answers_ends_in_time_and_is_not_repeated(peer: Peer) -> None:
    """A second try would give clamd the same endless work twice (C50)."""
    waits: list[float] = []
    begun = time.monotonic()
    result = ClamdClient(peer(HANG), timeout_seconds=0.3, sleep=waits.append).scan(b"data")
    assert (result.verdict, result.code, waits) == (Verdict.ERROR, "scanner_timeout", [])
    assert 0.3 <= time.monotonic() - begun < 2
    assert result.milliseconds >= 300


def test_a_peer_that_stops_reading_ends_in_time(peer: Peer) -> None:
    """The limit is on sending too."""
    result = ClamdClient(peer(HANG, read_all=False), timeout_seconds=0.3).scan(bytes(20_000_000))
    assert (result.verdict, result.code) == (Verdict.ERROR, "scanner_timeout")


@pytest.mark.parametrize(
    ("signature", "verdict", "code"),
    [
        ("Win.Test.Thing-1", Verdict.INFECTED, None),
        ("A name with spaces (and more)", Verdict.INFECTED, None),
        ("Heuristics.Encrypted.PDF", Verdict.UNSCANNABLE, "encrypted"),
        ("Heuristics.Limits.Exceeded.MaxScanTime", Verdict.UNSCANNABLE, "limits_exceeded"),
        ("Heuristics.Phishing.Email.SpoofedDomain", Verdict.INFECTED, None),
        ("Evil.Heuristics.Encrypted.Zip", Verdict.INFECTED, None),
    ],
)
def test_findings_are_sorted_by_what_they_are(peer: Peer, signature: str, verdict: Verdict, code: str | None) -> None:
    """Only what clamd could not look into is unscannable; every other finding counts as one."""
    result = ClamdClient(peer(f"stream: {signature} FOUND\0".encode())).scan(b"data")
    assert (result.verdict, result.code, result.signature) == (verdict, code, signature)


def test_a_scanner_that_is_not_there_is_an_error(short_folder: Path) -> None:
    """No socket, a socket nobody listens on, a port nobody listens on: each with a code of its own."""
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(short_folder / "stale"))
    left.close()
    for address, code in (
        (f"unix:{short_folder / 'none'}", "scanner_socket_missing"),
        (f"unix:{short_folder / 'stale'}", "scanner_refused"),
        (f"tcp:127.0.0.1:{free_port()}", "scanner_refused"),
    ):
        waits: list[float] = []
        client = ClamdClient(address, sleep=waits.append)
        result = client.scan(b"")
        assert (result.verdict, result.code, len(waits)) == (Verdict.ERROR, code, TRIES - 1)
        assert not client.ping()
        with pytest.raises(ScannerUnavailable, match=code):
            client.version()


def test_a_pong_of_somebody_else_is_no_clamd(peer: Peer) -> None:
    """Another program may listen where clamd used to."""
    client = ClamdClient(peer(b"HTTP/1.0 400 Bad Request\r\n\r\n", read_all=False), timeout_seconds=1)
    assert not client.ping()
    with pytest.raises(ScannerUnavailable, match="scanner_reply_unknown"):
        client.version()


def test_the_version_of_an_official_database_is_read(peer: Peer) -> None:
    """Engine, number and date, as a freshclam'ed clamd says them."""
    client = ClamdClient(peer(b"ClamAV 1.4.6/27832/Mon Nov 30 09:24:50 2026\0", read_all=False))
    version = client.version()
    assert (version.engine, version.signatures) == ("1.4.6", 27832)
    assert version.signatures_date == "Mon Nov 30 09:24:50 2026"


def test_addresses_are_unix_or_tcp() -> None:
    """The spelling is checked when the client is made, not with the first mail."""
    assert parse_address("unix:/run/clamd.sock") == ClamdAddress(path="/run/clamd.sock")
    assert parse_address("tcp:[::1]:3310") == ClamdAddress(host="::1", port=3310)
    assert parse_address("tcp:av.internal:3310") == ClamdAddress(host="av.internal", port=3310)
    for wrong in ("", "unix:", "unix:relative", "tcp:3310", "tcp:host:", "tcp:host:0", "tcp:host:99999", "/run/x"):
        with pytest.raises(NotConfigured, match="clamd_address_invalid"):
            parse_address(wrong)
