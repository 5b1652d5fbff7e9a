"""What a real clamd and our own look say of archives, mails and documents, whole, closed, cut and lying. Casebook D."""

# ruff: noqa: S311  # seeds, the same each time

from __future__ import annotations

import bz2
import gzip
import random
import struct
import zipfile
from base64 import b85decode
from email.message import EmailMessage

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_pipeline.embedded.clamd import eicar
from atlas_pipeline.model import ScanResult, Verdict
from atlas_pipeline.scan.archive import DEPTH_MAX, MEMBERS_MAX, Limits, inside
from atlas_pipeline.scan.client import ClamdClient
from atlas_pipeline.scan.mail import scan_bytes
from tests.scan_archives import encrypted, mutated, planted, reachable, tarred, zipped

# 7z files of one member, without and with a password (once for the names too), in base 85.
SEVEN = {
    "infected": b85decode(
        "H+sCUCma9-?jSWLp8x;=000006aWAK000009iVhe0RTf-HBTW>B|t$?TQpoyT39tSC{SK0H$y`yH+>{UNkc(WEmKrMPDDXcL@hy1"
        "R7qAzQdLteR7F!%Ek;R9MIj_eD@ZB;-~dnnPh9{2finlL57JsS{Xn~vWE_6$Vq^BXmy#;lmO$n#a-Q9Trhlpp37UO>RXQtOjpHKA"
        "{`+I$mVibCrQ`^?#^4Ov4^W5;U;BZ;mS|A`0000N21o%3R{#eK0RRCZApsZ+Q2+n"
    ),
    "clean": b85decode(
        "H+sCUCma9-Zj%TMT>t<8000006aWAK00000>|uXd0RRJZWq5P|-~dnnO<e#0finlL56(Zs=ZFUg{i!p&;xy%>B?+h66A|mkst6`I"
        "K+g+5{*4_>92BqkbC?(NxE3WI<3Wj;*bp=eznjtbb2r12MV6Z!9{>OV02c-b0SQ$A2MYlJ0U;p)7z|MW00"
    ),
    "closed": b85decode(
        "H+sCUCma9-MVOAkc>n+a000006aWAK00000f!4jss1_gx8QQvaQy0rD>E5g40RUtH1O@;B2@nbaN}_(900#>J00JZi@dp7CQx8Sf"
        "uG=jn5YFzQ93@eQz~mtz0T=-Q3=0PU2nqqlyq`$`00jXN4FF*PE&y}@cmQ+&000yU0RSMe(lxt+-2oK_0RSL?fPnx202c-j0SRdU"
        "2MYlJ0U;p)7z||q00"
    ),
    "closed, names too": b85decode(
        "H+sCUCma9-Rm~{gfB*mh00000C;$Ke00000&e^)?=BEti!&Kzj2_afLm&6C}fR{!btKXBlPr*`soXzRNOKKX|=MC~X?wVdNut#+f"
        "h&%X}D-kdkw(e~#j<yq1cmZ63(haTk?POrrY(||HKhWY&D<~<N?xg&C_*BS9N}^>|MLO%==XaiE;oWE&nG0(gG5i?=^SULKkF#ZU"
        "7X}ak32*=h3jqKDBnI&Z0TNRW`WKyO0K3T~KBIf}Xwlj!3}pZS"
    ),
}
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
INFECTED, UNSCANNABLE, CLEAN = Verdict.INFECTED, Verdict.UNSCANNABLE, Verdict.CLEAN


def nested(depth: int, content: bytes) -> bytes:
    for _ in range(depth):
        content = zipped({"a.zip": content})
    return content


def letter(*attachments: bytes) -> bytes:
    message = EmailMessage()
    message.set_content("Voici.")
    for content in attachments:
        message.add_attachment(content, "application", "octet-stream", filename="a.bin")
    return message.as_bytes()


def lying(archive: bytes, *, size: int) -> bytes:
    """The directory says another unpacked size than the member has."""
    data = bytearray(archive)
    directory = data.index(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = size.to_bytes(4, "little")
    return bytes(data)


def hidden(content: bytes) -> bytes:
    """A member that the directory does not name; programs that repair archives find it."""
    inner = zipped({"hidden.txt": content})
    return inner[: inner.index(b"PK\x01\x02")] + zipped({"seen.txt": b"harmless"})


def headless(archive: bytes) -> bytes:
    """The members of a zip without its directory."""
    return archive[: archive.rindex(b"PK\x01\x02")]


def ar_member(content: bytes) -> bytes:
    """One member of an ar archive, as ``dpkg-deb`` writes them."""
    head = (
        b"a.gz/".ljust(16)
        + b"0".ljust(12)
        + b"0".ljust(6) * 2
        + b"100644".ljust(8)
        + str(len(content)).encode().ljust(10)
    )
    return head + b"`\n" + content + b"\n" * (len(content) % 2)


def oldest(tar: bytes) -> bytes:
    """The same tar with headers as they were before the magic: a checksum is all they have."""
    head = bytearray(tar[:512])
    head[257:265] = bytes(8)
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + tar[512:]


def blank_picture() -> bytes:
    """Highly compressible and honest: 76 KB of zip for a picture of 12 MB would be a bomb, this is 160 times smaller."""
    return zipped({"word/media/blank.bmp": b"BM" + bytes(900_000), "word/document.xml": b"<w/>" * 50})


ROWS: list[tuple[str, bytes, Verdict, str | None]] = [
    ("plain", eicar(), INFECTED, None),
    ("with a line break behind", eicar() + b"\n", INFECTED, None),
    ("in a zip, stored", zipped({"a": eicar()}, zipfile.ZIP_STORED), INFECTED, None),
    ("in a zip, deflated", zipped({"a": eicar()}), INFECTED, None),
    ("in a zip, bzip2", zipped({"a": eicar()}, zipfile.ZIP_BZIP2), INFECTED, None),
    ("in four zips", nested(4, eicar()), INFECTED, None),
    ("gz", gzip.compress(eicar()), INFECTED, None),
    ("second of two gz", gzip.compress(b"x") + gzip.compress(eicar()), INFECTED, None),
    ("tar.gz", tarred({"../../etc/a": eicar()}, "w:gz"), INFECTED, None),
    ("tar.xz", tarred({"a": eicar()}, "w:xz"), INFECTED, None),
    ("7z", SEVEN["infected"], INFECTED, None),
    ("behind a picture", b"\x89PNG\r\n\x1a\n" + bytes(100) + eicar(), INFECTED, None),
    ("picture and zip at once", b"\x89PNG\r\n\x1a\n" + bytes(100) + zipped({"a": eicar()}), INFECTED, None),
    ("member the directory hides", hidden(eicar() + bytes(50)), INFECTED, None),
    ("mail, attached", letter(eicar()), INFECTED, None),
    ("mail, zip attached", letter(zipped({"a": eicar()})), INFECTED, None),
    ("mail in a mail", letter(letter(eicar())), INFECTED, None),
    ("mail in a mail, CRLF", letter(letter(eicar())).replace(b"\n", b"\r\n"), INFECTED, None),
    ("mail in a zip", zipped({"a.eml": letter(eicar())}), INFECTED, None),
    ("clean", b"Bonjour", CLEAN, None),
    ("empty", b"", CLEAN, "empty"),
    ("clean zip", zipped({"a.txt": b"text", "../../x": b"path"}), CLEAN, None),
    ("clean zip with a comment and a prefix", b"MZ" + bytes(60) + zipped({"a.txt": b"text"}), CLEAN, None),
    ("honest blank picture", blank_picture(), CLEAN, None),
    ("clean 7z", SEVEN["clean"], CLEAN, None),
    ("clean tar.gz", tarred({"a.txt": b"text"}, "w:gz"), CLEAN, None),
    ("13 zips deep", nested(13, eicar()), UNSCANNABLE, "limits_exceeded"),
    ("zip, ZipCrypto", encrypted(zipped({"a": b"payroll"})), UNSCANNABLE, "encrypted"),
    ("zip, AES", encrypted(zipped({"a": b"payroll"}), 99), UNSCANNABLE, "encrypted"),
    ("7z with a password", SEVEN["closed"], UNSCANNABLE, "encrypted"),
    ("7z, names encrypted too", SEVEN["closed, names too"], UNSCANNABLE, "encrypted"),
    ("Office document with a password", OLE + bytes(504) + "EncryptedPackage".encode("utf-16-le") + bytes(512), UNSCANNABLE, "encrypted"),
    ("500 members, the last infected", zipped({**{str(n): b"x" for n in range(500)}, "z": eicar()}), UNSCANNABLE, "limits_exceeded"),
    ("60 MB of zeros in 58 KB", zipped({"a": bytes(60_000_000)}), UNSCANNABLE, "limits_exceeded"),
    ("60 MB of zeros in a gz", gzip.compress(bytes(60_000_000)), UNSCANNABLE, "limits_exceeded"),
    ("20 times 3 MB of zeros", zipped({str(n): bytes(3_000_000) for n in range(20)}), UNSCANNABLE, "limits_exceeded"),
    ("zip cut off", zipped({"a": random.Random(1).randbytes(400)})[:300], UNSCANNABLE, "archive_damaged"),
    ("gz cut off", gzip.compress(random.Random(1).randbytes(400))[:300], UNSCANNABLE, "archive_damaged"),
    ("size that lies, too small", lying(zipped({"a": b"text" * 50}), size=4), UNSCANNABLE, "archive_damaged"),
    ("size that lies, too large", lying(zipped({"a": b"text" * 50}), size=100_000), UNSCANNABLE, "archive_damaged"),
    ("rar", b"Rar!\x1a\x07\x01\x00" + bytes(60), UNSCANNABLE, "archive_unsupported"),
    ("zstd", b"\x28\xb5\x2f\xfd" + bytes(60), UNSCANNABLE, "archive_unsupported"),
    ("zstd behind a frame to be skipped", b"\x5a\x2a\x4d\x18" + bytes(4) + b"\x28\xb5\x2f\xfd" + bytes(60), UNSCANNABLE, "archive_unsupported"),
    ("lz4, old form", b"\x02\x21\x4c\x18" + bytes(60), UNSCANNABLE, "archive_unsupported"),
    ("rar behind a program", b"MZ" + bytes(3000) + b"Rar!\x1a\x07\x00" + bytes(60), UNSCANNABLE, "archive_unsupported"),
    ("rpm", b"\xed\xab\xee\xdb" + bytes(90), UNSCANNABLE, "archive_unsupported"),
    ("gz, old magic", b"\x1f\x9e" + gzip.compress(eicar())[2:], INFECTED, None),
    ("gz behind a gz and zeros", gzip.compress(b"x") + bytes(512) + gzip.compress(eicar()), INFECTED, None),
    ("gz behind a bz2", bz2.compress(b"x") + gzip.compress(eicar()), INFECTED, None),
    ("gz in an ar", b"!<arch>\n" + ar_member(b"x") + ar_member(gzip.compress(eicar())), INFECTED, None),
    ("ar cut off", (b"!<arch>\n" + ar_member(gzip.compress(random.Random(1).randbytes(400))))[:300], UNSCANNABLE, "archive_damaged"),
    ("gz in a tar behind a block of junk", b"\x01" * 512 + tarred({"a": gzip.compress(eicar())}), INFECTED, None),
    ("gz in a tar of the oldest kind, behind junk", b"\x01" * 512 + oldest(tarred({"a": gzip.compress(eicar())})), INFECTED, None),
    ("lzma zip", zipped({"a": eicar() * 3}, zipfile.ZIP_LZMA), UNSCANNABLE, "archive_unsupported"),
    ("lzma zip, no directory, marker before", b"PK00" + headless(zipped({"a": eicar() * 3}, zipfile.ZIP_LZMA)), UNSCANNABLE, "archive_unsupported"),
    ("closed zip, no directory, in a picture", b"\x89PNG\r\n\x1a\n" + headless(encrypted(zipped({"a": b"payroll"}))), UNSCANNABLE, "encrypted"),
    ("four bytes of a zip by chance", b"\xff\xd8\xff" + bytes(300) + b"PK\x03\x04" + random.Random(3).randbytes(400), CLEAN, None),
]  # fmt: skip


@pytest.mark.parametrize(("content", "verdict", "code"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_each_thing_gets_its_verdict(
    clamd_client: ClamdClient, content: bytes, verdict: Verdict, code: str | None
) -> None:
    result = scan_bytes(content, clamd_client)
    assert (result.verdict, result.code) == (verdict, code)


class Blind:
    """A clamd that opens no archive and finds the marker in what it is given: what our own look adds is seen alone."""

    def __init__(self) -> None:
        self.asked = 0

    def scan(self, data: bytes) -> ScanResult:
        self.asked += 1
        return ScanResult(Verdict.INFECTED if eicar() in data else Verdict.CLEAN)


@pytest.mark.parametrize("kind", list(planted(b"", random.Random(0))))
def test_our_own_look_finds_what_lies_in_each_kind_of_archive(kind: str) -> None:
    archive = planted(eicar(), random.Random(3))[kind]
    assert scan_bytes(archive, Blind()).verdict is INFECTED


def test_blocks_that_hold_nothing_are_counted_too() -> None:
    """Thousands of members that point at one long stream of empty blocks: hours of work for no byte."""
    stream = b"\x00\x00\x00\xff\xff" * 400_000
    heads = [
        b"PK\x03\x04" + struct.pack("<5H3I2H", 20, 0, 8, 0, 0, 0, 0, 0, 1, 31 * behind) + b"a"
        for behind in range(2_000)
    ]
    limits = Limits()
    list(inside(b"".join(reversed(heads)) + stream, limits))
    assert "limits_exceeded" in limits.objections


def test_a_fault_in_a_stream_costs_a_few_steps_and_loses_nothing() -> None:
    """What a program writes before it notices is seen, also where the fault stands deep inside a piece."""
    packed = bytearray(gzip.compress(random.Random(5).randbytes(40_000) + eicar() + random.Random(6).randbytes(20_000)))
    packed[50_000:50_010] = b"\xff" * 10
    limits = Limits()
    assert any(eicar() in member for member in inside(bytes(packed), limits))


def test_unpacking_is_counted_while_it_is_done() -> None:
    """Casebook C51: neither a promise in a header nor the number of members makes us unpack without end."""
    for bomb in (
        gzip.compress(bytes(300_000_000), 9),
        zipped({str(n): random.Random(1).randbytes(50) for n in range(MEMBERS_MAX + 5)}),
        nested(DEPTH_MAX + 2, b"x"),
    ):
        limits = Limits()
        assert sum(len(member) for member in inside(bomb, limits)) < 110_000_000
        assert "limits_exceeded" in limits.objections


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_damaged_archive_with_the_virus_still_in_reach_is_never_clean(seed: int) -> None:
    """The benchmark ``scan_archives`` does this ten thousand times on a real clamd."""
    chance = random.Random(seed)
    for archive in planted(eicar(), chance).values():
        data = mutated(archive, chance)
        if scan_bytes(data, Blind()).verdict is CLEAN:
            assert not any(eicar() in member for member in reachable(data))
