"""Mistral's API: chat completions and embeddings."""

from __future__ import annotations

from atlas_pipeline.ai.chat_completions import ChatCompletions
from atlas_pipeline.ai.provider import Batch
from atlas_pipeline.model import AnswerFormat

URL = "https://api.mistral.ai"


class Mistral(ChatCompletions):
    """Both provider Protocols."""

    name = "mistral"
    # One request takes about 16k tokens in all; a French text has about three characters a token.
    batch = Batch(texts=64, characters=24_000, text_characters=8_000)
    max_tokens_name = "max_tokens"
    answer_format = AnswerFormat.OBJECT
