"""Bytes to ``ParsedMail``: as much as can be understood, remarks for the rest, and never an exception.

Not here: the tree (``tree.py``, ``mime.py``), what a forward is (``forwards.py``), belief (``trust.py``).
"""

from __future__ import annotations

import re
from email import policy
from email.parser import BytesHeaderParser

from atlas_pipeline.mailbox import headers
from atlas_pipeline.mailbox.fingerprint import fingerprint
from atlas_pipeline.mailbox.forwards import find_forward
from atlas_pipeline.mailbox.headers import Fields
from atlas_pipeline.mailbox.mime import Content, read_content
from atlas_pipeline.mailbox.text import decode
from atlas_pipeline.mailbox.tree import body_of, read
from atlas_pipeline.model import Address, ParsedMail

FALLBACK_BODY_BYTES = 100_000

_PARTIAL = {"mime_too_deep", "mime_too_many_parts", "mime_recursion", "parser_failed"}
_LISTS = {"bulk", "list", "junk", "auto_reply"}


def parse(raw: bytes, *, own_message_id_domain: str | None = None) -> ParsedMail:
    """Understand a mail. Never raises; what could not be understood is named in ``remarks``.

    ``own_message_id_domain`` is the right half of the Message-IDs that we give our own mails.
    """
    found, content = _read(raw)
    remarks = list(content.remarks)
    date, remark = headers.date(found)
    remarks.append(remark or "")
    strict = headers.strict_from(found)
    sender = strict or next(iter(headers.addresses(headers.values(found, "from"))), Address())
    subject = headers.first(found, "subject")
    message_id = headers.message_id(found)
    text = None if subject is None else headers.decoded(subject)
    forward = find_forward(text, content.body_text, content.body_html, content.parts, found)
    remarks.append("forward_conflict" if forward.conflict else "")
    # A tree that was not read whole would make different mails the same: hash the bytes of the body then.
    payloads = [body_of(raw)] if _PARTIAL & set(remarks) else content.payloads
    return ParsedMail(
        message_id=message_id,
        fingerprint=fingerprint(found, payloads),
        sender=sender,
        recipients=headers.addresses([*headers.values(found, "to"), *headers.values(found, "cc")]),
        subject=text,
        date=date,
        body_text=content.body_text,
        body_html=content.body_html,
        parts=tuple(content.parts),
        forward=forward,
        authentication_results=tuple(
            headers.unfolded(value) for value in headers.values(found, "authentication-results")
        ),
        strict_sender=strict is not None,
        automatic=_automatic(found, message_id, own_message_id_domain),
        headers=headers.as_dict(found),
        remarks=tuple(dict.fromkeys(filter(None, remarks))),
        texts=tuple(content.texts),
        read_whole=not _PARTIAL & set(remarks),
    )


def _read(raw: bytes) -> tuple[Fields, Content]:
    try:
        message = read(raw)
        found, remark = headers.fields(message.raw_items())
        content = read_content(raw, message)
    except RecursionError:
        return _fallback(raw, "mime_recursion")
    except Exception:  # noqa: BLE001  # the door: no mail may stop the batch it came in, whatever the library raises on it
        return _fallback(raw, "parser_failed")
    content.remarks.append(remark or "")
    return found, content


def _fallback(raw: bytes, remark: str) -> tuple[Fields, Content]:
    """Read the header block alone, and the beginning of the rest as text."""
    head = raw[: len(raw) - len(body_of(raw))]
    found, _ = headers.fields(BytesHeaderParser(policy=policy.compat32).parsebytes(head).raw_items())
    body, _ = decode(body_of(raw)[:FALLBACK_BODY_BYTES], None)
    return found, Content(body_text=body.replace("\r\n", "\n"), remarks=[remark])


def _automatic(found: Fields, message_id: str | None, own_domain: str | None) -> str | None:
    """Why a mail was written by a machine. A newsletter's List-Unsubscribe alone is no reason: people forward those."""
    own = (own_domain or "").lower().strip()
    if own and message_id and message_id.lower().rstrip("> ").endswith("@" + own):
        return "own_message"
    if re.match(r"\s*multipart/report\b", headers.first(found, "content-type") or "", re.IGNORECASE):
        return "report"
    submitted = re.split(r"[;(\s]", headers.decoded(headers.first(found, "auto-submitted") or ""), maxsplit=1)[
        0
    ].lower()
    if submitted not in {"", "no"}:
        return "auto_submitted"
    if re.fullmatch(r"\s*<\s*>\s*", headers.first(found, "return-path") or ""):
        return "null_return_path"
    if headers.decoded(headers.first(found, "precedence") or "").lower() in _LISTS:
        return "precedence"
    return None
