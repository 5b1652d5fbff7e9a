"""The MIME tree as a flat list of leaves, with caps, and with the bytes of attached mails as they were received.

The walk is a loop, not a recursion: 1 500 nested levels fit into 100 kB. Not here: what a leaf means (``mime.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import Message
from functools import cache, partial

from atlas_pipeline.mailbox.headers import MAX_FIELD_CHARS

MAX_DEPTH = 50
MAX_PARTS = 500
MAX_PARAMETER_CHARS = 4096

_HEAD_END = re.compile(rb"\r?\n\r?\n")
# RFC 822 allowed it, and the standard library takes the first such line for the end of the header.
_SPACE_BEFORE_COLON = re.compile(rb"^([A-Za-z][A-Za-z0-9-]{0,60})[ \t]+:", re.MULTILINE)

Mail = Message


@dataclass(frozen=True)
class Leaf:
    """A node without children; ``received`` cuts out its bytes, header and body, where they can be located.

    Few leaves are asked for them: cutting at once would cost as much as the parser itself.
    """

    message: Mail
    received: Callable[[], bytes | None]
    root: bool

    @property
    def raw_body(self) -> bytes | None:
        """The received bytes after the header, still transfer-encoded."""
        raw = self.received()
        return None if raw is None else body_of(raw)


class _Capped(policy.Compat32):
    """The raw-keeping policy with a limit: reading parameters is quadratic, and 180 kB of quotes took 29 seconds."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        """Return name and value, cut where no honest sender gets."""
        name, value = super().header_source_parse(sourcelines)
        # One more than the cap that ``headers.fields`` reports, so that it does.
        return name, value[: MAX_PARAMETER_CHARS if name.lower().startswith("content-") else MAX_FIELD_CHARS + 1]


def read(raw: bytes) -> Mail:
    """Parse bytes into the standard library's tree. Raises RecursionError on deep nesting."""
    end = _HEAD_END.search(raw)
    head = raw if end is None else raw[: end.start()]
    mended = _SPACE_BEFORE_COLON.sub(rb"\1:", head)
    return message_from_bytes(raw if len(mended) == len(head) else mended + raw[len(head) :], policy=_Capped())


def body_of(raw: bytes) -> bytes:
    """Return what follows the first blank line."""
    if raw[:1] == b"\n" or raw[:2] == b"\r\n":
        return raw.lstrip(b"\r")[1:]
    end = _HEAD_END.search(raw)
    return b"" if end is None else raw[end.end() :]


def leaves(root: Mail, raw: bytes, remarks: list[str]) -> Iterator[Leaf]:
    """Yield the leaves in order; caps and defects are appended to ``remarks``."""
    stack: list[tuple[Mail, Callable[[], bytes | None], int]] = [(root, lambda: raw, 0)]
    seen = 0
    while stack:
        node, received, depth = stack.pop()
        seen += 1
        if seen > MAX_PARTS:
            remarks.append("mime_too_many_parts")
            return
        if node.defects:
            remarks.append("mime_defect")
        # Asked only where there are children: of a leaf it would decode the text by a charset that may be none.
        payload = node.get_payload() if node.is_multipart() else None
        if node.get_content_maintype() != "multipart" or not isinstance(payload, list):
            yield Leaf(node, received, node is root)
            continue
        if depth >= MAX_DEPTH:
            remarks.append("mime_too_deep")
            continue
        children = [child for child in payload if isinstance(child, Message)]
        pieces = cache(partial(_received_children, node, received, len(children)))
        stack.extend(
            (child, partial(_nth, pieces, number), depth + 1) for number, child in reversed(list(enumerate(children)))
        )


def _nth(pieces: Callable[[], list[bytes | None]], number: int) -> bytes | None:
    return pieces()[number]


def _received_children(node: Mail, received: Callable[[], bytes | None], count: int) -> list[bytes | None]:
    """Cut the received bytes at the boundary; all None where the cut and the parser count different parts."""
    unknown: list[bytes | None] = [None] * count
    raw = received()
    try:
        boundary = node.get_boundary()
    except (ValueError, LookupError, TypeError, AttributeError):
        return unknown
    if raw is None or not boundary or not boundary.isascii():
        return unknown
    line = re.compile(rb"^--" + re.escape(boundary.encode("ascii")) + rb"(--)?[ \t]*\r?$\n?", re.MULTILINE)
    body = body_of(raw)
    cuts: list[bytes | None] = []
    start: int | None = None
    for delimiter in line.finditer(body):
        if start is not None:
            piece = body[start : delimiter.start()]
            cuts.append(piece.removesuffix(b"\n").removesuffix(b"\r"))
        start = delimiter.end()
        if delimiter.group(1):
            start = None
            break
    if start is not None and start < len(body):
        cuts.append(body[start:])
    return cuts if len(cuts) == count else unknown
