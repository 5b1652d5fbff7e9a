"""``atlas replay`` as an operator gives it: a real database, a model behind a socket, and the truth left as it was."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from atlas_pipeline.model import Intent
from tests.fixtures_ai import Scripted
from tests.fixtures_flow import REPLAY_TABLES, ROUTING, Bench, everything, judged, letter
from tests.fixtures_orchestration import Atlas, Said

OTHER = ROUTING.replace("at_once: {mistral: 8", "at_once: {mistral: 1").replace("mistral-small", "mistral-medium")


def this_month() -> str:
    return datetime.now(ZoneInfo("Europe/Paris")).strftime("%Y-%m")


def code_of(said: Said) -> str:
    """The one line of an error."""
    assert (said.status, said.out) == (1, ""), said
    (line,) = said.err.splitlines()
    return line.removeprefix("error: ")


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Another routing file: another model classifies."""
    file = tmp_path / "other.yaml"
    file.write_text(OTHER, encoding="utf-8")
    return file


@pytest.fixture
def two(house_env: Bench) -> list[str]:
    """A question, and a chantier that would start an agent."""
    return [house_env.take_in(letter("Zinnober"), Intent.QUESTION), house_env.chantier()]


def test_a_replay_is_printed_and_the_truth_is_as_it_was_to_the_byte(
    house_env: Bench, atlas: Atlas, two: list[str], other: Path
) -> None:
    """No work record, no spawn, no audit, no claim: every table but the replay's own is compared as text."""
    before = everything(house_env, *REPLAY_TABLES)
    assert {"chantiers", "spawns", "audit_log", "inbox", "ai_calls", "notifications", "inbox_claims"} <= set(before)
    house_env.model.script = [judged("chantier", 0.8), judged("chantier")]
    said = atlas("replay", "--month", this_month(), "--routing", other)
    assert said.status == 0
    assert everything(house_env, *REPLAY_TABLES) == before
    assert [asked["model"] for asked in house_env.model.asked[-2:]] == ["mistral-medium-latest"] * 2
    lines = said.out.splitlines()
    assert lines[0].startswith(f"{this_month()}: 2 judged again, 0 left, 2 calls, ")
    assert lines[1] == "1 changed: 0 better, 0 worse, 1 unknown"
    assert lines[-1] == f"{two[0]}  question 0.90 -> chantier 0.80  unknown"
    assert "innober" not in said.out
    found = json.loads(atlas("replay", "--month", this_month(), "--routing", other, "--json").out)
    assert (found["left"], found["stopped"], found["comparison"]["new_jobs"]) == (0, None, 1)
    assert len(house_env.model.asked) == 4
    assert everything(house_env, *REPLAY_TABLES) == before


def test_a_model_that_is_down_halfway_is_said_and_the_same_order_goes_on_from_there(
    house_env: Bench, atlas: Atlas, two: list[str], other: Path
) -> None:
    """Nothing is judged twice, and nothing of the outage is written beside the truth."""
    before = everything(house_env, *REPLAY_TABLES)
    house_env.model.script = [judged("question"), Scripted(status=503)]
    stopped = atlas("replay", "--month", this_month(), "--routing", other)
    assert (stopped.status, stopped.err) == (1, "")
    assert ": 1 judged again, 1 left, " in stopped.out
    assert "stopped: provider_" in stopped.out
    rows = house_env.rows("select code from atlas.replay_decisions")
    assert rows == [{"code": "ok"}]
    house_env.model.script = [judged("chantier")]
    asked = len(house_env.model.asked)
    done = atlas("replay", "--month", this_month(), "--routing", other)
    assert (done.status, len(house_env.model.asked) - asked) == (0, 1)
    assert ": 2 judged again, 0 left, " in done.out
    assert len(house_env.rows("select from atlas.replays")) == 1
    assert everything(house_env, *REPLAY_TABLES) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [("tasks:\n  classification: {provider: mistral}\n", "line 2: tasks.classification.model: missing"),
     ("tasks: [", "ai_routing_"), ("", "ai_routing_"), ("\x00", "ai_routing_"), ("🜁" * 10, "ai_routing_")],
    ids=["missing", "broken", "empty", "zero", "word"],
)  # fmt: skip
def test_a_routing_file_that_is_no_good_is_named_and_nothing_is_begun(
    house_env: Bench, atlas: Atlas, tmp_path: Path, text: str, said: str
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(text, encoding="utf-8")
    line = code_of(atlas("replay", "--month", this_month(), "--routing", bad))
    assert line.startswith("ai_routing_")
    assert said in line
    assert house_env.rows("select from atlas.replays") == []


def test_a_routing_file_that_is_not_there_or_not_text_is_refused(
    house_env: Bench, atlas: Atlas, tmp_path: Path
) -> None:
    assert atlas("replay", "--month", this_month(), "--routing", tmp_path / "none.yaml").status == 2
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    line = code_of(atlas("replay", "--month", this_month(), "--routing", tmp_path / "binary.yaml"))
    assert line.startswith("ai_routing_")


@pytest.mark.parametrize("month", ["2026-13", "0000-01", "12-2026", "", "999999999999-01"])
def test_a_month_that_is_none_is_refused(house_env: Bench, atlas: Atlas, month: str) -> None:
    assert code_of(atlas("replay", "--month", month)).startswith("month_malformed")


def test_a_month_without_mail_asks_nobody(house_env: Bench, atlas: Atlas, two: list[str]) -> None:
    """Also one that has not begun."""
    asked = len(house_env.model.asked)
    for month in ("2020-02", "2999-12"):
        said = atlas("replay", "--month", month)
        assert said.status == 0
        assert said.out.startswith(f"{month}: 0 judged again, 0 left, 0 calls, 0.0000 euros\n0 changed: ")
    assert len(house_env.model.asked) == asked


def test_shares_that_are_none_are_a_wrong_command_line(house_env: Bench, atlas: Atlas) -> None:
    for option, value in (("--floor", "1.5"), ("--threshold", "-0.1"), ("--floor", "nan"), ("--threshold", "inf")):
        assert atlas("replay", "--month", this_month(), option, value).status != 0
    assert house_env.rows("select from atlas.replays") == []
