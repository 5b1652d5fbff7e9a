"""One HTTP call: what each failure becomes. Retries are the router's."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

import httpx
import pytest

from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.mistral import Mistral
from atlas_pipeline.ai.retry_after import seconds_to_wait
from atlas_pipeline.errors import AccessRefused, AtlasError, InvalidAnswer, NotConfigured, ProviderUnavailable
from atlas_pipeline.model import Completion, CompletionRequest
from tests.fixtures_ai import KEY, Scripted, ScriptedServer

SECRET = "the mail's own words"
NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def ask(mistral: Mistral, timeout_seconds: float = 5.0) -> Completion:
    request = CompletionRequest("classification", "system", SECRET, max_tokens=99)
    return mistral.complete(request, model="mistral-small-latest", timeout_seconds=timeout_seconds)


def test_retry_after_as_a_date_is_seconds_from_now() -> None:
    assert seconds_to_wait("Tue, 01 Dec 2026 12:00:07 GMT", NOW) == 7.0
    assert seconds_to_wait("Tue, 01 Dec 2026 12:00:07 -0000", NOW) == 7.0
    assert seconds_to_wait("Tue, 01 Dec 2026 11:00:00 GMT", NOW) == 0.0
    assert seconds_to_wait(None, NOW) is None
    assert seconds_to_wait("1e999", NOW) is None


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (401, AccessRefused, "provider_access_refused"),
        (403, AccessRefused, "provider_access_refused"),
        (404, NotConfigured, "provider_url_or_model_unknown"),
        (302, NotConfigured, "provider_url_or_model_unknown"),
        (400, NotConfigured, "provider_request_rejected"),
        (451, NotConfigured, "provider_request_rejected"),
        (413, InvalidAnswer, "provider_request_rejected"),
        (201, ProviderUnavailable, "provider_overloaded"),
        (409, ProviderUnavailable, "provider_overloaded"),
        (422, InvalidAnswer, "provider_request_rejected"),
    ],
)
def test_a_refusal_by_status_is_not_tried_again(
    mistral: Mistral, ai_server: ScriptedServer, status: int, error: type[AtlasError], code: str
) -> None:
    ai_server.script = [Scripted(status, SECRET.encode())]
    with pytest.raises(error) as caught:
        ask(mistral)
    assert (caught.value.code, len(ai_server.asked)) == (code, 1)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "code"),
    [
        (Scripted(body=b'{"choices": [{"message": ', headers={}), "provider_body_invalid"),
        (Scripted(body=b"[" * 100_000), "provider_body_invalid"),
        (Scripted(body=b"<html>maintenance</html>"), "provider_body_invalid"),
        (Scripted(body=b"[]"), "provider_body_invalid"),
        (Scripted(body=b'{"error": {"message": "overloaded"}}'), "provider_error_answered"),
        (Scripted(body=b"\xff\xfe\x00"), "provider_body_invalid"),
        (Scripted(body=b'{"choices": []}' * 50, cut=True), "provider_cut_off"),
        (Scripted(body=b"not gzip", headers={"Content-Encoding": "gzip"}), "provider_cut_off"),
    ],
)
def test_a_body_that_is_cut_or_no_json_is_the_providers_trouble(
    mistral: Mistral, ai_server: ScriptedServer, broken: Scripted, code: str
) -> None:
    ai_server.script = [broken]
    with pytest.raises(ProviderUnavailable) as caught:
        ask(mistral)
    assert caught.value.code == code


def test_slow_headers_end_at_the_time_out(mistral: Mistral, ai_server: ScriptedServer) -> None:
    ai_server.script = [Scripted(delay=0.4)]
    with pytest.raises(ProviderUnavailable) as caught:
        ask(mistral, timeout_seconds=0.1)
    assert caught.value.code == "provider_timed_out"


def test_a_trickling_body_ends_at_the_time_out_although_bytes_keep_coming() -> None:
    """The client's own time-out starts anew with every byte; a deadline does not (casebook C63)."""

    class Trickle(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for _ in range(100):
                time.sleep(0.02)
                yield b" "

    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Trickle()))
    api = JsonApi("https://provider.example", {}, transport=transport)
    with pytest.raises(ProviderUnavailable) as caught:
        api.post("/v1/x", {}, timeout_seconds=0.05)
    assert caught.value.code == "provider_timed_out"
    api.close()


def test_nobody_listening_is_unreachable() -> None:
    with ScriptedServer() as unused:
        url = unused.url
    api = JsonApi(url, {}, transport=httpx.HTTPTransport())
    with pytest.raises(ProviderUnavailable) as caught:
        ask(Mistral(api))
    assert caught.value.code == "provider_unreachable"
    api.close()


@pytest.mark.parametrize(
    ("url", "headers", "code"),
    [
        ("http://api.mistral.ai", {}, "provider_url_not_https"),
        ("", {}, "provider_url_not_https"),
        ("ftp://localhost", {}, "provider_url_not_https"),
        ("https://host:port", {}, "provider_url_invalid"),
        ("https://api.mistral.ai", {"Authorization": "Bearer clé"}, "provider_key_malformed"),
        ("https://api.mistral.ai", {"Authorization": "Bearer a\nb"}, "provider_key_malformed"),
    ],
)
def test_a_url_in_the_clear_or_a_malformed_key_is_refused_before_anything_is_sent(
    url: str, headers: dict[str, str], code: str
) -> None:
    with pytest.raises(NotConfigured) as caught:
        JsonApi(url, headers)
    assert caught.value.code == code


def test_the_key_is_in_no_repr(mistral: Mistral) -> None:
    assert KEY not in repr(mistral)
    assert KEY not in repr(mistral.api)


@pytest.mark.parametrize(
    "drip",
    [
        [b"H"] * 200,  # never a whole header
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;x="]
        + [b"a"] * 200,  # an endless chunk extension
    ],
    ids=["headers", "chunk extension"],
)
def test_a_server_that_trickles_ends_at_the_time_out_wherever_it_does_so(drip: list[bytes]) -> None:
    """The client's own time-outs begin anew with each byte; ours does not, in headers as little as in the body."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                connection, _address = server.accept()
                with connection:
                    for piece in drip:
                        connection.sendall(piece)
                        time.sleep(0.1)

        threading.Thread(target=serve, daemon=True).start()
        api = JsonApi(f"http://127.0.0.1:{server.getsockname()[1]}", {})
        started = time.monotonic()
        with pytest.raises(ProviderUnavailable) as caught:
            api.post("/v1/x", {}, timeout_seconds=0.5)
        assert caught.value.code == "provider_timed_out"
        assert time.monotonic() - started < 3
        api.close()
