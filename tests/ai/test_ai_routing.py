"""The routing file: errors that a person can mend, by line."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_pipeline.ai.routing import load, parse, stamp
from atlas_pipeline.errors import NotConfigured

OWN = files("atlas_pipeline.ai").joinpath("routing.yaml").read_text("utf-8")


def problems(text: str) -> str:
    with pytest.raises(NotConfigured) as caught:
        parse(text, "mine.yaml")
    assert (caught.value.code, caught.value.detail["file"]) == ("ai_routing_invalid", "mine.yaml")
    return str(caught.value.detail["problems"])


def test_the_houses_own_file_says_what_the_specification_says() -> None:
    routing = load(None)
    task = routing.tasks.classification
    assert (task.provider, task.model, task.timeout_seconds) == ("mistral", "mistral-small-latest", 30)
    assert (routing.tasks.embedding.provider, routing.tasks.completion.provider) == ("mistral", "claude")
    assert [route.provider for route, _seconds in task.routes()] == ["mistral", "anthropic", "openai"]
    assert {seconds for _route, seconds in task.routes()} == {30}
    assert routing.ocr.engine == "tesseract"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (
            "    model: mistral-small-latest",
            "    modle: mistral-small-latest",
            "tasks.classification.modle: extra_forbidden",
        ),
        ("    model: mistral-small-latest\n", "", "tasks.classification.model: missing"),
        (
            "    timeout_seconds: 30\n    temperature",
            "    timeout_seconds: -1\n    temperature",
            "timeout_seconds: greater_than",
        ),
        ("    timeout_seconds: 30\n    temperature", "    timeout_seconds: soon\n    temperature", "float_parsing"),
        ("provider: claude", "provider: clod", "tasks.completion.provider: literal_error"),
        ("provider: claude", "provider: local", "tasks.completion: local_writes_nothing"),
        ("provider: claude", "provider: voyage", "tasks.completion: provider_completes_nothing"),
        (
            "    provider: mistral\n    model: mistral-embed",
            "    provider: anthropic\n    model: x",
            "provider_embeds_nothing",
        ),
        (
            "model: mistral-embed",
            "model: mistral-embed\n    fallbacks: [{provider: openai, model: x}]",
            "embedding_has_no_fallbacks",
        ),
        ("languages: fra+eng", "languages: fra;rm", "ocr.languages: string_pattern_mismatch"),
        ("mistral: 8", "mistral: 0", "at_once.mistral: greater_than"),
        ("mistral: 8", "mistrel: 8", "at_once.mistrel: literal_error"),
        ("euros_a_day: 20", "euros_a_day: .nan", "budget.euros_a_day: finite_number"),
        ("temperature: 0\n", "temperature: 0\n    temperature: 1\n", "tasks.classification.temperature: given twice"),
        ("  mistral/mistral-small: {read: 0.2,", "  mistral/mistral-small: {reed: 0.2,", "reed: extra_forbidden"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_place(old: str, new: str, told: str) -> None:
    assert OWN.count(old) == 1
    text = OWN.replace(old, new)
    said = problems(text)
    assert told in said
    (about,) = [problem for problem in said.split("; ") if told in problem]
    line = int(about.partition("line ")[2].partition(":")[0])
    changed = OWN[: OWN.index(old)].count("\n") + 1
    within = {
        "missing",
        "local_writes_nothing",
        "provider_completes_nothing",
        "provider_embeds_nothing",
        "embedding_has_no_fallbacks",
    }
    near = range(changed - 4, changed + 3) if any(word in told for word in within) else range(changed, changed + 2)
    assert line in near


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "line 1: no mapping"),
        ("- a\n- b", "line 1: no mapping"),
        ("a: [1, 2", "line 1: no YAML"),
        ("a: 1\n b: 2", "line 2: no YAML"),
        ("a: !!python/object/apply:os.system ['true']", "line 1: no YAML"),
        ("tasks: {}", "line 1: tasks.classification: missing"),
        ("a: \x00", "line 1: no YAML"),
        ("a: 1\n---\nb: 2", "line 2: no YAML"),
        ("? [a]\n: b", "line 1: no YAML"),
    ],
)
def test_what_is_no_such_file_at_all_is_said(text: str, told: str) -> None:
    assert told in problems(text)


@given(st.text(max_size=300))
def test_any_text_is_a_routing_or_a_coded_error(text: str) -> None:
    with pytest.raises(NotConfigured):
        parse(text, "mine.yaml")


@given(st.integers(0, len(OWN) - 1), st.text(max_size=3))
def test_a_character_changed_anywhere_is_a_routing_or_a_coded_error(place: int, put: str) -> None:
    try:
        parse(OWN[:place] + put + OWN[place + 1 :], "mine.yaml")
    except NotConfigured as error:
        assert str(error.detail["problems"]).startswith("line ")  # noqa: PT017


def test_a_budget_in_euros_needs_prices() -> None:
    assert "budget_in_euros_without_prices" in problems(OWN[: OWN.index("prices:")])


def test_a_model_without_a_price_is_refused_where_euros_are_counted() -> None:
    """Else a typing error would lift the limit."""
    assert "price_missing of mistral/codestral-latest" in problems(
        OWN.replace("mistral-small-latest", "codestral-latest")
    )
    parse(
        OWN.replace("mistral-small-latest", "codestral-latest")
        .replace("euros_a_day: 20, ", "")
        .replace(", euros_a_message: 0.5", ""),
        "x",
    )


def test_a_file_that_can_not_be_read_is_said(tmp_path: Path) -> None:
    for bad in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(NotConfigured) as caught:
            load(bad)
        assert caught.value.code == "ai_routing_unreadable"
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"a: \xe9")
    with pytest.raises(NotConfigured):
        load(latin)


def test_a_file_that_changed_has_another_stamp(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(OWN)
    before = stamp(file)
    file.write_text(OWN + "\n# more")
    assert before is not None
    assert stamp(file) != before
    assert stamp(None) is stamp(tmp_path / "none") is None


def test_the_longest_name_that_fits_is_the_price() -> None:
    routing = load(None)
    assert routing.euros("openai/gpt-4o-mini-2024", 1_000_000, 1_000_000) == pytest.approx(0.9)
    assert routing.euros("openai/gpt-4o-2024", 1_000_000, None) == pytest.approx(3)
    assert routing.euros("openai/other", 10, 10) is None
    assert routing.euros("openai/gpt-4o", None, None) is None
