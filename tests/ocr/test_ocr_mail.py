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
import secrets
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pillow_heif
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageFont

from atlas_pipeline.embedded.process import processes_with_marker, wait_until
from atlas_pipeline.errors import NotConfigured, PermanentError, Refused
from atlas_pipeline.model import Part
from atlas_pipeline.ocr import worker
from atlas_pipeline.ocr.engine import Tesseract
from atlas_pipeline.ocr.mail import OcrResult, read_images
from atlas_pipeline.ocr.prepare import FRAMES_MAX, prepare
from atlas_pipeline.ocr.reader import PartReading, Reader
from atlas_pipeline.ocr.text import OcrText

MAX_PIXELS = 40_000_000
WORDS = "Erreur 502 sur la page Contact"


def drawn(
    words: str = WORDS, *, mode: str = "RGB", ink: str = "black", paper: str = "white", size: int = 30
) -> Image.Image:
    """A picture of some words."""
    font = ImageFont.truetype("DejaVuSans.ttf", size)
    left, top, right, bottom = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox((0, 0), words, font=font)
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
    return read_images(parts, Reader(Tesseract(), max_pixels=max_pixels), max_images=max_images)


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


def typed_pdf(*pages: str) -> bytes:
    """A PDF whose pages hold these lines as text."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for line in pages:
        stream = f"BT /F1 14 Tf 60 700 Td ({line}) Tj ET".encode("latin-1")
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R /Resources << /Font << /F1 3 0 R >> >> >>"
            % len(objects)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    trailer = b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, len(out))
    return out + b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table) + trailer


def scanned_pdf(words: str, points: tuple[int, int] = (595, 400)) -> bytes:
    """A PDF whose page is a picture, as a scanner makes it."""
    page = Image.new("RGB", (1240, 1240 * points[1] // points[0]), "white")
    page.paste(drawn(words, size=40), (100, 100))
    resolution = 1240 * 72 / points[0]
    return saved(page, "PDF", resolution=resolution)


class Reads:
    """A reader that reads nothing and remembers how often it was asked; the answers are given, or raised, in turn."""

    seconds = 20.0

    def __init__(self, *answers: str | Exception, takes: float = 0.0) -> None:
        self.answers = list(answers)
        self.takes = takes
        self.asked: list[float] = []

    def check(self) -> None:
        """In order."""

    def read(self, content: bytes, sniffed_type: str, *, seconds: float) -> PartReading:
        self.asked.append(seconds)
        time.sleep(self.takes)
        answer = self.answers[(len(self.asked) - 1) % len(self.answers)]
        if isinstance(answer, Exception):
            raise answer
        return PartReading(OcrText(answer))


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
    text = read(part(fax, "image/tiff")).text.reveal()
    assert [f"numero {n}" in text for n in range(FRAMES_MAX + 2)] == [True] * FRAMES_MAX + [False] * 2
    again = [drawn("Bonjour a tous"), drawn("Bonjour a tous", paper="#fefefe"), drawn("Merci a tous")]
    told = read(part(saved(again[0], "GIF", save_all=True, append_images=again[1:]), "image/gif")).text.reveal()
    assert (told.count("Bonjour a tous"), told.count("Merci a tous")) == (1, 1)


def test_several_pictures_become_one_text_in_order() -> None:
    """And a part that is no picture is not looked at."""
    result = read(part(saved(drawn("Bonjour"))), part(b"PK", "application/zip"), part(saved(drawn("Merci"))))
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
    tiny = [part(saved(Image.new("RGB", size))) for size in ((1, 1), (600, 2), (31, 500))]
    result = read(*tiny, part(saved(drawn())), max_images=1)
    assert (result.text.reveal(), result.images, result.remarks) == (WORDS, 1, ("ocr_image_tiny",))


def test_the_number_of_pictures_is_limited_and_says_so() -> None:
    """A mail with a hundred photos must not hold the queue for an hour."""
    reader = Reads("words")
    result = read_images([part(b"")] * 5, reader, max_images=3)
    assert (len(reader.asked), result.images, result.remarks) == (3, 3, ("ocr_image_limit",))


def test_a_mails_time_is_limited_and_its_last_pictures_get_what_is_left() -> None:
    reader = Reads("words", takes=0.3)
    result = read_images([part(b"")] * 9, reader, max_images=9, mail_seconds=0.5, at_once=1)
    assert (len(reader.asked), result.images, result.remarks) == (2, 2, ("ocr_mail_time",))
    assert reader.asked[1] <= 0.2


def test_a_time_out_costs_its_own_picture_only() -> None:
    """The mail goes on with a remark (C84)."""
    reader = Reads(PermanentError("ocr_timeout"), "words")
    result = read_images([part(b"")] * 2, reader, max_images=9, at_once=1)
    assert (result.text.reveal(), result.images, result.remarks) == ("words", 1, ("ocr_timeout",))


def test_a_missing_engine_is_not_swallowed() -> None:
    """It would make every mail one without text, and nobody would know."""
    with pytest.raises(NotConfigured):
        read_images([part(b"")], Reads(NotConfigured("ocr_engine_missing")), max_images=1)
    with pytest.raises(NotConfigured):
        read_images([part(b"")], Reader(Tesseract("/no/such"), max_pixels=10**7), max_images=1)


def test_a_mail_without_pictures_asks_nobody() -> None:
    """Not even whether the engine is there."""
    result = read_images([part(b"text", "text/plain")], Reader(Tesseract("/no/such"), max_pixels=1), max_images=1)
    assert (result.images, result.remarks) == (0, ())


# PDF


def test_a_pdfs_text_is_taken_as_it_is_and_its_scanned_pages_are_read() -> None:
    """A letter printed to PDF, a scan, and both in one."""
    letter, scan = typed_pdf("Veuillez corriger le titre de la page Services"), scanned_pdf(WORDS)
    assert "corriger le titre" in read(part(letter, "application/pdf")).text.reveal()
    result = read(part(scan, "application/pdf"), part(letter, "application/pdf"))
    assert WORDS in result.text.reveal()
    assert (result.images, result.remarks) == (2, ())


def test_of_a_long_pdf_the_first_pages_are_read_and_that_is_said() -> None:
    long = typed_pdf(*(f"Chapitre numero {n} de ce long document" for n in range(6)))
    reader = Reader(Tesseract(), max_pixels=MAX_PIXELS, max_pages=3)
    result = read_images([part(long, "application/pdf")], reader, max_images=1)
    assert ["numero 2" in result.text.reveal(), "numero 3" in result.text.reveal()] == [True, False]
    assert result.remarks == ("ocr_page_limit",)


@pytest.mark.parametrize(
    "damage", [lambda pdf: pdf[:200], lambda pdf: b"%PDF-1.7\n" + bytes(500), lambda _: b"%PDF-1.7"]
)
def test_a_broken_pdf_is_a_code(damage: Callable[[bytes], bytes]) -> None:
    result = read(part(damage(scanned_pdf(WORDS)), "application/pdf"), part(saved(drawn())))
    assert (WORDS in result.text.reveal(), result.remarks) == (True, ("ocr_pdf_unreadable",))


def test_a_page_as_large_as_a_field_is_drawn_small() -> None:
    """A page may say that it is two hundred inches wide."""
    assert (
        WORDS
        in read(part(scanned_pdf(WORDS, points=(14_000, 9_000)), "application/pdf"), max_pixels=2_000_000).text.reveal()
    )


# What the picture's own process is for


def test_a_photo_on_its_side_without_a_label_is_turned() -> None:
    """Casebook C82's other half: nothing in the file says which way is up."""
    lines = [
        "Le bouton de reservation ne marche plus",
        "Page Contact, formulaire du bas",
        "Erreur 502 depuis ce matin",
        "Merci de corriger rapidement",
    ]
    for degrees in (90, 180, 270):
        turned = drawn("\n".join(lines), size=28).rotate(degrees, expand=True)
        text = read(part(saved(turned, "JPEG", quality=90), "image/jpeg")).text.reveal()
        assert all(line in text for line in lines), degrees


def test_a_heic_photo_is_read() -> None:
    """What an iPhone sends."""
    pillow_heif.register_heif_opener()
    assert WORDS in read(part(saved(drawn(), "HEIF", quality=80), "image/heic")).text.reveal()


def test_a_picture_that_asks_for_too_much_memory_is_a_code() -> None:
    """Casebook C80: the limit is the process's; the one that reads the mail goes on."""
    order = worker.Order("tesseract", "eng", "image/png", 20.0, MAX_PIXELS, 1)
    script = (
        "import sys; from atlas_pipeline.ocr import worker; worker.MEMORY_MAX_BYTES = 300_000_000; "
        "sys.argv = ['worker', sys.argv[1]]; worker.main()"
    )
    big = saved(Image.new("RGBA", (6300, 6300), "white"), compress_level=1)
    done = subprocess.run([sys.executable, "-c", script, order.to_json()], input=big, capture_output=True, check=False)
    assert json.loads(done.stdout) == {"code": "ocr_memory_exceeded"}


def test_time_is_kept_for_the_whole_of_a_picture_and_nothing_stays_behind() -> None:
    marker = secrets.token_hex(8)
    noise = saved(Image.effect_noise((3000, 3000), 90), compress_level=1)
    engine = Tesseract(timeout_seconds=1.0, environment={"ATLAS_TEST_MARK": marker})
    begun = time.monotonic()
    result = read_images([part(noise)], Reader(engine, max_pixels=MAX_PIXELS), max_images=1)
    assert (result.images, result.remarks) == (0, ("ocr_timeout",))
    assert time.monotonic() - begun < 6
    assert wait_until(lambda: not processes_with_marker("ATLAS_TEST_MARK", marker), 2)


def test_when_the_reading_process_is_killed_its_children_die_with_it(tmp_path: Path) -> None:
    """By kill -9, in the middle of a picture: no tesseract goes on, no file was made (C84)."""
    marker = secrets.token_hex(8)
    (tmp_path / "noise.png").write_bytes(saved(Image.effect_noise((3000, 3000), 90), compress_level=1))
    script = (
        "import sys, pathlib\n"
        "from atlas_pipeline.ocr.engine import Tesseract\n"
        "from atlas_pipeline.ocr.reader import Reader\n"
        "reader = Reader(Tesseract(), max_pixels=40_000_000)\n"
        "reader.read(pathlib.Path(sys.argv[1]).read_bytes(), 'image/png', seconds=30)\n"
    )
    temporary = tmp_path / "t"
    temporary.mkdir()
    # The mark goes on to the children by TMPDIR, which the bare environment keeps.
    environment = {**os.environ, "TMPDIR": str(temporary / marker)}
    house = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "noise.png")], env=environment)
    try:
        assert wait_until(lambda: len(processes_with_marker("TMPDIR", str(temporary / marker))) >= 3, 10)
    finally:
        house.kill()
        house.wait()
    assert wait_until(lambda: not processes_with_marker("TMPDIR", str(temporary / marker)), 3)
    assert list(temporary.iterdir()) == []


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
