"""The verdict on a whole mail, with a real clamd; and what a zip's own directory gives away."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from email.message import EmailMessage
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_pipeline.embedded.clamd import eicar
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import Part, ScanResult, Verdict
from atlas_pipeline.scan.archive import DIRECTORY_MAX_BYTES, MEMBERS_MAX, Limits, inside
from atlas_pipeline.scan.client import ClamdClient
from atlas_pipeline.scan.mail import MailVerdict, scan_mail, scan_parsed
from tests.scan_archives import zipped


def part(index: int, content: bytes) -> Part:
    digest = hashlib.sha256(content).hexdigest()
    return Part(index, "a.bin", "application/octet-stream", "application/zip", len(content), digest, False, content)


def mail(*attachments: bytes) -> tuple[bytes, list[Part]]:
    message = EmailMessage()
    message["Subject"] = "Documents"
    message.set_content("Voici les documents.")
    for content in attachments:
        message.add_attachment(content, "application", "octet-stream", filename="a.bin")
    return message.as_bytes(), [part(index, content) for index, content in enumerate(attachments)]


stored = partial(zipped, method=zipfile.ZIP_STORED)


def flagged(archive: bytes) -> bytes:
    """The zip with the encryption flag in its directory alone, where our own look finds it."""
    changed = bytearray(archive)
    changed[archive.index(b"PK\x01\x02") + 8] |= 1
    return bytes(changed)


def zip_objection(content: bytes) -> str | None:
    """The first objection to these bytes."""
    limits = Limits()
    for _member in inside(content, limits):
        pass
    return next(iter(limits.objections), None)


class Scripted:
    """A scanner whose verdicts are written down; counts what it was asked."""

    def __init__(self, *verdicts: Verdict) -> None:
        self.verdicts = list(verdicts)
        self.asked: list[bytes] = []

    def scan(self, data: bytes) -> ScanResult:
        self.asked.append(data)
        return ScanResult(self.verdicts[len(self.asked) - 1])


def test_a_clean_mail_is_clean_in_all_its_parts(clamd_client: ClamdClient) -> None:
    """Only then may anything of it be opened."""
    verdict = scan_mail(*mail(b"one", b"", stored({"a.txt": b"text"})), clamd_client)
    assert verdict.overall is Verdict.CLEAN
    assert [(index, result.verdict) for index, result in verdict.parts] == [(n, Verdict.CLEAN) for n in range(3)]


def test_a_virus_in_one_attachment_is_found_in_the_raw_mail_and_in_its_part(clamd_client: ClamdClient) -> None:
    """In base64 and inside a zip; the other attachment is not blamed."""
    for content in (eicar(), stored({"e.com": eicar()})):
        verdict = scan_mail(*mail(b"fine", content), clamd_client)
        assert verdict.overall is Verdict.INFECTED
        assert verdict.raw.verdict is Verdict.INFECTED
        assert [result.verdict for _, result in verdict.parts] == [Verdict.CLEAN, Verdict.INFECTED]


def test_a_virus_inside_an_attached_mail_is_found(clamd_client: ClamdClient) -> None:
    """Forwarding as an attachment wraps a whole mail."""
    inner, _ = mail(eicar())
    outer, _ = mail(inner)
    assert scan_mail(outer, [], clamd_client).overall is Verdict.INFECTED


def test_a_part_that_only_our_parser_decodes_is_scanned_too(clamd_client: ClamdClient) -> None:
    """Where the two disagree about the encoding, the raw mail alone looks clean."""
    verdict = scan_mail(b"Subject: hi\r\n\r\nnothing here", [part(4, eicar())], clamd_client)
    assert (verdict.raw.verdict, verdict.overall) == (Verdict.CLEAN, Verdict.INFECTED)
    assert verdict.parts[0][0] == 4


def test_an_encrypted_attachment_makes_the_mail_unscannable(clamd_client: ClamdClient) -> None:
    """Seen by clamd or by our own look at the directory."""
    verdict = scan_mail(*mail(flagged(stored({"a.txt": b"text"}))), clamd_client)
    assert verdict.overall is Verdict.UNSCANNABLE
    assert verdict.parts[0][1].code == "encrypted"


def test_our_own_look_counts_where_clamd_says_ok() -> None:
    """A clamd without AlertEncrypted calls the same attachment clean (C46)."""
    scanner = Scripted(Verdict.CLEAN, Verdict.CLEAN, Verdict.CLEAN)
    verdict = scan_mail(*mail(flagged(stored({"a.txt": b"text"}))), scanner)
    assert (verdict.overall, verdict.parts[0][1].code) == (Verdict.UNSCANNABLE, "encrypted")


def test_our_own_look_never_softens_a_finding() -> None:
    """Infected stays infected, whatever the directory says."""
    scanner = Scripted(Verdict.CLEAN, Verdict.INFECTED)
    assert scan_mail(*mail(flagged(stored({"a": b""}))), scanner).overall is Verdict.INFECTED


@pytest.mark.parametrize(
    ("verdicts", "overall"),
    [
        ((Verdict.CLEAN, Verdict.UNSCANNABLE, Verdict.INFECTED), Verdict.INFECTED),
        ((Verdict.CLEAN, Verdict.UNSCANNABLE, Verdict.ERROR), Verdict.UNSCANNABLE),
        ((Verdict.CLEAN, Verdict.CLEAN, Verdict.ERROR), Verdict.ERROR),
        ((Verdict.CLEAN, Verdict.CLEAN, Verdict.CLEAN), Verdict.CLEAN),
    ],
)
def test_the_worst_verdict_counts(verdicts: tuple[Verdict, ...], overall: Verdict) -> None:
    """One bad part is enough; what was found weighs more than what could not be asked."""
    assert scan_mail(*mail(b"one", b"two"), Scripted(*verdicts)).overall is overall


def test_a_scanner_that_is_down_is_not_asked_once_a_part(short_folder: Path) -> None:
    """The mail is held in any case; thirty attachments must not cost thirty time-outs."""
    scanner = Scripted(Verdict.CLEAN, Verdict.CLEAN, Verdict.ERROR)
    verdict = scan_mail(*mail(b"one", b"two", b"three", b"one"), scanner)
    assert len(scanner.asked) == 3
    assert [result.code for _, result in verdict.parts] == [None, None, "not_asked", None]
    gone = ClamdClient(f"unix:{short_folder / 'none'}", sleep=lambda _: None)
    held = scan_mail(*mail(b"one"), gone)
    assert (held.overall, held.parts[0][1].code) == (Verdict.ERROR, "not_asked")


def test_a_zip_that_promises_too_much_is_refused_unopened() -> None:
    """By what its members add up to, by their number, and by a directory too large to be read."""
    archive = bytearray(stored({"a.txt": b"text"}))
    directory = archive.index(b"PK\x01\x02")
    archive[directory + 24 : directory + 28] = (2_000_000_000).to_bytes(4, "little")
    assert zip_objection(bytes(archive)) == "limits_exceeded"
    assert zip_objection(stored({str(n): b"" for n in range(MEMBERS_MAX + 1)})) == "limits_exceeded"
    archive = bytearray(stored({"a.txt": b"text"}))
    end = archive.index(b"PK\x05\x06")
    archive[end + 12 : end + 16] = (DIRECTORY_MAX_BYTES + 1).to_bytes(4, "little")
    assert zip_objection(bytes(archive)) == "limits_exceeded"


def test_an_unreadable_directory_is_an_objection_only_where_the_bytes_are_a_zip() -> None:
    """Two programs may see two different archives in it; a picture that happens to hold the four bytes is none."""
    archive = bytearray(stored({"a.txt": b"text"}))
    archive[archive.index(b"PK\x01\x02")] = 0
    assert zip_objection(bytes(archive)) == "archive_damaged"
    assert zip_objection(b"\x89PNG" + bytes(archive)) == "archive_damaged"
    assert zip_objection(b"\x89PNG and PK\x05\x06" + bytes(30)) is None
    assert zip_objection(b"no archive at all") is None
    assert zip_objection(stored({"../../x": b"text"})) is None


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_bytes_make_the_look_at_a_zip_raise(data: st.DataObject) -> None:
    """It is handed whatever strangers send."""
    archive = bytearray(stored({"a.txt": b"text", "b.txt": b"more"}))
    for _ in range(data.draw(st.integers(1, 8))):
        archive[data.draw(st.integers(0, len(archive) - 1))] = data.draw(st.integers(0, 255))
    zip_objection(bytes(archive[: data.draw(st.integers(0, len(archive)))]))
    zip_objection(b"PK\x05\x06" + data.draw(st.binary(max_size=100)))


def mime(*leaves: bytes) -> bytes:
    """A multipart of these leaves as they stand."""
    head = b"Subject: x\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n"
    return head + b"".join(b"--B\n" + leaf + b"\n" for leaf in leaves) + b"--B--\n"


LZMA_ZIP = zipped({"a.com": eicar() * 3}, zipfile.ZIP_LZMA)
ATTACHED = (
    b"Content-Type: application/octet-stream; name=a\nContent-Transfer-Encoding: base64\n\n"
    + base64.encodebytes(LZMA_ZIP)
)
AS_TEXT = b"Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\n" + base64.encodebytes(LZMA_ZIP)


def scanned(raw: bytes, client: ClamdClient) -> MailVerdict:
    """As the pipeline scans it."""
    return scan_parsed(raw, parse(raw), client)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (mime(ATTACHED), "archive_unsupported"),
        (mime(*[b"Content-Type: text/plain\n\nx"] * 505, ATTACHED), "mail_not_read_whole"),
        (mime(b"Content-Type: text/plain\n\nhi", AS_TEXT), "archive_unsupported"),
        (mime(b"Content-Type: message/rfc822\n\n" + mime(AS_TEXT)), "archive_unsupported"),
        (
            mime(
                b"Content-Type: message/rfc822\nContent-Transfer-Encoding: base64\n\n"
                + base64.encodebytes(mime(ATTACHED) + b"..").rstrip(b"=\n")
            ),
            "archive_unsupported",
        ),
    ],
    ids=["attached", "behind 505 parts", "as text", "as text in a mail", "in a mail in base64 that lacks its end"],
)
def test_what_our_own_look_alone_can_object_to_is_found_wherever_it_lies(
    clamd_client: ClamdClient, raw: bytes, code: str
) -> None:
    verdict = scanned(raw, clamd_client)
    assert (verdict.overall, verdict.reason.code) == (Verdict.UNSCANNABLE, code)


def test_a_text_in_utf_16_is_a_text(clamd_client: ClamdClient) -> None:
    text = base64.encodebytes("Bonjour à tous".encode("utf-16"))
    leaf = b"Content-Type: text/plain; charset=utf-16\nContent-Transfer-Encoding: base64\n\n" + text
    assert scanned(mime(leaf), clamd_client).overall is Verdict.CLEAN
