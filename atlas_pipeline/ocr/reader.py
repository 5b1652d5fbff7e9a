"""One picture or PDF to text, in a process of its own (``worker``): what is hostile in it can take that process down and no more."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atlas_pipeline.errors import NotConfigured, PermanentError
from atlas_pipeline.model import Part
from atlas_pipeline.ocr.engine import Tesseract, piped
from atlas_pipeline.ocr.text import OcrText
from atlas_pipeline.ocr.worker import PDF, Order

_STARTING_SECONDS = 5.0  # of the worker, on a busy machine; its own clock starts after that


@dataclass(frozen=True)
class PartReading:
    """The text of one part, and codes for what was left out of it."""

    text: OcrText
    remarks: tuple[str, ...] = ()


class Reader:
    """Reads pictures and PDFs. Safe to share between threads, one part each."""

    def __init__(self, engine: Tesseract, *, max_pixels: int, max_pages: int = 10) -> None:
        """``engine`` says which program and languages, and how long one part may take."""
        self._engine = engine
        self._max_pixels = max_pixels
        self._max_pages = max_pages

    @property
    def seconds(self) -> float:
        """How long one part may take."""
        return self._engine.timeout_seconds

    def check(self) -> None:
        """Raise NotConfigured where the program or a language is missing; asked once."""
        self._engine.check_once()

    def read(self, content: bytes, sniffed_type: str, *, seconds: float) -> PartReading:
        """Read one part. Raises NotConfigured, and PermanentError with the code of what went wrong.

        ``ocr_format_unsupported``, ``ocr_image_too_large``, ``ocr_image_tiny``, ``ocr_image_unreadable``,
        ``ocr_pdf_unreadable``, ``ocr_memory_exceeded``, ``ocr_timeout``, ``ocr_failed``.
        """
        order = Order(
            program=self._engine.program,
            languages=self._engine.languages,
            sniffed_type=sniffed_type,
            seconds=seconds,
            max_pixels=self._max_pixels,
            max_pages=self._max_pages,
        )
        answer = self._ask(order, content, seconds + _STARTING_SECONDS)
        if "code" in answer:
            raise (NotConfigured if answer.get("missing") else PermanentError)(str(answer["code"]))
        return PartReading(OcrText(answer["text"]), tuple(answer["remarks"]))

    def _ask(self, order: Order, content: bytes, seconds: float) -> dict[str, Any]:
        try:
            status, output = piped(
                [sys.executable, "-P", "-m", "atlas_pipeline.ocr.worker", order.to_json()],
                content,
                environment={**self._engine.environment, "PYTHONPATH": str(Path(__file__).parents[2])},
                seconds=seconds,
            )
        except subprocess.TimeoutExpired:
            raise PermanentError("ocr_timeout", seconds=order.seconds) from None
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            raise PermanentError("ocr_timeout", seconds=order.seconds)
        try:
            answer = json.loads(output)
        except ValueError:
            raise PermanentError("ocr_failed", exit_status=status) from None
        if not isinstance(answer, dict):
            raise PermanentError("ocr_failed", exit_status=status)
        return answer


def is_readable(part: Part) -> bool:
    """Whether a part may hold text that only a picture says."""
    return part.is_image or part.sniffed_type == PDF
