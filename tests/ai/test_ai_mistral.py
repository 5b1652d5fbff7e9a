"""The Mistral provider over a real socket: request shape, retries, what each failure becomes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from atlas_pipeline.ai.http import JsonApi
from atlas_pipeline.ai.mistral import Mistral
from atlas_pipeline.ai.retry_after import seconds_to_wait
from atlas_pipeline.errors import AccessRefused, AtlasError, InvalidAnswer, NotConfigured, ProviderUnavailable
from atlas_pipeline.model import Completion, CompletionRequest
from tests.fixtures_ai import KEY, Scripted, ScriptedServer, chat, vectors

SECRET = "the mail's own words"
NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


def ask(mistral: Mistral, timeout_seconds: float = 5.0) -> Completion:
    request = CompletionRequest("classification", "system", SECRET, json_mode=True, max_tokens=99)
    return mistral.complete(request, model="mistral-small-latest", timeout_seconds=timeout_seconds)


def test_a_question_is_sent_in_the_documented_shape_and_the_answer_names_who_answered(
    mistral: Mistral, ai_server: ScriptedServer
) -> None:
    ai_server.script = [chat('{"a": 1}')]
    done = ask(mistral)
    assert ai_server.paths == ["/v1/chat/completions"]
    assert ai_server.authorizations == [f"Bearer {KEY}"]
    assert ai_server.asked[0] == {
        "model": "mistral-small-latest",
        "messages": [{"role": "system", "content": "system"}, {"role": "user", "content": SECRET}],
        "max_tokens": 99,
        "temperature": 0.0,
        "response_format": {"type": "json_object"},
    }
    assert (done.content, done.model, done.tokens_in, done.tokens_out) == (
        '{"a": 1}',
        "mistral/mistral-small-2506",
        41,
        7,
    )


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529, 408])
def test_an_overloaded_provider_is_asked_again_and_answers(
    mistral: Mistral, ai_server: ScriptedServer, waits: list[float], status: int
) -> None:
    """529 twice, then 200 (casebook C63): the mail is classified, after two waits that grow."""
    ai_server.script = [Scripted(status), Scripted(status), chat("ok")]
    assert ask(mistral).content == "ok"
    assert waits == [0.75, 1.25]


def test_a_provider_that_never_recovers_gets_three_calls_and_no_more(
    mistral: Mistral, ai_server: ScriptedServer
) -> None:
    ai_server.script = [Scripted(500, SECRET.encode())]
    with pytest.raises(ProviderUnavailable) as caught:
        ask(mistral)
    assert len(ai_server.asked) == 3
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("value", "first_wait"),
    [("2", 2.25), ("0", 0.75), ("-5", 0.75), ("abc", 0.75), ("20", 20.0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.75)],
)
def test_retry_after_is_a_floor_and_nonsense_is_ignored(
    mistral: Mistral, ai_server: ScriptedServer, waits: list[float], value: str, first_wait: float
) -> None:
    ai_server.script = [Scripted(429, headers={"Retry-After": value}), chat("ok")]
    assert ask(mistral).content == "ok"
    assert waits == [first_wait]


@pytest.mark.parametrize("value", ["21", "86400", format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)])
def test_a_wait_beyond_the_cap_is_left_to_the_next_cycle(
    mistral: Mistral, ai_server: ScriptedServer, waits: list[float], value: str
) -> None:
    """A worker never sleeps for an hour (casebook C62): one call, and the error says how long."""
    ai_server.script = [Scripted(429, headers={"Retry-After": value})]
    with pytest.raises(ProviderUnavailable) as caught:
        ask(mistral)
    assert (len(ai_server.asked), waits) == (1, [])
    assert float(caught.value.detail["retry_after"] or 0) > 20


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
        (400, InvalidAnswer, "provider_request_rejected"),
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
        (Scripted(body=b"\xff\xfe\x00"), "provider_body_invalid"),
        (Scripted(body=b'{"choices": []}' * 50, cut=True), "provider_cut_off"),
        (Scripted(body=b"not gzip", headers={"Content-Encoding": "gzip"}), "provider_cut_off"),
    ],
)
def test_a_body_that_is_cut_or_no_json_is_the_providers_trouble_and_mends_itself(
    mistral: Mistral, ai_server: ScriptedServer, broken: Scripted, code: str
) -> None:
    ai_server.script = [broken, chat("ok")]
    assert ask(mistral).content == "ok"
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
    api = JsonApi("https://provider.example", {}, transport=transport, sleep=lambda seconds: None)
    with pytest.raises(ProviderUnavailable) as caught:
        api.post("/v1/x", {}, timeout_seconds=0.05)
    assert caught.value.code == "provider_timed_out"
    api.close()


def test_nobody_listening_is_unreachable(waits: list[float]) -> None:
    with ScriptedServer() as unused:
        url = unused.url
    api = JsonApi(url, {}, transport=httpx.HTTPTransport(), sleep=waits.append)
    with pytest.raises(ProviderUnavailable) as caught:
        ask(Mistral(api))
    assert (caught.value.code, len(waits)) == ("provider_unreachable", 2)
    api.close()


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (chat("", "stop"), "answer_empty"),
        (chat(" \n ", "stop"), "answer_empty"),
        (chat(None, "stop"), "answer_empty"),
        (chat(None, "length"), "answer_truncated"),
        (chat('{"intent": "run"', "length"), "answer_truncated"),
        (chat("", "model_length"), "answer_truncated"),
        (chat("I cannot help with that.", "refusal"), "answer_refused"),
        (chat("", "content_filter"), "answer_refused"),
        (chat("", "tool_calls"), "answer_unfinished"),
        (chat(7, "stop"), "answer_shape_unknown"),
        (chat([{"type": "picture", "url": "x"}]), "answer_shape_unknown"),
        (chat([{"type": "text", "text": None}]), "answer_shape_unknown"),
        (chat(["text"]), "answer_shape_unknown"),
        (chat([]), "answer_empty"),
        (chat("x", choices=[]), "answer_shape_unknown"),
        (chat("x", choices=[{"finish_reason": ["stop"]}]), "answer_unfinished"),
        (chat("x", choices=[{"message": None, "finish_reason": "stop"}]), "answer_empty"),
    ],
)
def test_an_answer_without_usable_content_is_named_for_what_it_is_and_its_price_is_known(
    mistral: Mistral, ai_server: ScriptedServer, answer: Scripted, code: str
) -> None:
    """The finish reason is looked at first (casebook C58), and a paid call is not asked for five times more."""
    ai_server.script = [answer]
    with pytest.raises(InvalidAnswer) as caught:
        ask(mistral)
    assert caught.value.code == code
    assert caught.value.detail == {"tokens_in": 41, "tokens_out": 7}
    assert len(ai_server.asked) == 1


def test_of_a_list_of_parts_only_text_is_the_answer(mistral: Mistral, ai_server: ScriptedServer) -> None:
    """Reasoning models send their thoughts beside the answer (casebook C61)."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": '{"intent": "noise"}'}]}
    ai_server.script = [chat([thinking, {"type": "text", "text": '{"intent":'}, {"type": "text", "text": '"run"}'}])]
    assert ask(mistral).content == '{"intent":"run"}'


def test_a_model_name_or_usage_that_makes_no_sense_is_not_repeated(mistral: Mistral, ai_server: ScriptedServer) -> None:
    ai_server.script = [chat("ok", model="<script>", usage={"prompt_tokens": True, "completion_tokens": -1})]
    done = ask(mistral)
    assert (done.model, done.tokens_in, done.tokens_out) == ("mistral/mistral-small-latest", None, None)


def test_characters_that_cannot_be_encoded_do_not_stop_a_question(mistral: Mistral, ai_server: ScriptedServer) -> None:
    ai_server.script = [chat("ok")]
    request = CompletionRequest("classification", "s\x00", "a\ud83db é")
    assert mistral.complete(request, model="m", timeout_seconds=5).content == "ok"
    assert [message["content"] for message in ai_server.asked[0]["messages"]] == ["s", "a\ufffdb é"]


def test_embeddings_come_back_in_the_order_of_the_texts(mistral: Mistral, ai_server: ScriptedServer) -> None:
    ai_server.script = [vectors((1, [0, 1.0]), (0, [1.0, 0]))]
    found = mistral.embed(["a", "b"], model="mistral-embed", timeout_seconds=5)
    assert (found.model, found.vectors) == ("mistral/mistral-embed", [[1.0, 0.0], [0.0, 1.0]])
    assert ai_server.paths == ["/v1/embeddings"]
    assert ai_server.asked[0] == {"model": "mistral-embed", "input": ["a", "b"]}


def test_many_texts_are_asked_for_in_bounded_batches(mistral: Mistral, ai_server: ScriptedServer) -> None:
    ai_server.script = [vectors(*[(i, [1.0]) for i in range(64)]), vectors((0, [2.0]))]
    found = mistral.embed(["x"] * 65, model="mistral-embed", timeout_seconds=5)
    assert [len(call["input"]) for call in ai_server.asked] == [64, 1]
    assert found.vectors[-1] == [2.0]
    ai_server.asked.clear()
    ai_server.script = [vectors((0, [1.0]), (1, [1.0]), (2, [1.0])), vectors((0, [2.0]))]
    mistral.embed(["x" * 9000] * 4, model="mistral-embed", timeout_seconds=5)
    assert [[len(text) for text in call["input"]] for call in ai_server.asked] == [[8000] * 3, [8000]]


@pytest.mark.parametrize(
    "answer",
    [
        vectors((0, [1.0])),
        vectors((0, [1.0]), (0, [1.0])),
        vectors((0, [1.0]), (2, [1.0])),
        vectors((0, [1.0]), (1, [1.0, 2.0])),
        vectors((0, [1.0]), (1, [])),
        vectors((0, [1.0]), (1, [float("nan")])),
        Scripted(body=b'{"data": [{"index": 0, "embedding": [' + b"9" * 400 + b']}, {"index": 1, "embedding": [1]}]}'),
        Scripted(body=b'{"data": [1, 2]}'),
        Scripted(body=b'{"data": "none"}'),
        Scripted(body=b'{"data": [{"index": 0, "embedding": [true]}, {"index": 1, "embedding": ["1"]}]}'),
    ],
)
def test_vectors_that_are_missing_doubled_or_no_numbers_are_refused(
    mistral: Mistral, ai_server: ScriptedServer, answer: Scripted
) -> None:
    ai_server.script = [answer]
    with pytest.raises(InvalidAnswer) as caught:
        mistral.embed(["a", "b"], model="mistral-embed", timeout_seconds=5)
    assert caught.value.code == "embedding_invalid"


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
