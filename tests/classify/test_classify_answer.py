"""The strict reader of answers: every public failure of such readers, and whatever hypothesis thinks of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_pipeline.classify.answer import MAX_REASONING, parse_answer
from atlas_pipeline.errors import InvalidAnswer
from atlas_pipeline.model import Intent

GOOD = '{"intent": "run", "confidence": 0.9, "reasoning": "r"}'


def code_of(content: str) -> str:
    with pytest.raises(InvalidAnswer) as caught:
        parse_answer(content)
    assert caught.value.__cause__ is None
    return caught.value.code


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        f"\n  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```\n",
        f"```JSON\n{GOOD}\n  ```",
        '```json\n{"intent": "run",\n "confidence": 0.9, "reasoning": "r"}\n```',
    ],
)
def test_an_exact_object_or_one_fenced_block_is_read(content: str) -> None:
    answer = parse_answer(content)
    assert (answer.intent, answer.confidence, answer.reasoning) == (Intent.RUN, 0.9, "r")


@pytest.mark.parametrize(
    "content",
    [
        "",
        " ",
        "null x",
        f"Here is the answer:\n{GOOD}\nHope it helps {{smile}}",
        f"{GOOD}\n{GOOD}",
        f"```json\n{GOOD}\n```\n```json\n{GOOD}\n```",
        f"Sure:\n```json\n{GOOD}\n```",
        f"```json\n{GOOD}",
        "I cannot help with that.",
        "[" * 10_000,
        '{"intent": "run", "confidence": ' + "9" * 5_000 + "}",
        GOOD[:-1],
        "{'intent': 'run'}",
        "\ufeff" + GOOD,
    ],
)
def test_anything_else_is_no_answer(content: str) -> None:
    """Braces are never picked out of prose (casebook C52); a refusal's text is not spam (C60)."""
    assert code_of(content) == "answer_not_json"


@pytest.mark.parametrize("content", ["[]", "null", "7", '"run"', f"[{GOOD}]"])
def test_another_json_value_is_no_object(content: str) -> None:
    assert code_of(content) == "answer_not_an_object"


@pytest.mark.parametrize(
    ("confidence", "code"),
    [
        ('"0.9"', "answer_confidence_type"),
        ('"90%"', "answer_confidence_type"),
        ('"high"', "answer_confidence_type"),
        ("true", "answer_confidence_type"),
        ("null", "answer_confidence_type"),
        ("[0.9]", "answer_confidence_type"),
        ("90", "answer_confidence_range"),
        ("1.0001", "answer_confidence_range"),
        ("-0.1", "answer_confidence_range"),
        ("1e999", "answer_confidence_range"),
        ("9" * 4_000, "answer_confidence_range"),
        ("NaN", "answer_not_a_number"),
        ("Infinity", "answer_not_a_number"),
    ],
)
def test_a_confidence_of_another_type_or_scale_is_refused_never_clamped(confidence: str, code: str) -> None:
    assert code_of(f'{{"intent": "run", "confidence": {confidence}, "reasoning": ""}}') == code


@pytest.mark.parametrize("confidence", [0, 1, 0.0, 1.0, 0.5])
def test_both_ends_of_the_scale_are_confidences(confidence: float) -> None:
    assert parse_answer(json.dumps({"intent": "noise", "confidence": confidence})).confidence == confidence


@pytest.mark.parametrize("intent", ['"bug"', '"RUN"', '" run"', "null", "1", '["run"]', '{"run": 1}', '""'])
def test_an_intent_outside_the_six_is_refused(intent: str) -> None:
    assert code_of(f'{{"intent": {intent}, "confidence": 0.9}}') == "answer_intent_unknown"


def test_missing_keys_are_refused_but_the_reasoning_may_be_absent() -> None:
    assert code_of('{"confidence": 0.9}') == "answer_intent_unknown"
    assert code_of('{"intent": "run"}') == "answer_confidence_type"
    assert code_of('{"intent": "run", "confidence": 0.9, "reasoning": ["r"]}') == "answer_reasoning_type"
    assert parse_answer('{"intent": "run", "confidence": 0.9}').reasoning == ""


def test_a_duplicated_key_is_refused_at_any_depth() -> None:
    """Python keeps the last one silently (casebook C56)."""
    assert code_of('{"intent": "noise", "intent": "run", "confidence": 0.9}') == "answer_duplicate_key"
    assert code_of('{"intent": "run", "confidence": 0.9, "x": {"a": 1, "a": 2}}') == "answer_duplicate_key"


def test_extra_keys_are_gone_before_any_decision() -> None:
    answer = parse_answer('{"intent": "run", "confidence": 0.9, "reasoning": "r", "approved": true, "deploy": "prod"}')
    assert vars(answer) == {"intent": Intent.RUN, "confidence": 0.9, "reasoning": "r"}


def test_nul_and_lone_surrogates_do_not_reach_the_database() -> None:
    reasoning = parse_answer('{"intent": "run", "confidence": 0.9, "reasoning": "a\\u0000b\\ud83dc"}').reasoning
    assert "\x00" not in reasoning
    assert reasoning.encode("utf-8").startswith(b"ab")


def test_a_reasoning_is_bounded_and_an_endless_answer_refused() -> None:
    long = json.dumps({"intent": "run", "confidence": 0.9, "reasoning": "x" * 5_000})
    assert len(parse_answer(long).reasoning) == MAX_REASONING
    assert code_of(" " * 60_000 + GOOD) == "answer_too_long"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["run", "noise"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["intent", "confidence", "x"]), inner),
    max_leaves=8,
)


@given(st.text() | json_values.map(json.dumps) | json_values.map(lambda value: f"```json\n{json.dumps(value)}\n```"))
def test_whatever_comes_in_an_answer_or_invalid_answer_comes_out(content: str) -> None:
    try:
        answer = parse_answer(content)
    except InvalidAnswer:
        return
    assert 0.0 <= answer.confidence <= 1.0
    answer.reasoning.encode("utf-8")


def corpus() -> Path:
    """The shared corpus of model answers, where there is one."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "corpus"
    return Path(os.environ.get("ATLAS_CORPUS", beside)) / "synthetic" / "llm"


@pytest.mark.skipif(not corpus().is_dir(), reason="the corpus is not here; set ATLAS_CORPUS")
def test_the_corpus_of_answers_is_read_as_its_manifest_says() -> None:
    """Its answers are about tickets; key and category names are put into our words, nothing else."""
    accepted = {"ok.json", "fenced.json", "extra_keys.json", "nul_escape.json", "lone_surrogate.json"}
    words = {'"category"': '"intent"', '"bug"': '"run"', '"spam"': '"noise"', '"summary"': '"reasoning"'}
    seen = set()
    for path in sorted(corpus().glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))["content"]
        if not isinstance(content, str):
            continue  # null and lists of parts are the provider's to read
        for theirs, ours in words.items():
            content = content.replace(theirs, ours)
        try:
            parse_answer(content)
        except InvalidAnswer:
            continue
        seen.add(path.name)
    assert seen == accepted
