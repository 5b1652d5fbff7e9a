"""Pictures of every kind through the real pipeline: rendered here, prepared, read by tesseract."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import io
import json
import logging
import os
import pickle
import struct
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from atlas_pipeline.errors import NotConfigured, PermanentError, Refused
from atlas_pipeline.model import Part
from atlas_pipeline.ocr.engine import Tesseract
from atlas_pipeline.ocr.mail import OcrResult, read_images
from atlas_pipeline.ocr.prepare import FRAMES_MAX, prepare
from atlas_pipeline.ocr.text import OcrText

MAX_PIXELS = 40_000_000
WORDS = "Erreur 502 sur la page Contact"


def drawn(
    words: str = WORDS, *, mode: str = "RGB", ink: str = "black", paper: str = "white", size: int = 30
) -> Image.Image:
    """A picture of some words."""
    font = ImageFont.truetype("DejaVuSans.ttf", size)
    left, top, right, bottom = font.getbbox(words)
    image = Image.new("RGBA" if mode in {"RGBA", "LA"} else "RGB", (int(right) + 60, int(bottom) + 60), paper)
    ImageDraw.Draw(image).text((30 - left, 30 - top), words, fill=ink, font=font)
    return image.convert(mode)


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def part(content: bytes, sniffed_type: str = "image/png", index: int = 0) -> Part:
    digest = hashlib.sha256(content).hexdigest()
    return Part(index, None, "application/octet-stream", sniffed_type, len(content), digest, False, content)


def read(*parts: Part, max_images: int = 10, max_pixels: int = MAX_PIXELS) -> OcrResult:
    return read_images(parts, Tesseract(), max_images=max_images, max_pixels=max_pixels)


def png_header(width: int, height: int) -> bytes:
    """A PNG that promises a picture of this size and holds next to nothing."""
    chunks = b"\x89PNG\r\n\x1a\n"
    for name, data in (
        (b"IHDR", struct.pack("!IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(100))),
        (b"IEND", b""),
    ):
        chunks += struct.pack("!I", len(data)) + name + data + struct.pack("!I", zlib.crc32(name + data))
    return chunks


class Reads:
    """An engine that reads nothing and remembers how often it was asked; ``fails`` is raised in turn."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def read(self, png: bytes) -> str:
        self.asked += 1
        answer = self.answers[(self.asked - 1) % len(self.answers)]
        if isinstance(answer, Exception):
            raise answer
        return answer


# What pictures look like


@pytest.mark.parametrize(
    ("content", "sniffed_type"),
    [
        pytest.param(saved(drawn()), "image/png", id="light"),
        pytest.param(saved(drawn(ink="#ddd", paper="#1e1e1e")), "image/png", id="dark"),
        pytest.param(saved(drawn(mode="RGBA", paper="#00000000")), "image/png", id="transparent"),
        pytest.param(saved(drawn(mode="LA", paper="#00000000")), "image/png", id="transparent grey"),
        pytest.param(saved(drawn(size=9)), "image/png", id="9 pixels"),
        pytest.param(saved(drawn(mode="P")), "image/png", id="palette"),
        pytest.param(saved(drawn(mode="1")), "image/png", id="bilevel"),
        pytest.param(saved(drawn(mode="I;16")), "image/png", id="16 bits"),
        pytest.param(saved(drawn(mode="CMYK"), "JPEG"), "image/jpeg", id="CMYK"),
        pytest.param(saved(drawn(mode="F"), "TIFF"), "image/tiff", id="float"),
        pytest.param(saved(drawn(), "JPEG", quality=40), "image/jpeg", id="JPEG"),
        pytest.param(saved(drawn(), "WEBP"), "image/webp", id="WebP"),
        pytest.param(saved(drawn(), "BMP"), "image/bmp", id="BMP"),
        pytest.param(saved(drawn(), "GIF"), "image/gif", id="GIF"),
    ],
)
def test_the_words_are_found_in_every_kind_of_picture(content: bytes, sniffed_type: str) -> None:
    """Screenshots come in all of these (C81)."""
    result = read(part(content, sniffed_type))
    assert WORDS in result.text.reveal()
    assert (result.images, result.characters, result.remarks) == (1, len(result.text), ())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_words_are_found_whichever_way_the_phone_was_held(orientation: int) -> None:
    """A camera turns the label, not the picture; tesseract ignores the label (C82)."""
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    image = drawn("Contact")
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = image.transpose(undo[orientation]) if orientation in undo else image
    result = read(part(saved(turned, "JPEG", exif=exif), "image/jpeg"))
    assert "Contact" in result.text.reveal()


def test_a_broken_exif_block_does_not_cost_the_picture() -> None:
    """Phones and editors write them wrong; the words are still there."""
    result = read(part(saved(drawn(), "JPEG", exif=b"Exif\x00\x00garbage" * 3), "image/jpeg"))
    assert WORDS in result.text.reveal()


def test_every_page_is_read_up_to_the_cap_and_equal_frames_once() -> None:
    """A fax has pages; an animation says the same thing many times."""
    pages = [drawn(f"Page numero {n}") for n in range(FRAMES_MAX + 2)]
    fax = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])
    assert len(prepare(fax, "image/tiff", max_pixels=MAX_PIXELS)) == FRAMES_MAX
    engine = Reads("same words")
    result = read_images([part(fax, "image/tiff")], engine, max_images=10, max_pixels=MAX_PIXELS)
    assert (engine.asked, result.text.reveal()) == (FRAMES_MAX, "same words")
    two = saved(pages[1], "GIF", save_all=True, append_images=[pages[2]])
    text = read(part(two, "image/gif")).text.reveal()
    assert "numero 1" in text
    assert "numero 2" in text


def test_several_pictures_become_one_text_in_order() -> None:
    """And a part that is no picture is not looked at."""
    result = read(part(saved(drawn("Bonjour"))), part(b"%PDF-1.7", "application/pdf"), part(saved(drawn("Merci"))))
    assert result.text.reveal() == "Bonjour\n\nMerci"
    assert (result.images, result.remarks) == (2, ())


# What must not stop anything


def test_one_bad_picture_never_stops_the_rest() -> None:
    """Each leaves its code; the good one is read."""
    cut = saved(drawn())
    result = read(
        part(b"", "image/png"),
        part(b"garbage", "image/jpeg"),
        part(cut[: len(cut) // 2], "image/png"),
        part(png_header(30_000, 30_000)),
        part(png_header(7_000, 6_000)),
        part(saved(Image.new("RGB", (1, 1))), "image/png"),
        part(b"<svg/>", "image/svg+xml"),
        part(b"\0\0\0\x18ftypheic", "image/heic"),
        part(saved(drawn())),
    )
    assert WORDS in result.text.reveal()
    assert result.images == 1
    assert set(result.remarks) >= {"ocr_image_unreadable", "ocr_image_too_large", "ocr_image_tiny"}
    assert set(result.remarks) >= {"ocr_format_unsupported"}


def test_a_bomb_is_refused_by_its_header() -> None:
    """Before a single pixel is decoded: the promise alone is 900 million of them (C80)."""
    for width, height in ((30_000, 30_000), (7_000, 6_000), (100_000, 33)):
        limit = MAX_PIXELS if width * height > MAX_PIXELS else 1_000_000
        with pytest.raises(PermanentError, match="ocr_image_too_large"):
            prepare(png_header(width, height), "image/png", max_pixels=limit)


def test_a_page_larger_than_the_first_is_refused_too() -> None:
    """The limit is a page's, not the file's."""
    pages = saved(Image.new("L", (100, 100)), "TIFF", save_all=True, append_images=[Image.new("L", (2000, 2000))])
    with pytest.raises(PermanentError, match="ocr_image_too_large"):
        prepare(pages, "image/tiff", max_pixels=1_000_000)


def test_tracking_pixels_and_rulers_are_not_read() -> None:
    """Newsletters are full of them; they don't use up the number of pictures either."""
    engine = Reads("words")
    tiny = [part(saved(Image.new("RGB", size))) for size in ((1, 1), (600, 2), (31, 500))] * 5
    result = read_images([*tiny, part(saved(drawn()))], engine, max_images=1, max_pixels=MAX_PIXELS)
    assert (engine.asked, result.images, result.remarks) == (1, 1, ("ocr_image_tiny",))


def test_the_number_of_pictures_is_limited_and_says_so() -> None:
    """A mail with a hundred photos must not hold the queue for an hour."""
    engine = Reads("words")
    result = read_images([part(saved(drawn()))] * 3, engine, max_images=2, max_pixels=MAX_PIXELS)
    assert (engine.asked, result.images, result.remarks) == (2, 2, ("ocr_image_limit",))


def test_a_time_out_costs_its_own_picture_only() -> None:
    """The mail goes on with a remark (C84)."""
    engine = Reads(PermanentError("ocr_timeout"), "words")
    result = read_images([part(saved(drawn()))] * 2, engine, max_images=9, max_pixels=MAX_PIXELS)
    assert (result.text.reveal(), result.images, result.remarks) == ("words", 1, ("ocr_timeout",))


def test_a_missing_engine_is_not_swallowed() -> None:
    """It would make every mail one without text, and nobody would know."""
    with pytest.raises(NotConfigured):
        read_images([part(saved(drawn()))], Reads(NotConfigured("ocr_engine_missing")), max_images=1, max_pixels=10**7)


def test_a_postscript_file_under_a_pictures_name_reaches_no_interpreter() -> None:
    """Left alone, Pillow hands EPS to Ghostscript."""
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\nshowpage\n"
    for sniffed in ("image/png", "image/jpeg", "image/x-eps"):
        with pytest.raises(PermanentError, match=r"ocr_image_unreadable|ocr_format_unsupported"):
            prepare(eps, sniffed, max_pixels=MAX_PIXELS)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_no_bytes_make_the_preparation_raise_anything_but_a_code(data: st.DataObject) -> None:
    """It is handed whatever strangers send."""
    kind, sniffed = data.draw(
        st.sampled_from([("PNG", "image/png"), ("JPEG", "image/jpeg"), ("GIF", "image/gif"), ("TIFF", "image/tiff")])
    )
    content = bytearray(saved(Image.new("RGB", (40, 40), "white"), kind))
    for _ in range(data.draw(st.integers(1, 12))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        prepare(bytes(content), sniffed, max_pixels=1_000_000)
    except PermanentError as error:
        assert error.code.startswith("ocr_")  # noqa: PT017


def test_no_temporary_file_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow, our code and tesseract all see this folder as the temporary one."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    born = os.stat(tmp_path).st_mtime_ns  # noqa: PTH116
    result = read(part(saved(drawn())), part(saved(drawn(), "TIFF"), "image/tiff"))
    assert result.images == 2
    assert list(tmp_path.iterdir()) == []
    assert os.stat(tmp_path).st_mtime_ns == born  # noqa: PTH116 - not even a file that is gone again


# The text stays in memory


def test_the_text_cannot_be_shown_by_accident(caplog: pytest.LogCaptureFixture) -> None:
    """Printing, formatting, logging, a result's repr: each shows a number of characters."""
    text = OcrText("secret words")
    result = OcrResult(text, 1, 12, ())
    shown = "<OcrText 12 characters>"
    assert [str(text), repr(text), f"{text}", f"{text!r}", "{}".format(text), "%s" % text] == [shown] * 6  # noqa: UP031, UP032
    assert f"{text:>30}" == f"{shown:>30}"
    logging.getLogger("test").warning("text %s result %r", text, result)
    assert "secret" not in caplog.text + repr(result) + repr([text]) + str({"text": text})
    assert len(text) == 12
    assert bool(OcrText("")) is False
    assert text.reveal() == "secret words"


def test_the_text_cannot_be_written_away_by_accident() -> None:
    """Pickling is how a value would reach Dagster's storage; copying goes the same way."""
    result = OcrResult(OcrText("secret words"), 1, 12, ())
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(Refused, match="ocr_text_stays_in_memory"):
            pickle.dumps(result, protocol)
    for write_away in (copy.copy, copy.deepcopy):
        with pytest.raises(Refused):
            write_away(result.text)
    with pytest.raises(Refused):
        dataclasses.asdict(result)
    with pytest.raises(Refused):
        result.text.__getstate__()
    with pytest.raises(TypeError) as caught:
        json.dumps({"text": result.text})
    assert "secret" not in str(caught.value)
    assert not hasattr(result.text, "__dict__")
