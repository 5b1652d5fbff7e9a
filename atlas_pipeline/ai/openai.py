"""OpenAI's API: chat completions and embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from atlas_pipeline.ai.chat_completions import ChatCompletions
from atlas_pipeline.ai.provider import Batch
from atlas_pipeline.model import AnswerFormat

URL = "https://api.openai.com"


class OpenAi(ChatCompletions):
    """Both provider Protocols."""

    name = "openai"
    batch = Batch(texts=256, characters=600_000, text_characters=16_000)
    max_tokens_name = "max_completion_tokens"
    answer_format = AnswerFormat.SCHEMA
    embedding_options: ClassVar[Mapping[str, object]] = {"encoding_format": "float"}
