"""From any provider's answer to a ``Completion``: the one path, so that a case mended for one is mended for all.

The finish reason is looked at before the content: what was cut off or refused is named as such, not as bad JSON.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from atlas_pipeline.errors import InvalidAnswer
from atlas_pipeline.model import Completion

_MODEL_NAME = re.compile(r"[\w.:/@-]{1,100}", re.ASCII)
_FINISHED = {"stop", "end_turn", "stop_sequence"}
_FINISH_CODES = {
    **dict.fromkeys(("length", "model_length", "max_tokens", "model_context_window_exceeded"), "answer_truncated"),
    **dict.fromkeys(("refusal", "content_filter"), "answer_refused"),
}
# What a model thought aloud, or where it read something, is never its answer.
_SILENT_PARTS = {"thinking", "redacted_thinking", "reference"}


@dataclass(frozen=True)
class Reply:
    """What an API answered, in nobody's shape: ``content`` is a string or a list of typed parts."""

    content: object = field(repr=False)
    finish: object
    model: object
    tokens_in: object
    tokens_out: object


def completion(reply: Reply, *, provider: str, asked: str, started: float) -> Completion:
    """The answer, ``started`` on the monotonic clock.

    Raises InvalidAnswer: ``answer_truncated``, ``answer_refused``, ``answer_unfinished``, ``answer_empty``,
    ``answer_shape_unknown``. It was paid for: the tokens are in the error's detail.
    """
    tokens_in, tokens_out = count(reply.tokens_in), count(reply.tokens_out)
    try:
        content = _content(reply)
    except InvalidAnswer as error:
        raise InvalidAnswer(error.code, tokens_in=tokens_in, tokens_out=tokens_out) from None
    return Completion(
        content=content,
        provider=provider,
        model=f"{provider}/{_model_name(reply.model, asked)}",
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        milliseconds=round((time.monotonic() - started) * 1000),
        finish_reason=None if reply.finish is None else str(reply.finish),
    )


def _content(reply: Reply) -> str:
    if reply.finish is not None and str(reply.finish) not in _FINISHED:
        raise InvalidAnswer(_FINISH_CODES.get(str(reply.finish), "answer_unfinished"))
    content = _join_text(reply.content)
    if not content.strip():
        raise InvalidAnswer("answer_empty")
    return content


def _join_text(content: object) -> str:
    """A string as it is; of a list of parts the text ones."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise InvalidAnswer("answer_shape_unknown")
    texts: list[str] = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind not in _SILENT_PARTS:
            raise InvalidAnswer("answer_shape_unknown")
    return "".join(texts)


def mapping(value: object) -> Mapping[str, object]:
    """A JSON object, or an empty one where something else stands."""
    return value if isinstance(value, dict) else {}


def count(value: object) -> int | None:
    """A number of tokens, or None for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _model_name(named: object, asked: str) -> str:
    """Who answered, if the name looks like one; it ends up in tables and metadata."""
    return named if isinstance(named, str) and _MODEL_NAME.fullmatch(named) else asked
