"""Mails that nobody wrote: seeded damage to our own. The same seed gives the same mails."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from atlas_pipeline.embedded.mails import DEMO_MAILS, Scene

_HEADER = re.compile(rb"^[A-Za-z-]+:[^\r\n]*(?:\r?\n[ \t][^\r\n]*)*\r?\n", re.MULTILINE)


def originals() -> list[bytes]:
    """The demo's mails."""
    scene = Scene(authserv_id="mx.example", start=datetime(2026, 12, 1, 8, tzinfo=UTC), canary="ZEBRA")
    return [mail.raw(scene) for mail in DEMO_MAILS]


def mutants(count: int, seed: int, mails: Sequence[bytes]) -> Iterator[bytes]:
    """``count`` damaged mails, each with one to four injuries."""
    chance = random.Random(seed)  # noqa: S311  # the same mails each time
    for _ in range(count):
        raw = chance.choice(mails)
        for _ in range(chance.randint(1, 4)):
            raw = chance.choice(_INJURIES)(raw, mails, chance)
        yield raw


def _flip(raw: bytes, _mails: Sequence[bytes], chance: random.Random) -> bytes:
    out = bytearray(raw)
    for _ in range(chance.choice((1, 5, 50, 500))):
        if out:
            out[chance.randrange(len(out))] = chance.randrange(256)
    return bytes(out)


def _cut(raw: bytes, _mails: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = sorted(chance.randrange(len(raw) + 1) for _ in range(2))
    return raw[:start] + raw[end:] if chance.random() < 0.5 else raw[:end]


def _splice(raw: bytes, mails: Sequence[bytes], chance: random.Random) -> bytes:
    other = chance.choice(mails)
    return raw[: chance.randrange(len(raw) + 1)] + other[chance.randrange(len(other) + 1) :]


def _headers(raw: bytes, mails: Sequence[bytes], chance: random.Random) -> bytes:
    """Swap, double, drop or borrow header lines."""
    lines = _HEADER.findall(raw) + _HEADER.findall(chance.choice(mails))
    if len(lines) < 2:
        return raw
    first, second = chance.sample(lines, 2)
    return chance.choice(
        (raw.replace(first, second, 1), first * chance.randint(1, 50) + raw, raw.replace(first, b"", 1))
    )


def _boundary(raw: bytes, _mails: Sequence[bytes], chance: random.Random) -> bytes:
    found = re.search(rb'boundary="?([^"\r\n;]+)', raw)
    if found is None:
        return raw
    name = found.group(1)
    return raw.replace(
        name, chance.choice((b"", b"x" * 200, name[:3], b"--", b"\xff\x00", name + b" ")), chance.randint(1, 9)
    )


def _charset(raw: bytes, _mails: Sequence[bytes], chance: random.Random) -> bytes:
    label = chance.choice(
        (b"utf-7", b"idna", b"\xff", b"", b"unicode_escape", b"base64", b"utf-16", b"zip", b"hz", b"x" * 999)
    )
    return re.sub(rb'charset="?[^"\r\n;]+"?', lambda _found: b"charset=" + label, raw)


def _garbage(raw: bytes, _mails: Sequence[bytes], chance: random.Random) -> bytes:
    place = chance.randrange(len(raw) + 1)
    piece = chance.choice(
        (b"\x00", b"=?utf-8?B?w6k?=", b"=" * 40, b"\r\n\r\n", b"\xf0\x9f\x92", b">" * 300, b"(" * 900, b"%00*=", b'"')
    )
    return raw[:place] + piece * chance.choice((1, 1, 100)) + raw[place:]


_INJURIES = (_flip, _cut, _splice, _headers, _boundary, _charset, _garbage)
