"""The way to models as a house has it: the routing file read again, what is spent, the agent that is asked a question."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlas_pipeline.embedded.standin import program
from atlas_pipeline.errors import AtlasError, NotConfigured, ProviderUnavailable
from atlas_pipeline.flow import models, operator
from atlas_pipeline.flow.models import agent_ask
from atlas_pipeline.model import CompletionRequest, Intent, Status
from atlas_pipeline.settings import Settings
from tests.fixtures_ai import Scripted, chat, said
from tests.fixtures_flow import CLIENT, ROUTING, Bench, failures, judged, letter, outcomes


def test_a_changed_file_is_used_by_the_next_question(bench: Bench) -> None:
    file = Path(bench.values["ai_routing"])
    bench.model.script = [judged(Intent.QUESTION)]
    bench.take_in(letter("Un", "Un\n"))
    file.write_text(file.read_text().replace("mistral-small-latest", "ministral-8b-latest"))
    bench.take_in(letter("Deux", "Deux\n"))
    assert [asked["model"] for asked in bench.model.asked] == ["mistral-small-latest", "ministral-8b-latest"]


def test_a_change_that_can_not_be_used_is_told_once_and_the_last_good_one_goes_on(bench: Bench) -> None:
    file = Path(bench.values["ai_routing"])
    bench.take_in(letter("Un", "Un\n"))
    file.write_text(file.read_text().replace("model: mistral-small-latest", "modle: mistral-small-latest"))
    for word in ("Deux", "Trois"):
        assert bench.status(bench.take_in(letter(word, f"{word}\n"))) is Status.CLASSIFIED
    file.unlink()
    assert bench.status(bench.take_in(letter("Quatre", "Quatre\n"))) is Status.CLASSIFIED
    assert bench.alarms() == ["ai_routing_invalid", "ai_routing_unreadable"]
    file.write_text(ROUTING.replace("mistral-small-latest", "ministral-8b-latest"))
    bench.take_in(letter("Cinq", "Cinq\n"))
    assert bench.model.asked[-1]["model"] == "ministral-8b-latest"


def test_where_there_never_was_a_good_one_messages_wait(bench: Bench, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("tasks: 7")
    house = bench.again(ai_routing=bad)
    house.put(letter())
    (key,) = house.discover()
    assert failures(house.intake([key])) == [("classification", key, "ai_routing_invalid")]
    assert (house.status(key), house.alarms()) == (Status.RECEIVED, ["ai_routing_invalid"])
    with pytest.raises(NotConfigured) as caught:
        models.check(Settings(**house.values))
    assert caught.value.detail["problems"] == "line 1: tasks: model_type"


def budget(bench: Bench, limits: str) -> Bench:
    """The house under these limits."""
    file = bench.folder / "budget.yaml"
    start = ROUTING.index("budget:")
    end = ROUTING.index("\n", start)
    file.write_text((ROUTING[:start] + f"budget: {{{limits}}}" + ROUTING[end:]).replace("mistral: 8", "mistral: 1"))
    return bench.again(ai_routing=file)


def test_the_days_budget_lets_mails_wait_and_tomorrow_they_go_on(bench: Bench) -> None:
    house = budget(bench, "calls_a_day: 2")
    house.model.script = [judged(Intent.QUESTION)]
    for number in range(3):
        house.put(letter(f"Q{number}", f"{number}\n"))
    keys = house.discover()
    reports = house.intake(keys)
    assert failures(reports) == [("classification", keys[2], "ai_budget_of_day_spent")]
    assert (house.status(keys[2]), house.alarms()) == (Status.RECEIVED, ["ai_budget_of_day_spent"])
    assert len(house.model.asked) == 2
    tomorrow = budget(bench, "calls_a_day: 3")
    assert failures(tomorrow.intake(keys, run_id="run-2")) == []


def test_a_message_that_is_asked_about_for_ever_is_set_aside_and_an_operator_gives_it_more(bench: Bench) -> None:
    house = budget(bench, "calls_a_message: 1")
    house.put(letter())
    (key,) = house.discover()
    house.model.script = [chat("sorry")]
    assert failures(house.intake([key])) == [("classification", key, "ai_budget_of_message_spent")]
    assert (house.status(key), len(house.model.asked)) == (Status.FAILED, 1)
    operator.reprocess(house.parts.db, key, actor="lea", force=False)
    house.model.script = [judged(Intent.QUESTION)]
    assert failures(house.intake([key], run_id="run-2")) == []


def test_an_outage_of_a_night_sets_no_message_aside(bench: Bench) -> None:
    """Calls without an answer cost a message nothing, however many there were."""
    house = budget(bench, "calls_a_message: 2")
    house.put(letter())
    (key,) = house.discover()
    house.model.script = [Scripted(body=b"{")]
    for night in range(3):
        assert failures(bench.again(**house.values).intake([key], run_id=f"run-{night}")) == [
            ("classification", key, "provider_body_invalid")
        ]
    assert house.status(key) is Status.RECEIVED
    house.model.script = [judged(Intent.QUESTION)]
    assert failures(bench.again(**house.values).intake([key], run_id="morning")) == []


def test_what_a_call_cost_is_on_record(bench: Bench) -> None:
    bench.take_in(letter())
    (row,) = bench.rows("select tokens_in, tokens_out, euros::float8 as euros from atlas.ai_calls")
    assert row == {"tokens_in": 41, "tokens_out": 7, "euros": pytest.approx((41 * 0.2 + 7 * 0.6) / 1e6, abs=1e-6)}


def test_another_provider_judges_where_the_first_gives_nothing_usable(bench: Bench) -> None:
    house = bench.again(ANTHROPIC_API_KEY="test-key-not-a-secret", anthropic_url=bench.values["mistral_url"])
    house.put(letter("Une ligne", sender=CLIENT))
    (key,) = house.discover()
    good = '{"intent": "run", "confidence": 0.9, "reasoning": "r"}'
    house.model.script = [chat("sorry"), chat("sorry"), said(good)]
    assert outcomes(house.intake([key]), key) == ["done", "done", "not_needed", "done"]
    assert house.state(key).model == "anthropic/claude-haiku-4-5-20251001"
    assert [row["code"] for row in house.rows("select code from atlas.ai_calls order by id")] == [
        "answer_not_json",
        "answer_not_json",
        "ok",
    ]


# The agent, asked a question
# ---------------------------


def test_the_agent_answers_through_its_terminal_and_leaves_nothing_behind(bench: Bench, tmp_path: Path) -> None:
    payload = agent_ask(program())("You are brief.", "Say something.", "sonnet", 60.0)
    assert (payload["subtype"], payload["is_error"]) == ("success", False)
    router = bench.parts.router
    done = router.complete(CompletionRequest("completion", "You are brief.", "Say something."))
    assert done.provider == "claude"
    assert done.content.strip()
    assert done.tokens_out is not None
    (row,) = bench.rows("select task, provider, code from atlas.ai_calls")
    assert row == {"task": "completion", "provider": "claude", "code": "ok"}


def test_an_agent_that_is_gone_or_prints_nothing_is_a_coded_error(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured):
        agent_ask(tmp_path / "none")("s", "p", "m", 5.0)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nsleep 60\n")
    silent.chmod(0o755)
    with pytest.raises(ProviderUnavailable) as caught:
        agent_ask(silent)("s", "p", "m", 1.0)
    assert caught.value.code == "provider_timed_out"
    quiet = tmp_path / "quiet"
    quiet.write_text("#!/bin/sh\nexit 3\n")
    quiet.chmod(0o755)
    with pytest.raises(AtlasError) as broken:
        agent_ask(quiet)("s", "p", "m", 5.0)
    assert broken.value.code == "agent_gave_no_answer"
