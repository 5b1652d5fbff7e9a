"""The one strict reader of a model's answer, the same for every provider. What follows from an answer is in ``decide``.

Accepted: exactly one JSON object, or exactly one fenced block that holds it. Not accepted, ever: prose around it, two
objects, a duplicated key, NaN, a confidence of another type or scale. Nothing is clamped or guessed.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, NoReturn

from atlas_pipeline.errors import InvalidAnswer
from atlas_pipeline.model import Intent
from atlas_pipeline.text import clean_text

MAX_REASONING = 2_000
_MAX_CONTENT = 50_000
_FENCED = re.compile(r"```(?:json)?[ \t]*\r?\n(.*)\n[ \t]*```", re.DOTALL | re.IGNORECASE)
# What is asked of an API that takes a schema; what comes back is read as strictly as from one that doesn't.
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "intent": {"type": "string", "enum": [intent.value for intent in Intent]},
        "confidence": {"type": "number", "description": "from 0 to 1"},
        "reasoning": {"type": "string", "description": "one or two sentences"},
    },
    "required": ["intent", "confidence", "reasoning"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Answer:
    """What the model concluded; any other key it sent is gone."""

    intent: Intent
    confidence: float
    reasoning: str = field(repr=False)


def parse_answer(content: str) -> Answer:
    """Read one answer. Raises InvalidAnswer with a code, and nothing else, whatever the content is."""
    value = _load(content)
    if not isinstance(value, dict):
        raise InvalidAnswer("answer_not_an_object")
    return Answer(
        _intent(value.get("intent")), _confidence(value.get("confidence")), _reasoning(value.get("reasoning"))
    )


def _load(content: str) -> Any:
    if len(content) > _MAX_CONTENT:
        raise InvalidAnswer("answer_too_long")
    text = content.strip()
    if (fenced := _FENCED.fullmatch(text)) is not None:
        text = fenced.group(1)
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except (ValueError, RecursionError):  # ValueError also for integers of more than 4300 digits
        raise InvalidAnswer("answer_not_json") from None


def _refuse_constant(_name: str) -> NoReturn:
    raise InvalidAnswer("answer_not_a_number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidAnswer("answer_duplicate_key")
    return found


def _intent(value: object) -> Intent:
    if not isinstance(value, str) or value not in {intent.value for intent in Intent}:
        raise InvalidAnswer("answer_intent_unknown")
    return Intent(value)


def _confidence(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidAnswer("answer_confidence_type")
    # Compared before it is converted: float() of a huge integer overflows, and every comparison with NaN is false.
    if not 0 <= value <= 1 or not math.isfinite(value):
        raise InvalidAnswer("answer_confidence_range")
    return float(value)


def _reasoning(value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise InvalidAnswer("answer_reasoning_type")
    return clean_text(value or "")[:MAX_REASONING]
