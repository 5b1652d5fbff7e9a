"""Which mails are the same mail: a hash that trace headers and line endings do not change.

The same mail comes through IMAP with CRLF, from a Maildir with LF, and by two ways with other Received lines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from atlas_pipeline.mailbox import headers
from atlas_pipeline.mailbox.headers import Fields

_HEADERS = ("date", "from", "subject", "message-id")


def fingerprint(found: Fields, payloads: Iterable[bytes]) -> str:
    """Return the sha256 (hex) over Date, From, Subject, Message-ID and the decoded parts, each after its length."""
    digest = hashlib.sha256()
    for name in _HEADERS:
        _add(digest, headers.decoded(headers.first(found, name) or "").encode())
    for payload in payloads:
        _add(digest, payload.replace(b"\r\n", b"\n").rstrip(b"\n"))
    return digest.hexdigest()


def _add(digest: hashlib._Hash, piece: bytes) -> None:
    digest.update(len(piece).to_bytes(8, "big"))
    digest.update(piece)
