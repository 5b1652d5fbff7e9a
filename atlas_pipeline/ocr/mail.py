"""All pictures of one mail to one text. Whether the mail may be opened at all was decided by ``scan``, before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from atlas_pipeline.errors import NotConfigured, PermanentError
from atlas_pipeline.model import Part
from atlas_pipeline.ocr.prepare import prepare
from atlas_pipeline.ocr.text import OcrText


class Engine(Protocol):
    """What reads a prepared image."""

    def read(self, png: bytes) -> str:
        """The text of one prepared image; raises PermanentError with a code."""
        ...


@dataclass(frozen=True)
class OcrResult:
    """``images`` counts those that could be read (with or without text on them), ``characters`` what came out.

    ``remarks`` are codes, each once: ``ocr_format_unsupported``, ``ocr_image_too_large``, ``ocr_image_tiny``,
    ``ocr_image_unreadable``, ``ocr_timeout``, ``ocr_failed``, ``ocr_image_limit``.
    """

    text: OcrText
    images: int
    characters: int
    remarks: tuple[str, ...]


def read_images(parts: Sequence[Part], engine: Engine, *, max_images: int, max_pixels: int) -> OcrResult:
    """Read every part whose bytes are a picture, up to ``max_images``; one that can't be read never stops the rest.

    Raises NotConfigured only: an engine or a language that is missing is an alert, not a mail without text.
    """
    texts: list[str] = []
    remarks: dict[str, None] = {}
    tried = images = 0
    for part in parts:
        if not part.is_image:
            continue
        if tried >= max_images:
            remarks["ocr_image_limit"] = None
            break
        try:
            frames = prepare(part.content, part.sniffed_type, max_pixels=max_pixels)
            tried += 1
            read = [engine.read(frame) for frame in frames]
        except NotConfigured:
            raise
        except PermanentError as error:
            remarks[error.code] = None
            continue
        images += 1
        texts += [text for text in dict.fromkeys(read) if text]  # frames of an animation often say the same
    whole = "\n\n".join(texts)
    return OcrResult(OcrText(whole), images, len(whole), tuple(remarks))
