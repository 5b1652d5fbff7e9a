"""What lies inside an archive: its members as bytes, unpacked in memory within limits. A second look beside clamd's.

clamd opens archives too, and reports what it could not open only while its Alert settings are on; and two programs may see
two different archives in the same bytes. So whatever some program could unpack is handed to the scanner by itself: the members
that a zip's directory names, and those it hides; the beginning of a stream that breaks off. No name in an archive is ever
looked at. Formats that are not opened here (7z, cab, iso) are left to clamd; those known that neither opens are an objection.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import struct
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

UNPACKED_MAX_BYTES = 100_000_000  # of one part, all levels together
MEMBERS_MAX = 5_000
DEPTH_MAX = 6
RATIO_MAX = 500  # of members above RATIO_FROM_BYTES: a blank picture of 80 KB is 160 times its zip and no bomb
RATIO_FROM_BYTES = 1_048_576
DIRECTORY_MAX_BYTES = 4_000_000  # every entry takes 46 bytes and becomes an object of about 500
MEMORY_MAX_BYTES = 128_000_000  # what a stream may ask for as dictionary
READ_MAX_BYTES = (
    1_000_000_000  # packed bytes looked at, the same ones again included: blocks that hold nothing cost time too
)

_CHUNK = 1_048_576
_INPUT = 65_536
_LOCAL = b"PK\x03\x04"
_GZIP, _OLD_GZIP = b"\x1f\x8b", b"\x1f\x9e"
_END_OF_DIRECTORY = b"PK\x05\x06"
_END_OF_DIRECTORY_REACH = 65_557  # its 22 bytes and the longest comment
_ENCRYPTED, _SIZES_FOLLOW = 0x1, 0x8
_STORED, _DEFLATED, _BZIPPED = 0, 8, 12
_XZ = b"\xfd7zXZ\x00"
# Methods of a zip's members that exist and are not opened here: what else stands there, no program would take for a member.
_OTHER_METHODS = {1, 2, 3, 4, 5, 6, 9, 10, 14, 18, 19, 93, 94, 95, 96, 97, 98, 99}
# Neither Python nor Debian's clamd opens these.
_UNSUPPORTED = (
    b"\x28\xb5\x2f\xfd",  # zstd
    b"\x04\x22\x4d\x18",  # lz4, and below its older form
    b"\x02\x21\x4c\x18",
    b"\x1f\x9d",  # compress
    b"\x89LZO\x00\r\n\x1a\n",
    b"LZIP",
    b"LRZI",
    b"\xed\xab\xee\xdb",  # rpm
)
_SKIPPED_FRAME = re.compile(rb"[\x50-\x5f]\x2a\x4d\x18")  # before zstd and lz4 alike
_RAR, _RAR_REACH = b"Rar!\x1a\x07", 1_048_576  # behind a program that unpacks it
_ACE = slice(7, 14)
_OLE, _ENCRYPTED_PACKAGE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "EncryptedPackage".encode("utf-16-le")


@dataclass
class Limits:
    """What may still be unpacked of one part, and the objections so far: codes, each once.

    ``encrypted``, ``limits_exceeded``, ``archive_damaged`` (broken, cut, or saying one thing and holding another),
    ``archive_unsupported``.
    """

    bytes_left: int = UNPACKED_MAX_BYTES
    members_left: int = MEMBERS_MAX
    read_left: int = READ_MAX_BYTES
    objections: dict[str, None] = field(default_factory=dict)

    def object(self, code: str) -> None:
        """Note why the archive must not pass."""
        self.objections.setdefault(code)

    @property
    def used_up(self) -> bool:
        """Whether nothing more may be unpacked; that is an objection."""
        if self.bytes_left <= 0 or self.members_left <= 0 or self.read_left <= 0:
            self.object("limits_exceeded")
            return True
        return False


def inside(content: bytes, limits: Limits, *, depth: int = 0) -> Iterator[bytes]:
    """Yield what can be unpacked of the bytes, level by level; nothing where they are no archive. Never raises."""
    if content.startswith(_OLE) and _ENCRYPTED_PACKAGE in content:
        limits.object("encrypted")  # an Office document behind a password
    if _is_unsupported(content):
        limits.object("archive_unsupported")
    for members in _openers(content):
        for member in members(content, limits):
            limits.members_left -= 1
            if depth + 1 < DEPTH_MAX:
                yield member
                yield from inside(member, limits, depth=depth + 1)
            elif _openers(member):
                limits.object("limits_exceeded")
            else:
                yield member
            if limits.used_up:
                return


def _is_unsupported(content: bytes) -> bool:
    return (
        content.startswith(_UNSUPPORTED)
        or content[_ACE] == b"**ACE**"
        or _SKIPPED_FRAME.match(content) is not None
        or content.find(_RAR, 0, _RAR_REACH) >= 0
    )


Opener = Callable[[bytes, Limits], Iterator[bytes]]


def _openers(content: bytes) -> list[Opener]:
    """Return every reader that may find something: bytes can be two archives at once."""
    found: list[Opener] = []
    if _LOCAL in content or _end_of_directory(content) >= 0:
        found.append(_zip)
    if content[:2] in (_GZIP, _OLD_GZIP):
        found.append(_gzip)
    if content[:3] == b"BZh":
        found.append(_bzip2)
    if content.startswith(_XZ) or _is_lzma(content[:13]):
        found.append(_xz)
    if next(_headers(content), None) is not None:
        found.append(_tar)
    if content.startswith(_AR):
        found.append(_ar)
    return found


def _end_of_directory(content: bytes) -> int:
    return content.rfind(_END_OF_DIRECTORY, max(0, len(content) - _END_OF_DIRECTORY_REACH))


# --- zip: an Office document is one too -------------------------------------------------------------------------------


def _zip(content: bytes, limits: Limits) -> Iterator[bytes]:
    named = _directory(content, limits)
    spans: list[tuple[int, int]] = []
    for entry in named:
        yield from _by_directory(content, entry, limits, spans)
        if limits.used_up:
            return
    spans.sort()
    # What no directory names is found by programs that repair archives.
    ends = list(accumulate((end for _, end in spans), max))
    at = content.find(_LOCAL)
    while at >= 0:
        number = bisect_right(spans, (at, len(content))) - 1
        if number < 0 or spans[number][0] != at:
            if (named or content.startswith(_LOCAL)) and (number < 0 or at >= ends[number]):
                limits.object("archive_damaged")  # a member that its directory hides
            yield from _by_itself(content, at, limits)
            if limits.used_up:
                return
        at = content.find(_LOCAL, at + 1)


def _directory(content: bytes, limits: Limits) -> list[zipfile.ZipInfo]:
    end = _end_of_directory(content)
    if end < 0:
        if content.startswith(_LOCAL):
            limits.object("archive_damaged")
        return []
    if int.from_bytes(content[end + 12 : end + 16], "little") > DIRECTORY_MAX_BYTES:
        limits.object("limits_exceeded" if content.startswith(b"PK") else "archive_damaged")
        return []
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
    except Exception:  # noqa: BLE001  # zipfile answers hostile directories with errors of a dozen kinds; all mean the same
        # A picture that happens to hold the four bytes is no archive.
        if content.startswith(b"PK") or _LOCAL in content:
            limits.object("archive_damaged")
        return []
    if len(entries) > limits.members_left or sum(entry.file_size for entry in entries) > limits.bytes_left:
        limits.object("limits_exceeded")
        return []
    return entries


def _by_directory(
    content: bytes, entry: zipfile.ZipInfo, limits: Limits, spans: list[tuple[int, int]]
) -> Iterator[bytes]:
    head = _local_header(content, entry.header_offset)
    if head is None or head.method != entry.compress_type:
        limits.object("archive_damaged")
        return
    spans.append((entry.header_offset, head.data + entry.compress_size))
    if (entry.flag_bits | head.flags) & _ENCRYPTED:
        limits.object("encrypted")
        return
    if entry.compress_type not in _METHODS:
        limits.object("archive_unsupported")
        return
    packed = memoryview(content)[head.data : head.data + entry.compress_size]
    member, whole = _METHODS[entry.compress_type](packed, limits)
    if not whole or len(member) != entry.file_size or zlib.crc32(member) != entry.CRC:
        limits.object("archive_damaged")
    if member:
        yield member


def _by_itself(content: bytes, at: int, limits: Limits) -> Iterator[bytes]:
    head = _local_header(content, at)
    if head is None or head.method not in _METHODS.keys() | _OTHER_METHODS:
        return
    limits.members_left -= 1
    if head.flags & _ENCRYPTED or head.method in _OTHER_METHODS:
        if head.is_likely:
            limits.object("encrypted" if head.flags & _ENCRYPTED else "archive_unsupported")
        return
    if head.method == _STORED and head.flags & _SIZES_FOLLOW:
        return  # it ends nobody knows where; its bytes lie open to the scan of the whole
    size = head.packed if head.method == _STORED else len(content)
    member, _whole = _METHODS[head.method](memoryview(content)[head.data : head.data + size], limits)
    if member:
        yield member


@dataclass(frozen=True)
class _LocalHeader:
    flags: int
    method: int
    packed: int
    data: int
    is_likely: bool  # more of it than the four bytes looks like a header; a picture may hold those by chance


def _local_header(content: bytes, at: int) -> _LocalHeader | None:
    if at < 0 or content[at : at + 4] != _LOCAL or at + 30 > len(content):
        return None
    _, version, flags, method, _, _, _, packed, _, name, extra = struct.unpack_from("<4s5H3I2H", content, at)
    data = at + 30 + name + extra
    likely = version & 0xFF <= 63 and 0 < name <= 1024 and data <= len(content)
    return _LocalHeader(flags, method, packed, data, likely)


# --- streams ----------------------------------------------------------------------------------------------------------


def _stored(packed: memoryview, limits: Limits) -> tuple[bytes, bool]:
    limits.bytes_left -= len(packed)
    return bytes(packed), True


def _inflated(packed: memoryview, limits: Limits) -> tuple[bytes, bool]:
    member, whole, _rest = _zlib_stream(packed, limits, -15)
    return member, whole


def _zlib_stream(packed: memoryview, limits: Limits, wbits: int) -> tuple[bytes, bool, memoryview]:
    """Return what came out, whether the stream came to its end, and what follows it."""
    stream = zlib.decompressobj(wbits)
    out = _Counted(limits, len(packed))
    for start in range(0, len(packed), _INPUT):  # in pieces: zlib hands back a copy of all that it has not used yet
        waiting: bytes | memoryview = packed[start : start + _INPUT]
        limits.read_left -= len(waiting)
        if limits.used_up:
            return out.taken, False, packed[:0]
        while not stream.eof:
            before = stream.copy()
            try:
                piece = stream.decompress(waiting, _CHUNK)
            except zlib.error:
                _up_to_the_fault(before, waiting, out)
                return out.taken, False, packed[:0]
            waiting = stream.unconsumed_tail
            if not out.take(piece):
                return out.taken, False, packed[:0]
            if not waiting and len(piece) < _CHUNK:
                break
        if stream.eof:
            return out.taken, True, packed[min(start + _INPUT, len(packed)) - len(stream.unused_data) :]
    return out.taken, False, packed[:0]


def _up_to_the_fault(stream: zlib._Decompress, waiting: bytes | memoryview, out: _Counted) -> None:
    """Take what other programs would have written before they noticed; zlib throws it away with the error.

    By halves: each step keeps the longer beginning that still goes well.
    """
    at, size = 0, len(waiting)
    while size:
        half = (size + 1) // 2
        trial = stream.copy()
        try:
            piece = trial.decompress(waiting[at : at + half])
        except zlib.error:
            if size == 1:
                return
            size = half
            continue
        if not out.take(piece) or trial.eof:
            return
        stream, at, size = trial, at + half, size - half


class _Counted:
    """Pieces of one member, counted while they are unpacked: what headers promise is no guide."""

    def __init__(self, limits: Limits, packed: int) -> None:
        self._limits = limits
        self._most = max(RATIO_FROM_BYTES, RATIO_MAX * packed)
        self._out = bytearray()

    @property
    def taken(self) -> bytes:
        """All that was taken."""
        return bytes(self._out)

    def take(self, piece: bytes) -> bool:
        """Take one more; False once there is too much."""
        self._out += piece
        self._limits.bytes_left -= len(piece)
        if len(self._out) > self._most:
            self._limits.object("limits_exceeded")
            return False
        return not self._limits.used_up


def _unpacked(
    stream: bz2.BZ2Decompressor | lzma.LZMADecompressor, packed: memoryview, limits: Limits
) -> tuple[bytes, bool, memoryview]:
    out = _Counted(limits, len(packed))
    for start in range(0, len(packed), _INPUT):
        waiting: bytes | memoryview = packed[start : start + _INPUT]
        limits.read_left -= len(waiting)
        if limits.used_up:
            return out.taken, False, packed[:0]
        while not stream.eof:
            try:
                piece = stream.decompress(waiting, _CHUNK)
            except (OSError, ValueError, EOFError, lzma.LZMAError) as error:
                if isinstance(error, lzma.LZMAError) and "limit" in str(error).lower():
                    limits.object("limits_exceeded")
                return out.taken, False, packed[:0]
            waiting = b""
            if not out.take(piece):
                return out.taken, False, packed[:0]
            if stream.needs_input:
                break
        if stream.eof:
            return out.taken, True, packed[min(start + _INPUT, len(packed)) - len(stream.unused_data) :]
    return out.taken, False, packed[:0]


def _bunzipped(packed: memoryview, limits: Limits) -> tuple[bytes, bool]:
    member, whole, _rest = _unpacked(bz2.BZ2Decompressor(), packed, limits)
    return member, whole


_METHODS = {_STORED: _stored, _DEFLATED: _inflated, _BZIPPED: _bunzipped}


def _gzip(content: bytes, limits: Limits) -> Iterator[bytes]:
    rest = memoryview(content)
    while (magic := bytes(rest[:2])) in (_GZIP, _OLD_GZIP):
        if magic == _OLD_GZIP:  # the same format in everything else
            rest = memoryview(_GZIP + bytes(rest[2:]))
        member, whole, rest = _zlib_stream(rest, limits, 31)
        if not whole:
            limits.object("archive_damaged")
        if member:
            yield member
        rest = _without_padding(rest)
    yield from _left_over(rest)


def _bzip2(content: bytes, limits: Limits) -> Iterator[bytes]:
    rest = memoryview(content)
    while bytes(rest[:3]) == b"BZh":
        member, whole, rest = _unpacked(bz2.BZ2Decompressor(), rest, limits)
        if not whole:
            limits.object("archive_damaged")
        if member:
            yield member
        rest = _without_padding(rest)
    yield from _left_over(rest)


def _without_padding(rest: memoryview) -> memoryview:
    """What follows the zeros that some programs fill up with and others step over."""
    filled = next((at for at in range(0, len(rest), _INPUT) if any(rest[at : at + _INPUT])), len(rest))
    here = bytes(rest[filled : filled + _INPUT])
    return rest[filled + len(here) - len(here.lstrip(b"\0")) :]


def _left_over(rest: memoryview) -> Iterator[bytes]:
    """What stands behind the last stream: some programs stop there, others go on."""
    if rest:
        yield bytes(rest)


def _is_lzma(head: bytes) -> bool:
    """Whether this is a header of the older format, which has no magic: by the rule that xz itself goes by."""
    if len(head) < 13 or head[0] >= 225:
        return False
    dictionary, size = int.from_bytes(head[1:5], "little"), int.from_bytes(head[5:13], "little")
    low = dictionary & -dictionary
    if dictionary == 0:  # xz refuses it, its library does not
        return size == 2**64 - 1
    return dictionary >= 4096 and dictionary in (low, low * 3) and (size < 2**38 or size == 2**64 - 1)


def _xz(content: bytes, limits: Limits) -> Iterator[bytes]:
    rest = memoryview(content)
    while bytes(rest[:6]) == _XZ or _is_lzma(bytes(rest[:13])):
        member, whole, rest = _unpacked(lzma.LZMADecompressor(memlimit=MEMORY_MAX_BYTES), rest, limits)
        if not whole:
            limits.object("archive_damaged")
        if member:
            yield member
        rest = _without_padding(rest)
    yield from _left_over(rest)


# --- tar --------------------------------------------------------------------------------------------------------------

_BLOCK = 512


_SUM = slice(148, 156)
_SUM_WRITTEN = re.compile(rb"[ 0]*[0-7]{1,7}[ \0]{0,2}")
_MAGIC, _MAGIC_AT = b"ustar", 257


def _tar(content: bytes, limits: Limits) -> Iterator[bytes]:
    """Each block that is a header begins a member: programs that skip a damaged one go on at the next."""
    named = content[_MAGIC_AT:].startswith(_MAGIC)
    for start in _headers(content):
        if named and not _is_header(content[start : start + _BLOCK]):
            limits.object("archive_damaged")
        size = _octal(content[start + 124 : start + 136])
        if size is None or start + _BLOCK + size > len(content):
            if named:
                limits.object("archive_damaged")
            size = len(content)
        if size:
            yield content[start + _BLOCK : start + _BLOCK + size]
            limits.bytes_left -= min(size, len(content))


def _headers(content: bytes) -> Iterator[int]:
    """Where the blocks begin that are headers: by their magic, or by their checksum, which is all the oldest ones have."""
    for start in range(0, len(content) - _BLOCK + 1, _BLOCK):
        if content.startswith(_MAGIC, start + _MAGIC_AT) or (
            _SUM_WRITTEN.fullmatch(content, start + _SUM.start, start + _SUM.stop)
            and _is_header(content[start : start + _BLOCK])
        ):
            yield start


def _is_header(block: bytes) -> bool:
    stated = _octal(block[_SUM])
    return stated == sum(block[: _SUM.start]) + 8 * 32 + sum(block[_SUM.stop :])


def _octal(digits: bytes) -> int | None:
    if digits[:1] == b"\x80":
        return int.from_bytes(digits[1:], "big")
    try:
        return int(digits.strip(b" \0") or b"0", 8)
    except ValueError:
        return None


# --- ar, and so Debian's packages -------------------------------------------------------------------------------------

_AR, _AR_HEAD, _AR_END = b"!<arch>\n", 60, b"`\n"


def _ar(content: bytes, limits: Limits) -> Iterator[bytes]:
    at = len(_AR)
    while at < len(content):
        head = content[at : at + _AR_HEAD]
        size = head[48:58].strip()
        start = at + _AR_HEAD
        if head[58:60] != _AR_END or not size.isdigit() or start + int(size) > len(content):
            limits.object("archive_damaged")
            yield content[start:]
            return
        limits.bytes_left -= int(size)
        yield content[start : start + int(size)]
        at = start + int(size) + int(size) % 2
