"""What bytes are, whatever their label says.

Not here: opening them (``ocr`` and nobody else, after ``scan``).
"""

from __future__ import annotations

import re

import filetype

# The head of a mail: some header fields, among them one that every mail has.
_FIELD = rb"[A-Za-z][A-Za-z0-9-]{1,60}:[^\r\n]{0,1000}\r?\n(?:[ \t][^\r\n]{0,1000}\r?\n){0,50}"
_MAIL = re.compile(rb"\s{0,4}(?:From [^\r\n]{0,200}\r?\n)?(?:" + _FIELD + rb"){2,}", re.DOTALL)
_MAIL_FIELD = re.compile(rb"^(?:From|Date|Received|Message-ID|Return-Path|Subject):", re.IGNORECASE | re.MULTILINE)
_OWN_MAGIC = (
    (b"<svg", "image/svg+xml"),
    (b"<?xml", "text/xml"),
    (b"<!doctype html", "text/html"),
    (b"<html", "text/html"),
    (b"begin:vcalendar", "text/calendar"),
    (b"begin:vcard", "text/vcard"),
    (b"\x78\x9f\x3e\x22", "application/ms-tnef"),
)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


def sniff(content: bytes, declared: str) -> str:
    """Return the media type the bytes show: ``application/octet-stream`` at worst, ``inode/x-empty`` for none."""
    if not content:
        return "inode/x-empty"
    guess = filetype.guess(content[:8192])
    if guess is not None:
        return str(guess.mime)
    head = content[:8192]
    if declared == "message/rfc822" or looks_like_mail(head):
        return "message/rfc822"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:20].lower()
    for magic, media_type in _OWN_MAGIC:
        if start.startswith(magic):
            return media_type
    return "application/octet-stream" if _CONTROL.search(head) else "text/plain"


def looks_like_mail(head: bytes) -> bool:
    """Whether the bytes begin like the header of a mail."""
    block = _MAIL.match(head[:8192])
    return block is not None and len(set(map(bytes.lower, _MAIL_FIELD.findall(block.group())))) >= 2
