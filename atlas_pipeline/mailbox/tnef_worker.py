"""The process that opens one winmail.dat from standard input and says what was inside as JSON. ``tnef`` starts it."""

from __future__ import annotations

import base64
import json
import logging
import resource
import sys

CPU_SECONDS, MEMORY_BYTES = 2, 1_000_000_000
MAX_RTF_BYTES = 2_000_000


def main() -> int:
    """Read, limit ourselves, answer ``{files: [[name, base64]], text, html}``. Any exception is an exit code that is not 0."""
    raw = sys.stdin.buffer.read()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    # Imported under the limits; the library logs what it stumbles over, which is content of the mail.
    from tnefparse import TNEF

    logging.disable(logging.CRITICAL)
    found = TNEF(raw, do_checksum=False)
    files = []
    for attachment in found.attachments:
        name = _name(attachment)
        data = attachment.data
        content = b"".join(data) if isinstance(data, list) else bytes(data or b"")
        files.append([name.rstrip("\x00"), base64.b64encode(content).decode()])
    text, html = _text(found.body), _text(found.htmlbody)
    if not text.strip() and not html.strip():
        text = _from_rtf(found)
    json.dump({"files": files, "text": text, "html": html}, sys.stdout)
    return 0


def _name(attachment: object) -> str:
    """The long name, or the short one, which the library takes for UTF-8 and Outlook writes in the sender's code page."""
    try:
        return str(attachment.long_filename() or "")  # type: ignore[attr-defined]  # the library has no types
    except UnicodeDecodeError:
        short = getattr(attachment, "_name", b"")
        return short.decode("cp1252", "replace") if isinstance(short, bytes) else ""


def _text(body: object) -> str:
    if isinstance(body, list):
        body = body[0] if body else ""
    text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body or "")
    return text.rstrip("\x00").replace("\r\n", "\n")


def _from_rtf(found: object) -> str:
    """Outlook's usual body: RTF, compressed by a method of its own (MS-OXRTFCP)."""
    from compressed_rtf import decompress
    from striprtf.striprtf import rtf_to_text

    packed = getattr(found, "_rtfbody", None)
    packed = packed[0] if isinstance(packed, list) and packed else packed
    if not isinstance(packed, bytes):
        return ""
    rtf = decompress(packed)[:MAX_RTF_BYTES].decode("cp1252", "replace")
    return str(rtf_to_text(rtf, errors="replace"))  # type: ignore[no-untyped-call]  # the library has no types


if __name__ == "__main__":
    sys.exit(main())
