"""winmail.dat: what is inside counts as any part, and a hostile one costs seconds and no more."""

from __future__ import annotations

import base64
import struct
import time
from pathlib import Path

import pytest

from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.mailbox.tnef import MAX_BYTES, unpack
from tests.mail_cases import cases

HEAD = b"From: a@b.example\r\nSubject: s\r\nMIME-Version: 1.0\r\n"


def attribute(level: int, name: int, kind: int, data: bytes) -> bytes:
    """One attribute of MS-OXTNEF, with its checksum."""
    return struct.pack("<BHHI", level, name, kind, len(data)) + data + struct.pack("<H", sum(data) & 0xFFFF)


def winmail(*files: tuple[str, bytes], body: bytes = b"") -> bytes:
    """A TNEF file as Outlook writes it."""
    out = struct.pack("<IH", 0x223E9F78, 1)
    out += attribute(1, 0x9006, 8, struct.pack("<I", 0x10000)) + attribute(1, 0x9007, 6, struct.pack("<II", 1252, 0))
    if body:
        out += attribute(1, 0x800C, 2, body + b"\x00")
    for name, content in files:
        out += attribute(2, 0x9002, 6, b"\x01\x00" + b"\xff" * 12)
        out += attribute(2, 0x8010, 1, name.encode("cp1252") + b"\x00") + attribute(2, 0x800F, 6, content)
    return out


def mail(raw: bytes, text: bytes = b"") -> bytes:
    """A mail with it, and with a text of its own where one is given."""
    part = (
        b"Content-Type: application/ms-tnef; name=winmail.dat\r\nContent-Transfer-Encoding: base64\r\n\r\n"
        + base64.encodebytes(raw)
    )
    if not text:
        return HEAD + part
    return (
        HEAD + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\n" + text
        + b"\r\n--b\r\n" + part + b"\r\n--b--\r\n"
    )  # fmt: skip


def test_files_inside_are_parts_and_the_body_is_found_where_the_mail_has_none() -> None:
    files = [("Capture d'écran.png", b"\x89PNG\r\n\x1a\n" + b"x" * 50), ("..\\..\\x.bat", b"@echo off")]
    found = parse(mail(winmail(*files, body=b"Bonjour, voir la capture.")))
    assert found.body_text.strip() == "Bonjour, voir la capture."
    assert [(part.name, part.sniffed_type, part.size) for part in found.parts[1:]] == [
        ("Capture d'écran.png", "image/png", 58), ("x.bat", "text/plain", 9),
    ]  # fmt: skip
    assert "body_from_tnef" in found.remarks
    with_text = parse(mail(winmail(*files, body=b"other"), text=b"My own words"))
    assert (with_text.body_text.strip(), len(with_text.parts)) == ("My own words", 3)


def bomb() -> bytes:
    """A multi-value property of four thousand million values in a few bytes."""
    props = struct.pack("<I", 1) + struct.pack("<HHI", 0x1002, 0x3001, 0xFFFFFFF0)
    return winmail() + attribute(1, 0x9003, 6, props)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"x" * 100,
        winmail(("a", b"b"))[:-5],
        winmail() + b"\xff" * 5000,
        bomb(),
        b"\x78\x9f\x3e\x22" + b"\x00" * 9000,
    ],
)
def test_a_hostile_one_is_a_remark_within_seconds(raw: bytes) -> None:
    started = time.monotonic()
    found = unpack(raw)
    assert time.monotonic() - started < 12
    assert found.remarks in {("tnef_unreadable",), ()}
    parse(mail(raw))


def test_a_bomb_is_unreadable_and_the_mail_keeps_its_part() -> None:
    found = parse(mail(bomb()))
    assert "tnef_unreadable" in found.remarks
    assert [part.sniffed_type for part in found.parts] == ["application/ms-tnef"]


def test_one_that_is_too_large_is_not_opened() -> None:
    assert unpack(b"\x00" * (MAX_BYTES + 1)).remarks == ("tnef_too_large",)


def test_every_public_winmail_gives_its_files(corpus: Path) -> None:
    for path, raw, _expected in cases(corpus):
        if path.startswith("tnef_"):
            assert not {"tnef_unreadable", "parser_failed"} & set(parse(raw).remarks), path
