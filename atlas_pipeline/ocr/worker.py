"""The process in which one picture or PDF is opened and read. The bytes come on stdin, the text goes to stdout, both pipes.

    python -P -m atlas_pipeline.ocr.worker JSON     (``Order`` as JSON)

Decoders and tesseract meet hostile bytes here, within memory and CPU time that the kernel keeps; it dies with its parent.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from PIL import Image

from atlas_pipeline.errors import NotConfigured, PermanentError
from atlas_pipeline.ocr.engine import MEMORY_MAX_BYTES, Tesseract, die_with_parent
from atlas_pipeline.ocr.prepare import encoded, improved, prepare

# Below this a picture may lie on its side: upright ones are read with 80 and more, sideways ones with 50 and less.
LOW_CONFIDENCE = 65.0
PDF = "application/pdf"


@dataclass(frozen=True)
class Order:
    """What is to be read, and within what. ``seconds`` is elapsed time for all of it."""

    program: str
    languages: str
    sniffed_type: str
    seconds: float
    max_pixels: int
    max_pages: int

    def to_json(self) -> str:
        """One line, for the argument."""
        return json.dumps(asdict(self))


def main() -> None:
    """Read, answer in one line of JSON: ``text`` and ``remarks``, or ``code`` (and ``missing``: nothing was configured)."""
    order = Order(**json.loads(sys.argv[1]))
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))
    cpu = int(order.seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    answer: dict[str, object]
    try:
        texts, remarks = _read(sys.stdin.buffer.read(), order)
        # Frames of an animation often say the same.
        answer = {"text": "\n\n".join(dict.fromkeys(filter(None, texts))), "remarks": remarks}
    except MemoryError:
        answer = {"code": "ocr_memory_exceeded"}
    except NotConfigured as error:
        answer = {"code": error.code, "missing": True}
    except PermanentError as error:
        answer = {"code": error.code}
    sys.stdout.write(json.dumps(answer))


def _read(content: bytes, order: Order) -> tuple[list[str], list[str]]:
    deadline = time.monotonic() + order.seconds
    engine = Tesseract(order.program, order.languages, environment=dict(os.environ), before_start=die_with_parent)
    texts: list[str] = []
    remarks: list[str] = []
    for page in _pages(content, order, remarks):
        if isinstance(page, str):
            texts.append(page)
            continue
        left = deadline - time.monotonic()
        if left <= 0 and texts:
            return texts, ["ocr_timeout"]
        try:
            texts.append(_frame(page, engine, deadline))
        except PermanentError as error:
            if not texts:
                raise
            return texts, [error.code]  # what was read of the pages before it is kept
    return texts, remarks


def _pages(content: bytes, order: Order, remarks: list[str]) -> Iterator[str | Image.Image]:
    if order.sniffed_type != PDF:
        yield from prepare(content, order.sniffed_type, max_pixels=order.max_pixels)
        return
    from atlas_pipeline.ocr import pdf  # few mails need it, and each picture's process would load it

    for page in pdf.pages(content, remarks, max_pages=order.max_pages, max_pixels=order.max_pixels):
        yield page if isinstance(page, str) else improved(page)


def _frame(image: Image.Image, engine: Tesseract, deadline: float) -> str:
    """Read one picture; where tesseract is unsure, ask it which way is up and read again."""
    best = engine.read(encoded(image), seconds=deadline - time.monotonic())
    if best.confidence < LOW_CONFIDENCE and (best.text or min(image.size) > 200):
        turn = engine.turn(encoded(image), seconds=deadline - time.monotonic())
        if turn and time.monotonic() < deadline:
            upright = engine.read(encoded(image.rotate(-turn, expand=True)), seconds=deadline - time.monotonic())
            best = max(best, upright, key=lambda reading: reading.confidence)
    return best.text


if __name__ == "__main__":
    main()
