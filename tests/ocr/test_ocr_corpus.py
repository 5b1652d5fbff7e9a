"""The public corpus of awkward pictures, read where it lies; without it there is nothing to do here."""

from __future__ import annotations

import os
from pathlib import Path

import filetype
import pytest
from PIL import Image

from atlas_pipeline.errors import PermanentError
from atlas_pipeline.ocr.engine import Tesseract
from atlas_pipeline.ocr.prepare import encoded, prepare

CORPUS = Path(os.environ.get("ATLAS_CORPUS", Path(__file__).resolve().parents[3] / "shared" / "corpus"))
MAX_PIXELS = 40_000_000

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here; set ATLAS_CORPUS")


def prepared(path: Path) -> list[Image.Image] | str:
    """The frames of a file, or the code that says why there are none."""
    content = path.read_bytes()
    try:
        return prepare(content, filetype.guess_mime(content) or "application/octet-stream", max_pixels=MAX_PIXELS)
    except PermanentError as error:
        return error.code


def test_every_awkward_picture_is_prepared_or_refused_with_a_code() -> None:
    """Bombs, cut files, formats nobody sends on purpose: none raises, none takes long, the sound ones pass."""
    outcomes = {path.name: prepared(path) for path in sorted((CORPUS / "img_pillow").iterdir())}
    refused = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, str)}
    for name in ("decompression_bomb_extents.gif", "truncated_image.png", "truncated_jpeg.jpg", "zero_width.gif"):
        assert name in refused
    for name in ("hopper.gif", "hopper.tif", "pil_sample_cmyk.jpg", "transparent.png", "invalid-exif.jpg", "p_16.png"):
        assert name not in refused


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("test.png", "This is a lot of 12 point text"),
        ("test.jpg", "This is a lot of 12 point text"),
        ("test.gif", "This is a lot of 12 point text"),
        ("test.tiff", "This is a lot of 12 point text"),
        ("test.webp", "This is a lot of 12 point text"),
        ("test_la.png", "This is test message"),
    ],
)
def test_the_known_words_are_read(name: str, words: str) -> None:
    """One page in many formats, and grey with alpha, which read as black on black (C81)."""
    frames = prepared(CORPUS / "ocr_pytesseract" / name)
    assert isinstance(frames, list)
    assert words in Tesseract().read(encoded(frames[0])).text
