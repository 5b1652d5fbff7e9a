"""What a cut FETCH had brought whole before the cut.

imapclient throws the half answer away with the error; imaplib, below it, still holds what had arrived. A mail counts when its
literal has the length that was announced and the answer's closing bracket came after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

_UID = re.compile(rb"\bUID (\d+)\b", re.IGNORECASE)
_BODY = re.compile(rb"BODY\[\] \{(\d+)\}\s*\Z", re.IGNORECASE)


def whole_mails(client: Any, asked: Sequence[int]) -> Iterator[tuple[str, bytes]]:
    """Yield UID and bytes of each whole mail among those asked for, from a connection that has just failed."""
    held = getattr(client, "_imap", None)
    pieces = list(getattr(held, "untagged_responses", {}).get("FETCH", []))
    wanted = set(asked)
    for piece, after in pairwise(pieces):
        if not (isinstance(piece, tuple) and isinstance(after, bytes) and after.endswith(b")")):
            continue
        head, literal = piece
        uid, body = _UID.search(head) or _UID.search(after), _BODY.search(head)
        if uid and body and int(body.group(1)) == len(literal) and int(uid.group(1)) in wanted:
            wanted.discard(int(uid.group(1)))
            yield uid.group(1).decode(), literal
