"""Archives with a planted marker, whole and mutated, and every way to get at what is in them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress

# What an archive's own reader may raise on hostile bytes; a program that reads on where one of these is raised is below too.
UNREADABLE = (
    OSError, EOFError, ValueError, KeyError, IndexError, NotImplementedError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, tarfile.TarError,
)  # fmt: skip


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of these."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def encrypted(archive: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The zip with the encryption flag in the first of both its headers: ZipCrypto, or AES with method 99."""
    data = bytearray(archive)
    for start, flags in ((0, 6), (data.index(b"PK\x01\x02"), 8)):
        data[start + flags] |= 1
        data[start + flags + 2] = method
    return bytes(data)


def tarred(members: dict[str, bytes], mode: str = "w") -> bytes:
    """A tar of these, ``w:gz`` and so on compressed."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def planted(marker: bytes, chance: random.Random) -> dict[str, bytes]:
    """Archives of each kind that hold the marker in a member that is compressed with it."""
    text = b" ".join(chance.choices([b"menu", b"page", b"contact", b"image", b"bonjour"], k=300))
    document = text + marker + text
    other = text[::-1]
    members = {"lisez-moi.txt": other, "../../devis.txt": document, "fin.txt": other}
    return {
        "zip": zipped(members),
        "zip stored": zipped(members, zipfile.ZIP_STORED),
        "zip bzip2": zipped(members, zipfile.ZIP_BZIP2),
        "zip in zip": zipped({"a.zip": zipped(members), "b.txt": other}),
        "zip stored in zip": zipped({"a.zip": zipped(members), "b.txt": other}, zipfile.ZIP_STORED),
        "picture and zip": b"\x89PNG\r\n\x1a\n" + other + zipped(members),
        "gz": gzip.compress(document),
        "two gz": gzip.compress(other) + gzip.compress(document),
        "bz2": bz2.compress(document),
        "xz": lzma.compress(document),
        "lzma": lzma.compress(document, format=lzma.FORMAT_ALONE),
        "tar": tarred(members),
        "tar.gz": tarred(members, "w:gz"),
        "tar.xz": tarred(members, "w:xz"),
        "zip in tar": tarred({"a.zip": zipped(members), "b.txt": other}),
        "gz in zip": zipped({"a.gz": gzip.compress(document)}),
    }


def mutated(archive: bytes, chance: random.Random) -> bytes:
    """The archive with a few bytes changed, cut, doubled, moved, or with something before or behind it."""
    data = bytearray(archive)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at = chance.randrange(len(data))
        kind = chance.randrange(8)
        if kind <= 2:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 3:
            data[at] = chance.choice((0, 1, 8, 0x50, 0xFF))
        elif kind == 4:
            del data[at : at + chance.choice((1, 4, 30, len(data)))]
        elif kind == 5:
            data[at:at] = data[at : at + chance.choice((1, 22, 46))]
        elif kind == 6:
            data[:0] = chance.choice((b"\0", b"\xff\xd8\xff\xe0", b"MZ" + bytes(62), b"#!/bin/sh\n"))
        else:
            data += chance.choice((b"\0" * 512, b"PK\x05\x06" + bytes(18), b"junk", bytes(data[:64])))
        if not data:
            return b""
    return bytes(data)


def reachable(archive: bytes, depth: int = 0) -> Iterator[bytes]:
    """Everything that some lenient program could get out, by Python's own readers with their checks taken out of the way."""
    yield archive
    if depth > 3:
        return
    for reader in _READERS:
        with suppress(*UNREADABLE):
            for member in reader(archive):
                yield from reachable(member, depth + 1)


def _by_zipfile(archive: bytes) -> Iterator[bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        for entry in opened.infolist():
            with suppress(*UNREADABLE), opened.open(entry) as member:
                member._expected_crc = None  # type: ignore[attr-defined]
                yield member.read(5_000_000)


def _by_local_headers(archive: bytes) -> Iterator[bytes]:
    at = archive.find(b"PK\x03\x04")
    while 0 <= at < len(archive) - 30:
        method = int.from_bytes(archive[at + 8 : at + 10], "little")
        start = (
            at
            + 30
            + int.from_bytes(archive[at + 26 : at + 28], "little")
            + int.from_bytes(archive[at + 28 : at + 30], "little")
        )
        if method == zipfile.ZIP_DEFLATED:
            yield from _stream(lambda: zlib.decompressobj(-15), archive[start:])
        elif method == zipfile.ZIP_BZIP2:
            yield from _stream(bz2.BZ2Decompressor, archive[start:])
        at = archive.find(b"PK\x03\x04", at + 1)


def _stream(make: Callable[[], object], data: bytes) -> Iterator[bytes]:
    """What comes out before it breaks, a byte at a time at the end."""
    stream = make()
    out = bytearray()
    with suppress(*UNREADABLE):
        for start in range(0, len(data), 64):
            out += stream.decompress(data[start : start + 64])  # type: ignore[attr-defined]
    yield bytes(out)


def _by_streams(archive: bytes) -> Iterator[bytes]:
    rest = archive
    while rest[:2] == b"\x1f\x8b":
        stream = zlib.decompressobj(31)
        out = bytearray()
        with suppress(zlib.error):
            for start in range(0, len(rest), 64):
                out += stream.decompress(rest[start : start + 64])
        yield bytes(out)
        rest = stream.unused_data if stream.eof else b""
        rest = archive[len(archive) - len(rest) :] if rest else b""
        if len(rest) == len(archive):
            return
    if archive[:3] == b"BZh":
        yield from _stream(bz2.BZ2Decompressor, archive)
    if archive[:1] in (b"\xfd", b"\x5d"):
        yield from _stream(lzma.LZMADecompressor, archive)


def _by_tarfile(archive: bytes) -> Iterator[bytes]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:", ignore_zeros=True) as opened:
        for entry in opened:
            if entry.isfile():
                with suppress(*UNREADABLE):
                    member = opened.extractfile(entry)
                    if member is not None:
                        yield member.read(5_000_000)


_READERS = (_by_zipfile, _by_local_headers, _by_streams, _by_tarfile)
