"""Tesseract as a pipe: what it reads, how it fails, and that nothing of it stays behind."""

from __future__ import annotations

import io
import os
import secrets
import threading
import time
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from atlas_pipeline.embedded.process import processes_with_marker, wait_until
from atlas_pipeline.errors import NotConfigured, PermanentError
from atlas_pipeline.ocr.engine import Reading, Tesseract


@pytest.fixture(scope="module")
def page() -> bytes:
    """A page of French text as a PNG."""
    image = Image.new("L", (900, 200), "white")
    font = ImageFont.truetype("DejaVuSans.ttf", 32)
    ImageDraw.Draw(image).text((20, 40), "Le bouton Réserver est cassé\ndepuis la mise à jour", fill=0, font=font)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def program(folder: Path, script: str) -> str:
    """A stand-in for the program, that behaves as tesseract does in trouble."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_french_text_is_read_with_its_accents(page: bytes) -> None:
    """With the English model alone they are lost."""
    text = Tesseract().read(page).text
    assert "Réserver est cassé" in text
    assert "mise à jour" in text


def test_a_blank_page_has_no_text() -> None:
    """No text is an answer, not a failure."""
    buffer = io.BytesIO()
    Image.new("L", (200, 200), "white").save(buffer, "PNG")
    assert Tesseract().read(buffer.getvalue()) == Reading("", 0.0)


def test_version_and_check_answer_for_doctor() -> None:
    """What `atlas doctor` shows of the engine."""
    Tesseract().check()
    assert Tesseract().version()[0].isdigit()


def test_a_missing_language_is_an_alert_before_anything_is_read() -> None:
    """Tesseract itself only warns, and reads French as English (C86)."""
    for engine in (Tesseract(languages="fra+zzz"), Tesseract(languages="")):
        with pytest.raises(NotConfigured, match="ocr_language_missing"):
            engine.check_once()


def test_a_folder_without_languages_is_an_alert(tmp_path: Path) -> None:
    """A wrong TESSDATA_PREFIX (C86)."""
    with pytest.raises(NotConfigured):
        Tesseract(environment={"TESSDATA_PREFIX": str(tmp_path)}).check()


def test_a_missing_program_is_an_alert(page: bytes, tmp_path: Path) -> None:
    """Otherwise every mail would look like one without text in its pictures."""
    (tmp_path / "file").write_text("not a program")
    for name in ("no-such-program", str(tmp_path / "file")):
        with pytest.raises(NotConfigured, match="ocr_engine_missing"):
            Tesseract(program=name).read(page)


def test_garbage_is_a_coded_failure() -> None:
    """The engine's own words may name the input; only its exit status is told."""
    for data in (b"", b"no picture", b"\x89PNG\r\n\x1a\n" + bytes(1000)):
        with pytest.raises(PermanentError, match="ocr_failed") as caught:
            Tesseract().read(data)
        assert caught.value.__cause__ is None


def test_a_time_out_leaves_no_process_behind(tmp_path: Path, page: bytes) -> None:
    """Neither the program nor what it started (C84): both would go on for hours on a busy machine."""
    marker = secrets.token_hex(8)
    script = 'case "$1" in --list-langs) printf "List:\\neng\\n";; *) sleep 60 & sleep 60;; esac'
    engine = Tesseract(program(tmp_path, script), "eng", 0.3, environment={"ATLAS_TEST_MARK": marker})
    begun = time.monotonic()
    with pytest.raises(PermanentError, match="ocr_timeout"):
        engine.read(page)
    assert time.monotonic() - begun < 3
    assert wait_until(lambda: not processes_with_marker("ATLAS_TEST_MARK", marker), 2)


def test_the_real_program_is_ended_by_a_time_out_too() -> None:
    """A heavy image, and less time than any machine needs for it."""
    image = Image.effect_noise((3000, 3000), 90)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    marker = secrets.token_hex(8)
    engine = Tesseract(timeout_seconds=0.4, environment={"ATLAS_TEST_MARK": marker})
    with pytest.raises(PermanentError, match="ocr_timeout"):
        engine.read(buffer.getvalue())
    assert wait_until(lambda: not processes_with_marker("ATLAS_TEST_MARK", marker), 2)


def test_a_crash_is_a_coded_failure(tmp_path: Path, page: bytes) -> None:
    """Killed by the kernel for want of memory, say."""
    script = 'case "$1" in --list-langs) printf "List:\\neng\\n";; *) kill -9 $$;; esac'
    with pytest.raises(PermanentError, match=r"ocr_failed \(exit_status=-9\)"):
        Tesseract(program(tmp_path, script), "eng").read(page)


def test_the_program_gets_one_thread_no_secrets_and_bounds(
    tmp_path: Path, page: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More threads lose pages to time-outs (C85); a hostile picture must find no keys and no endless memory."""
    monkeypatch.setenv("MISTRAL_API_KEY", "secret")
    row = "\\t".join(["5", *["1"] * 5, *["0"] * 4, "90", ""])
    script = (
        'case "$1" in --list-langs) printf "List:\\neng\\n";; *) sleep 0.2; printf "head\\n"; '
        f'(env; ulimit -v; ulimit -t) | sed "s/^/{row}/";; esac'
    )
    told = Tesseract(program(tmp_path, script), "eng", 5).read(page).text.split(" ")
    assert "OMP_THREAD_LIMIT=1" in told
    assert not any("secret" in line for line in told)
    assert told[-2:] == [str(2 * 1024 * 1024), "6"]


def test_no_file_appears_anywhere_temporary(page: bytes, tmp_path: Path) -> None:
    """The picture and its text are personal data of people who never wrote to us."""
    before = set(os.listdir("/tmp"))  # noqa: PTH208
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            seen.update(path.name for path in tmp_path.iterdir())

    watcher = threading.Thread(target=watch)
    watcher.start()
    text = Tesseract(environment={"TMPDIR": str(tmp_path)}).read(page).text
    over.set()
    watcher.join()
    assert text
    assert seen == set()
    assert list(tmp_path.iterdir()) == []
    assert not any("tess" in name for name in set(os.listdir("/tmp")) - before)  # noqa: PTH208
