"""All pictures and PDFs of one mail to one text. Whether the mail may be opened at all was decided by ``scan``, before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from atlas_pipeline.errors import NotConfigured, PermanentError
from atlas_pipeline.model import Part
from atlas_pipeline.ocr.reader import PartReading, is_readable
from atlas_pipeline.ocr.text import OcrText

MAX_CHARACTERS = 200_000
# These cost next to nothing, and newsletters are full of them: they don't use up the number of pictures.
_NOT_TRIED = {"ocr_image_tiny", "ocr_format_unsupported", "ocr_image_too_large", "ocr_image_unreadable"}


class PartReader(Protocol):
    """What reads one picture or PDF."""

    @property
    def seconds(self) -> float:
        """How long one may take."""
        ...

    def check(self) -> None:
        """Raise NotConfigured where nothing could be read at all."""
        ...

    def read(self, content: bytes, sniffed_type: str, *, seconds: float) -> PartReading:
        """Read one; raises PermanentError with a code."""
        ...


@dataclass(frozen=True)
class OcrResult:
    """``images`` counts those that could be read (with or without text on them), ``characters`` what came out.

    ``remarks`` are codes, each once: those of ``Reader.read``, ``ocr_image_limit``, ``ocr_page_limit``, ``ocr_mail_time``,
    ``ocr_text_cut``.
    """

    text: OcrText
    images: int
    characters: int
    remarks: tuple[str, ...]


def read_images(
    parts: Sequence[Part], reader: PartReader, *, max_images: int, mail_seconds: float = 120.0, at_once: int = 2
) -> OcrResult:
    """Read every part that is a picture or a PDF, up to ``max_images``; one that can't be read never stops the rest.

    Raises NotConfigured only: an engine or a language that is missing is an alert, not a mail without text.
    """
    waiting = [part for part in parts if is_readable(part)]
    if not waiting:
        return OcrResult(OcrText(""), 0, 0, ())
    reader.check()
    deadline = time.monotonic() + mail_seconds
    texts: list[str] = []
    remarks: dict[str, None] = {}
    tried = images = 0
    with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="ocr") as workers:
        while waiting:
            left = deadline - time.monotonic()
            if tried >= max_images or left <= 0:
                remarks["ocr_image_limit" if tried >= max_images else "ocr_mail_time"] = None
                break
            many = min(at_once, max_images - tried)
            now, waiting = waiting[:many], waiting[many:]
            seconds = min(reader.seconds, left)
            for found in workers.map(lambda part: _one(part, reader, seconds), now):  # noqa: B023  # used up within this turn
                if isinstance(found, PermanentError):
                    tried += found.code not in _NOT_TRIED
                    remarks[found.code] = None
                    continue
                tried += 1
                images += 1
                texts.append(found.text.reveal())
                remarks.update(dict.fromkeys(found.remarks))
    whole = "\n\n".join(filter(None, texts))
    if len(whole) > MAX_CHARACTERS:
        whole, remarks["ocr_text_cut"] = whole[:MAX_CHARACTERS], None
    return OcrResult(OcrText(whole), images, len(whole), tuple(remarks))


def _one(part: Part, reader: PartReader, seconds: float) -> PartReading | PermanentError:
    try:
        return reader.read(part.content, part.sniffed_type, seconds=seconds)
    except NotConfigured:
        raise
    except PermanentError as error:
        return error
