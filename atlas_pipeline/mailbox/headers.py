"""Headers as text, addresses and dates; every access is guarded and falls back to the raw value.

Works on the pairs the parser kept (``Message.raw_items``): the standard library's own header classes raise on access.
Not here: what the headers mean for trust (``trust.py``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import getaddresses, parsedate_to_datetime

from atlas_pipeline.mailbox.text import decode_words, raw_header_text
from atlas_pipeline.model import Address
from atlas_pipeline.text import clean_text, one_line

MAX_FIELDS = 1000
MAX_FIELD_CHARS = 65_536

_LOCAL = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,64}"
_DOMAIN = r"[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})+"
_PLAIN_ADDRESS = re.compile(rf"{_LOCAL}@{_DOMAIN}")
# One address, alone or after a name; a name with quotes may hold anything but an address.
_STRICT_FROM = re.compile(
    rf"""\s*(?:(?P<bare>{_LOCAL}@{_DOMAIN})
       |(?P<name>"(?:[^"\\]|\\.)*"|[^"<>@,:;\\]*)\s*<(?P<address>{_LOCAL}@{_DOMAIN})>)\s*""",
    re.VERBOSE,
)

Fields = Sequence[tuple[str, str]]


def fields(pairs: Iterable[tuple[str, object]]) -> tuple[Fields, str | None]:
    """Return (lower-case name, raw text) in order, and the remark ``headers_truncated`` where a cap cut something."""
    out: list[tuple[str, str]] = []
    remark = None
    for name, value in pairs:
        text = str(value)
        if len(out) >= MAX_FIELDS:
            return out, "headers_truncated"
        if len(text) > MAX_FIELD_CHARS:
            text, remark = text[:MAX_FIELD_CHARS], "headers_truncated"
        out.append((one_line(name).lower(), text))
    return out, remark


def values(found: Fields, name: str) -> list[str]:
    """Return all raw values of one header, top first."""
    return [value for key, value in found if key == name]


def first(found: Fields, name: str) -> str | None:
    """Return the topmost raw value of one header, or None."""
    return next((value for key, value in found if key == name), None)


def unfolded(value: str) -> str:
    """Return a raw value as text on one line, encoded words left as they are."""
    return one_line(raw_header_text(value))


def decoded(value: str) -> str:
    """Return a raw value as a person would read it, on one line."""
    return one_line(decode_words(value))


def as_dict(found: Fields) -> dict[str, list[str]]:
    """Return all headers decoded, by lower-case name."""
    out: dict[str, list[str]] = {}
    for name, value in found:
        out.setdefault(name, []).append(decoded(value))
    return out


def message_id(found: Fields) -> str | None:
    """Return the Message-ID as written, with its brackets, or None where it is missing or empty."""
    value = unfolded(first(found, "message-id") or "")
    return value[:998] or None


def date(found: Fields) -> tuple[datetime | None, str | None]:
    """Return the Date with the offset it was written with, and the remark ``date_invalid`` where there is one that can't be read.

    PostgreSQL takes no offset beyond 15:59: a wilder one is turned into UTC. A missing zone is taken as UTC.
    """
    raw = first(found, "date")
    if raw is None:
        return None, None
    try:
        value = parsedate_to_datetime(unfolded(raw))
        value = _with_sane_offset(value)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None, "date_invalid"
    return (value, None) if 1900 < value.year <= 9000 else (None, "date_invalid")


def addresses(raw: Iterable[str]) -> tuple[Address, ...]:
    """Return the addresses of the headers given; parsed first, decoded after, so that a name can't add an address."""
    texts = [unfolded(value) for value in raw]
    try:
        pairs = getaddresses(texts)
    except (ValueError, IndexError, TypeError, AttributeError, RecursionError):
        pairs = [("", found) for text in texts for found in _PLAIN_ADDRESS.findall(text)]
    return tuple(
        Address(one_line(decode_words(name)) or None, _bare_address(address))
        for name, address in pairs
        if name or address
    )


def _bare_address(address: str) -> str | None:
    address = clean_text(address).strip().strip("<>")
    return address[:998] or None


def strict_from(found: Fields) -> Address | None:
    """Return the sender if there is one From with one address, no group, and no name that looks like an address."""
    senders = values(found, "from")
    if len(senders) != 1 or len(senders[0]) > 998:
        return None
    match = _STRICT_FROM.fullmatch(unfolded(senders[0]))
    if match is None:
        return None
    name = one_line(decode_words((match["name"] or "").strip().strip('"')))
    # NFKC folds the full-width at sign and its like into "@".
    if "@" in unicodedata.normalize("NFKC", name):
        return None
    return Address(name or None, match["bare"] or match["address"])


def _with_sane_offset(value: datetime) -> datetime:
    offset = value.utcoffset()
    if offset is None:
        return value.replace(tzinfo=UTC)
    in_utc = value.astimezone(UTC)  # raises OverflowError at the ends of the calendar, as the caller expects
    return value if abs(offset) < timedelta(hours=15) else in_utc
