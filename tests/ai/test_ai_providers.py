"""The contract of every provider on a loopback server: what is sent, and that one answer means the same from each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from atlas_pipeline.ai.agent import AgentProvider
from atlas_pipeline.ai.provider import CompletionProvider, EmbeddingProvider
from atlas_pipeline.ai.providers import Account, Providers, build
from atlas_pipeline.ai.router import REMINDER, EmbeddingRoute, Route, Router
from atlas_pipeline.classify.answer import SCHEMA, parse_answer
from atlas_pipeline.errors import InvalidAnswer, NotConfigured, ProviderUnavailable
from atlas_pipeline.model import AnswerFormat, CompletionRequest
from tests.fixtures_ai import KEY, Scripted, ScriptedServer, chat, said, tool_use, vectors

REQUEST = CompletionRequest("classification", "the rules", "the mail", schema=SCHEMA, max_tokens=99)
PLAIN = CompletionRequest("generation", "", "write", max_tokens=50, temperature=0.7)
GOOD = '{"intent": "run", "confidence": 0.9, "reasoning": "r"}'


@pytest.fixture
def providers(ai_server: ScriptedServer) -> Iterator[Providers]:
    names = ("mistral", "anthropic", "openai", "voyage")
    found = build({name: Account(KEY, ai_server.url) for name in names}, transport=httpx.HTTPTransport())
    yield found
    found.close()


@dataclass
class Agent:
    """The agent's side of a question: answers with ``result`` events as the command line prints them."""

    server: ScriptedServer

    def ask(self, system: str, prompt: str, model: str, seconds: float) -> dict[str, Any]:
        self.server.asked.append({"system": system, "prompt": prompt, "model": model})
        answer = self.server.script.pop(0) if len(self.server.script) > 1 else self.server.script[0]
        value: dict[str, Any] = json.loads(answer.body)
        return value


def result(content: object, stop: str | None = "end_turn", **more: object) -> Scripted:
    """The agent's last event."""
    usage = {"input_tokens": 41, "output_tokens": 7}
    event = {"type": "result", "subtype": "success", "is_error": False, "result": content, "stop_reason": stop}
    named: dict[str, object] = {"modelUsage": {"claude-sonnet-4-6": {}}}
    return Scripted(body=json.dumps({**event, "usage": usage, **named, **more}).encode())


Answer = Callable[..., Scripted]
# How each says: this text and done; cut off; refused; by its own words for it.
SPEAK: dict[str, tuple[Answer, str, str, str]] = {
    "mistral": (chat, "stop", "length", "content_filter"),
    "openai": (chat, "stop", "length", "content_filter"),
    "anthropic": (said, "end_turn", "max_tokens", "refusal"),
    "claude": (result, "end_turn", "max_tokens", "refusal"),
}


@pytest.fixture(params=SPEAK)
def speaker(
    request: pytest.FixtureRequest, providers: Providers, ai_server: ScriptedServer
) -> tuple[CompletionProvider, Answer, str, str, str]:
    """Each provider that completes, with the way it answers."""
    name = request.param
    provider = AgentProvider(Agent(ai_server).ask) if name == "claude" else providers.completing[name]
    return (provider, *SPEAK[name])


Speaker = tuple[CompletionProvider, Answer, str, str, str]


def routed(provider: CompletionProvider) -> Router:
    return Router({"classification": [Route(provider, "m", 5)]}, sleep=lambda seconds: None)


def test_an_answer_is_read_alike_from_every_provider(speaker: Speaker, ai_server: ScriptedServer) -> None:
    """Casebook C53."""
    provider, answer, stop, _cut, _refused = speaker
    ai_server.script = [answer(GOOD, stop)]
    done = provider.complete(REQUEST, model="m", timeout_seconds=5)
    assert (done.content, done.provider, done.tokens_in, done.tokens_out) == (GOOD, provider.name, 41, 7)
    assert done.model.startswith(f"{provider.name}/")
    assert done.model != f"{provider.name}/m"


@pytest.mark.parametrize(
    "content",
    [f"```json\n{GOOD}\n```", f"```\n{GOOD}\n```", f"  {GOOD}\n"],
)
def test_a_fenced_answer_is_accepted_from_every_provider(
    speaker: Speaker, ai_server: ScriptedServer, content: str
) -> None:
    """Casebook C52, C53: one call each."""
    provider, answer, stop, _cut, _refused = speaker
    ai_server.script = [answer(content, stop)]
    read, _done = routed(provider).judged(REQUEST, lambda done: parse_answer(done.content))
    assert (read.intent, len(ai_server.asked)) == ("run", 1)


BAD = {
    "prose": (f"Here it is: {GOOD}", "answer_not_json"),
    "two objects": (GOOD + GOOD, "answer_not_json"),
    "percent": ('{"intent": "run", "confidence": 90, "reasoning": ""}', "answer_confidence_range"),
    "text": ('{"intent": "run", "confidence": "0.9", "reasoning": ""}', "answer_confidence_type"),
    "bool": ('{"intent": "run", "confidence": true, "reasoning": ""}', "answer_confidence_type"),
    "NaN": ('{"intent": "run", "confidence": NaN, "reasoning": ""}', "answer_not_json"),
    "1e999": ('{"intent": "run", "confidence": 1e999, "reasoning": ""}', "answer_confidence_range"),
    "doubled": ('{"intent": "run", "intent": "noise", "confidence": 1, "reasoning": ""}', "answer_key_doubled"),
    "deep": ("[" * 40_000, "answer_not_json"),
    "huge": ('{"intent": "run", "confidence": ' + "9" * 5_000 + ', "reasoning": ""}', "answer_not_json"),
    "party": ('{"intent": "party", "confidence": 1, "reasoning": ""}', "answer_intent_unknown"),
    "empty": ("", "answer_empty"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_unusable_answer_is_asked_for_once_more_and_then_named_whoever_gave_it(
    speaker: Speaker, ai_server: ScriptedServer, case: str
) -> None:
    """Casebook C52 to C58, through each provider."""
    provider, answer, stop, _cut, _refused = speaker
    content, code = BAD[case]
    ai_server.script = [answer(content, stop)]
    with pytest.raises(InvalidAnswer) as caught:
        routed(provider).judged(REQUEST, lambda done: parse_answer(done.content))
    assert len(ai_server.asked) == 2
    assert REMINDER.strip() in json.dumps(ai_server.asked[1])
    assert caught.value.code == code or caught.value.code.startswith("answer_")
    ai_server.script = [answer(content, stop), answer(GOOD, stop)]
    assert routed(provider).judged(REQUEST, lambda done: parse_answer(done.content))[0].intent == "run"


def test_the_finish_reason_is_looked_at_before_the_content(speaker: Speaker, ai_server: ScriptedServer) -> None:
    """Casebook C58, C60: cut off is asked for again with more room, refused is not asked again."""
    provider, answer, stop, cut, refused = speaker
    ai_server.script = [answer('{"intent": "ru', cut), answer(GOOD, stop)]
    assert routed(provider).complete(REQUEST).content == GOOD
    ai_server.asked.clear()
    ai_server.script = [answer("I cannot help with that.", refused)]
    with pytest.raises(InvalidAnswer) as caught:
        routed(provider).complete(REQUEST)
    assert (caught.value.code, len(ai_server.asked)) == ("answer_refused", 1)
    assert caught.value.detail == {"tokens_in": 41, "tokens_out": 7}
    ai_server.script = [answer("", cut)]
    with pytest.raises(InvalidAnswer) as caught:
        routed(provider).complete(REQUEST)
    assert caught.value.code == "answer_truncated"


def test_characters_that_no_table_takes_are_no_obstacle(speaker: Speaker, ai_server: ScriptedServer) -> None:
    """Casebook C57: NUL and half a surrogate, asked and answered."""
    provider, answer, stop, _cut, _refused = speaker
    odd = CompletionRequest("classification", "s\x00", "a\ud83db é")
    ai_server.script = [answer('{"intent": "run", "confidence": 0.9, "reasoning": "a\\u0000\\ud83d"}', stop)]
    done = provider.complete(odd, model="m", timeout_seconds=5)
    parse_answer(done.content).reasoning.encode()


# What is sent
# ------------


def test_mistral_is_asked_in_its_shape(providers: Providers, ai_server: ScriptedServer) -> None:
    ai_server.script = [chat(GOOD)]
    providers.completing["mistral"].complete(REQUEST, model="mistral-small-latest", timeout_seconds=5)
    assert (ai_server.paths, ai_server.headers[0]["authorization"]) == (["/v1/chat/completions"], f"Bearer {KEY}")
    assert ai_server.asked[0] == {
        "model": "mistral-small-latest",
        "messages": [{"role": "system", "content": "the rules"}, {"role": "user", "content": "the mail"}],
        "max_tokens": 99,
        "temperature": 0.0,
        "response_format": {"type": "json_object"},
    }


def test_openai_is_asked_in_its_shape(providers: Providers, ai_server: ScriptedServer) -> None:
    ai_server.script = [chat(GOOD)]
    provider = providers.completing["openai"]
    provider.complete(REQUEST, model="gpt-4o-mini", timeout_seconds=5)
    assert (ai_server.paths, ai_server.headers[0]["authorization"]) == (["/v1/chat/completions"], f"Bearer {KEY}")
    assert ai_server.asked[0] == {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": "the rules"}, {"role": "user", "content": "the mail"}],
        "max_completion_tokens": 99,
        "temperature": 0.0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "classification", "schema": SCHEMA, "strict": True},
        },
    }
    assert isinstance(SCHEMA["properties"], dict)
    assert sorted(SCHEMA["properties"]) == sorted(SCHEMA["required"])  # type: ignore[call-overload]  # as strict mode wants


def test_a_refusal_of_openai_has_a_field_of_its_own(providers: Providers, ai_server: ScriptedServer) -> None:
    choice = {"message": {"content": None, "refusal": "I can't."}, "finish_reason": "stop"}
    ai_server.script = [chat(None, choices=[choice])]
    with pytest.raises(InvalidAnswer) as caught:
        providers.completing["openai"].complete(REQUEST, model="m", timeout_seconds=5)
    assert caught.value.code == "answer_refused"


def test_anthropic_is_asked_in_its_shape(providers: Providers, ai_server: ScriptedServer) -> None:
    ai_server.script = [tool_use({"intent": "run", "confidence": 0.9, "reasoning": "r"})]
    done = providers.completing["anthropic"].complete(REQUEST, model="claude-haiku-4-5", timeout_seconds=5)
    assert json.loads(done.content) == json.loads(GOOD)
    assert (ai_server.paths, ai_server.headers[0]["x-api-key"]) == (["/v1/messages"], KEY)
    assert ai_server.headers[0]["anthropic-version"] == "2023-06-01"
    tool = {"name": "answer", "description": "Give the answer.", "input_schema": SCHEMA}
    assert ai_server.asked[0] == {
        "model": "claude-haiku-4-5",
        "system": "the rules",
        "messages": [{"role": "user", "content": "the mail"}],
        "max_tokens": 99,
        "temperature": 0.0,
        "tools": [tool],
        "tool_choice": {"type": "tool", "name": "answer"},
    }


def test_without_a_system_message_or_schema_none_is_sent(providers: Providers, ai_server: ScriptedServer) -> None:
    ai_server.script = [chat("x")]
    providers.completing["openai"].complete(PLAIN, model="m", timeout_seconds=5)
    ai_server.script = [said("x")]
    providers.completing["anthropic"].complete(PLAIN, model="m", timeout_seconds=5)
    openai, anthropic = ai_server.asked
    assert openai["messages"] == anthropic["messages"] == [{"role": "user", "content": "write"}]
    assert not {"response_format", "system", "tools"} & (openai.keys() | anthropic.keys())
    own = CompletionRequest("generation", "", "write", temperature=None)
    ai_server.script = [chat("x")]
    providers.completing["openai"].complete(own, model="m", timeout_seconds=5)
    assert "temperature" not in ai_server.asked[-1]


@pytest.mark.parametrize("form", AnswerFormat)
def test_a_route_says_how_json_is_asked_for(
    providers: Providers, ai_server: ScriptedServer, form: AnswerFormat
) -> None:
    request = CompletionRequest("classification", "s", "p", schema=SCHEMA, answer_format=form)
    ai_server.script = [chat(GOOD)]
    providers.completing["mistral"].complete(request, model="m", timeout_seconds=5)
    sent = ai_server.asked[0].get("response_format", {"type": "text"})["type"]
    assert sent == {"schema": "json_schema", "object": "json_object", "text": "text"}[form]
    ai_server.script = [said(GOOD)]
    providers.completing["anthropic"].complete(request, model="m", timeout_seconds=5)
    assert ("tools" in ai_server.asked[1]) is (form is AnswerFormat.SCHEMA)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (said([], "end_turn"), "answer_empty"),
        (said(None, "end_turn"), "answer_empty"),
        (said([], "refusal"), "answer_refused"),
        (said([{"type": "thinking", "thinking": GOOD}], "end_turn"), "answer_empty"),
        (said([{"type": "server_tool_use"}], "end_turn"), "answer_shape_unknown"),
        (said("x", "pause_turn"), "answer_unfinished"),
        (said("x", "model_context_window_exceeded"), "answer_truncated"),
        (said([{"type": "text", "text": GOOD}], "tool_use"), "answer_shape_unknown"),
        (said([{"type": "tool_use", "name": "other", "input": {}}], "tool_use"), "answer_shape_unknown"),
        (said([{"type": "tool_use", "name": "answer"}] * 2, "tool_use"), "answer_shape_unknown"),
    ],
)
def test_an_unfit_message_of_anthropic_is_named(
    providers: Providers, ai_server: ScriptedServer, answer: Scripted, code: str
) -> None:
    ai_server.script = [answer]
    with pytest.raises(InvalidAnswer) as caught:
        providers.completing["anthropic"].complete(REQUEST, model="m", timeout_seconds=5)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (chat(None, "stop"), "answer_empty"),
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
def test_an_unfit_chat_completion_is_named_and_its_price_is_known(
    providers: Providers, ai_server: ScriptedServer, answer: Scripted, code: str
) -> None:
    ai_server.script = [answer]
    with pytest.raises(InvalidAnswer) as caught:
        providers.completing["mistral"].complete(REQUEST, model="m", timeout_seconds=5)
    assert (caught.value.code, caught.value.detail) == (code, {"tokens_in": 41, "tokens_out": 7})


def test_of_a_list_of_parts_only_text_is_the_answer(providers: Providers, ai_server: ScriptedServer) -> None:
    """Casebook C61: what a reasoning model thought aloud is no answer."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": '{"intent": "noise"}'}]}
    ai_server.script = [chat([thinking, {"type": "text", "text": GOOD[:9]}, {"type": "text", "text": GOOD[9:]}])]
    assert providers.completing["mistral"].complete(REQUEST, model="m", timeout_seconds=5).content == GOOD


def test_a_model_name_or_usage_that_makes_no_sense_is_not_repeated(
    providers: Providers, ai_server: ScriptedServer
) -> None:
    ai_server.script = [chat("ok", model="<script>", usage={"prompt_tokens": True, "completion_tokens": -1})]
    done = providers.completing["mistral"].complete(REQUEST, model="m", timeout_seconds=5)
    assert (done.model, done.tokens_in, done.tokens_out) == ("mistral/m", None, None)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"intent": "noise", "confidence": 0.99, "reasoning": "", "intent": "run"}', "answer_key_doubled"),
        ('{"intent": "run", "confidence": ' + "9" * 5_000 + ', "reasoning": ""}', "answer_not_json"),
    ],
)
def test_a_tools_input_is_read_as_strictly_as_a_text(
    providers: Providers, ai_server: ScriptedServer, body: str, code: str
) -> None:
    """Casebook C56: here the API hands the model's JSON over as part of its own."""
    whole = tool_use("PLACE").body.replace(b'"PLACE"', body.encode())
    ai_server.script = [Scripted(body=whole)]
    with pytest.raises(InvalidAnswer) as caught:
        routed(providers.completing["anthropic"]).judged(REQUEST, lambda done: parse_answer(done.content))
    assert (caught.value.code, len(ai_server.asked)) == (code, 2)


def test_an_agent_whose_api_is_down_is_down_and_one_that_was_cut_short_gave_no_answer(
    ai_server: ScriptedServer,
) -> None:
    """The program reports an overload or a login that ended as a success, in words, with ``is_error``."""
    ai_server.script = [result("API Error: 529 overloaded", is_error=True)]
    with pytest.raises(ProviderUnavailable):
        AgentProvider(Agent(ai_server).ask).complete(PLAIN, model="sonnet", timeout_seconds=5)
    ai_server.script = [result("", subtype="error_max_turns")]
    with pytest.raises(InvalidAnswer):
        AgentProvider(Agent(ai_server).ask).complete(PLAIN, model="sonnet", timeout_seconds=5)


# Embeddings
# ----------


@pytest.mark.parametrize("name", ["mistral", "openai", "voyage"])
def test_embeddings_come_back_in_the_order_of_the_texts(
    providers: Providers, ai_server: ScriptedServer, name: str
) -> None:
    ai_server.script = [vectors((1, [0, 1.0]), (0, [1.0, 0]))]
    found = providers.embedding[name].embed(["a", "b"], model="emb", timeout_seconds=5)
    assert (found.model, found.vectors, found.tokens) == (f"{name}/emb", [[1.0, 0.0], [0.0, 1.0]], 12)
    assert ai_server.paths == ["/v1/embeddings"]
    more: dict[str, object] = {"mistral": {}, "openai": {"encoding_format": "float"}, "voyage": {"truncation": True}}[
        name
    ]  # type: ignore[assignment]
    assert ai_server.asked[0] == {"model": "emb", "input": ["a", "b"], **more}


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
@pytest.mark.parametrize("name", ["mistral", "openai", "voyage"])
def test_vectors_that_are_missing_doubled_or_no_numbers_are_refused(
    providers: Providers, ai_server: ScriptedServer, answer: Scripted, name: str
) -> None:
    ai_server.script = [answer]
    with pytest.raises(InvalidAnswer) as caught:
        providers.embedding[name].embed(["a", "b"], model="m", timeout_seconds=5)
    assert caught.value.code == "embedding_invalid"


def embedding_router(provider: EmbeddingProvider, waits: list[float]) -> Router:
    return Router({}, EmbeddingRoute(provider, "mistral-embed", 5), sleep=waits.append, jitter=lambda: 0.0)


def test_many_texts_are_asked_for_in_bounded_batches_and_a_failed_one_alone_again(
    providers: Providers, ai_server: ScriptedServer
) -> None:
    waits: list[float] = []
    router = embedding_router(providers.embedding["mistral"], waits)
    ai_server.script = [vectors(*[(i, [1.0]) for i in range(64)]), Scripted(503), vectors((0, [2.0]))]
    found = router.embed(["x"] * 65)
    assert [len(call["input"]) for call in ai_server.asked] == [64, 1, 1]
    assert (found.vectors[-1], waits) == ([2.0], [0.5])
    ai_server.asked.clear()
    ai_server.script = [vectors((0, [1.0]), (1, [1.0]), (2, [1.0])), vectors((0, [2.0]))]
    router.embed(["x" * 9000] * 4)
    assert [[len(text) for text in call["input"]] for call in ai_server.asked] == [[8000] * 3, [8000]]


def test_batches_of_two_sizes_are_refused(providers: Providers, ai_server: ScriptedServer) -> None:
    ai_server.script = [vectors(*[(i, [1.0]) for i in range(64)]), vectors((0, [2.0, 3.0]))]
    with pytest.raises(InvalidAnswer):
        embedding_router(providers.embedding["mistral"], []).embed(["x"] * 65)


# Who is there
# ------------


def test_only_who_has_a_key_is_there_and_no_repr_shows_one(ai_server: ScriptedServer) -> None:
    account = Account(KEY, ai_server.url)
    found = build({"mistral": Account(None), "openai": Account(""), "anthropic": account})
    assert (set(found.completing), set(found.embedding)) == ({"local", "anthropic"}, {"local"})
    assert KEY not in repr(found) + repr(account)
    found.close()


def test_an_agent_that_is_missing_is_not_configured_and_one_that_says_nothing_unavailable(
    ai_server: ScriptedServer,
) -> None:
    def silent(system: str, prompt: str, model: str, seconds: float) -> dict[str, Any]:
        raise ProviderUnavailable("agent_gave_no_answer")

    def missing(system: str, prompt: str, model: str, seconds: float) -> dict[str, Any]:
        raise NotConfigured("agent_missing")

    with pytest.raises(ProviderUnavailable):
        AgentProvider(silent).complete(PLAIN, model="sonnet", timeout_seconds=1)
    with pytest.raises(NotConfigured):
        routed(AgentProvider(missing)).judged(REQUEST, lambda done: done)
