"""What the leaves of a mail are: its own text, or a part (attachment, inline picture, attached mail).

Raises nothing but RecursionError, which ``parse.py`` answers. Not here: headers' meaning, forwards, trust.
"""

from __future__ import annotations

import base64
import hashlib
import io
import quopri
import re
from dataclasses import dataclass, field
from email.errors import InvalidBase64CharactersDefect, InvalidBase64LengthDefect, InvalidBase64PaddingDefect
from email.generator import BytesGenerator

from atlas_pipeline.mailbox.html import html_to_text
from atlas_pipeline.mailbox.sniff import sniff
from atlas_pipeline.mailbox.text import decode, decode_words, raw_header_text, unflow
from atlas_pipeline.mailbox.tnef import Winmail, unpack
from atlas_pipeline.mailbox.tree import Leaf, Mail, body_of, leaves, read
from atlas_pipeline.model import Part
from atlas_pipeline.text import clean_text, one_line

MAX_ATTACHED_MAILS_DEEP = 3

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, AssertionError)
_BASE64_DEFECTS = (InvalidBase64CharactersDefect, InvalidBase64LengthDefect, InvalidBase64PaddingDefect)
# Content that needs a person or a tool that we lack; the remark keeps an empty body from being taken for an empty mail.
_CLOSED_TYPES = {
    "application/pkcs7-mime": "smime",
    "application/x-pkcs7-mime": "smime",
    "application/pgp-encrypted": "pgp",
}
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_CALENDAR_LINE = re.compile(r"^(SUMMARY|DESCRIPTION|LOCATION|DTSTART|DTEND)(?:;[^:\r\n]*)?:(.*)$", re.MULTILINE)


@dataclass
class Content:
    """What was found in a tree; ``payloads`` are all decoded leaves in order, for the fingerprint; ``inside``, winmail.dat files.

    ``texts`` are leaves that are read as body and hold bytes that no text has: the antivirus has to see them decoded.
    """

    body_text: str = ""
    body_html: str | None = None
    parts: list[Part] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    inside: list[Winmail] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)


def read_content(raw: bytes, message: Mail, *, mails_deep: int = 0) -> Content:
    """Sort the leaves of a parsed mail into its body and its parts; the parts of attached mails follow them."""
    content = Content()
    plain: list[str] = []
    html: list[str] = []
    calendar = ""
    for leaf in leaves(message, raw, content.remarks):
        payload = _payload(leaf, content.remarks)
        content.payloads.append(payload)
        declared = _declared_type(leaf.message)
        name = part_name(leaf.message)
        if leaf.root and declared.startswith("multipart/") and sniff(payload, declared) == "text/plain":
            # No boundary was found in it: whatever the header says, a reader is shown this text.
            plain.append(_own_text(content, leaf.message, payload))
            continue
        if declared in {"text/plain", "text/html"} and _is_own_text(leaf, name):
            (plain if declared == "text/plain" else html).append(_own_text(content, leaf.message, payload))
            continue
        if declared == "text/calendar":
            calendar = calendar or _calendar_text(_text(leaf.message, payload, content.remarks))
        _add_part(content, leaf.message, declared=declared, name=name, payload=payload, mails_deep=mails_deep)
    if not "".join(plain).strip() and not html:
        plain += [winmail.text for winmail in content.inside if winmail.text.strip()]
        html += [winmail.html for winmail in content.inside if winmail.html.strip()]
        content.remarks.extend(["body_from_tnef"] if plain or html else [])
    content.body_html = "\n".join(html) or None
    content.body_text = _body(plain, content.body_html, calendar, content.remarks)
    return content


def _body(plain: list[str], html: str | None, calendar: str, remarks: list[str]) -> str:
    text = "\n".join(plain)
    if html:
        from_html, found = html_to_text(html)
        remarks.extend(found)
        if not text.strip() and from_html.strip():
            remarks.append("body_from_html")
            text = from_html
    if not text.strip() and calendar:
        remarks.append("body_from_calendar")
        text = calendar
    return text


def _is_own_text(leaf: Leaf, name: str | None) -> bool:
    if _disposition(leaf.message) == "attachment":
        return False
    return leaf.root or name is None


def _add_part(
    content: Content, message: Mail, *, declared: str, name: str | None, payload: bytes, mails_deep: int
) -> None:
    sniffed = sniff(payload, declared)
    if not payload:
        content.remarks.append("part_empty")
    for closed in {_CLOSED_TYPES.get(declared), _CLOSED_TYPES.get(sniffed)} - {None}:
        content.remarks.append(str(closed))
    content.parts.append(
        Part(
            index=len(content.parts),
            name=name,
            declared_type=declared,
            sniffed_type=sniffed,
            size=len(payload),
            sha256=hashlib.sha256(payload).hexdigest(),
            inline=_disposition(message) != "attachment" and sniffed != "message/rfc822",
            content=payload,
        )
    )
    if sniffed == "message/rfc822":
        _add_parts_of_attached(content, payload, mails_deep + 1)
    elif payload and "application/ms-tnef" in {declared, sniffed} and mails_deep <= MAX_ATTACHED_MAILS_DEEP:
        _add_files_of_winmail(content, payload)


def _add_files_of_winmail(content: Content, raw: bytes) -> None:
    """Files that only Outlook would show must reach the antivirus and the OCR as any other."""
    winmail = unpack(raw)
    content.inside.append(winmail)
    content.remarks.extend(winmail.remarks)
    for name, payload in winmail.files:
        content.parts.append(
            Part(
                index=len(content.parts),
                name=safe_name(name or ""),
                declared_type="application/octet-stream",
                sniffed_type=sniff(payload, "application/octet-stream"),
                size=len(payload),
                sha256=hashlib.sha256(payload).hexdigest(),
                inline=False,
                content=payload,
            )
        )


def _add_parts_of_attached(content: Content, raw: bytes, mails_deep: int) -> None:
    """A screenshot inside a mail that was forwarded as attachment must reach the antivirus and the OCR too."""
    if mails_deep > MAX_ATTACHED_MAILS_DEEP:
        content.remarks.append("mime_too_deep")
        return
    inner = read_content(raw, read(raw), mails_deep=mails_deep)
    content.remarks.extend(remark for remark in inner.remarks if not remark.startswith("body_"))
    content.texts.extend(inner.texts)
    for part in inner.parts:
        content.parts.append(
            Part(
                index=len(content.parts),
                name=part.name,
                declared_type=part.declared_type,
                sniffed_type=part.sniffed_type,
                size=part.size,
                sha256=part.sha256,
                inline=part.inline,
                content=part.content,
            )
        )


def _payload(leaf: Leaf, remarks: list[str]) -> bytes:
    if leaf.message.is_multipart():
        return _attached(leaf, remarks)
    before = len(leaf.message.defects)
    try:
        payload = leaf.message.get_payload(decode=True)
    except _UNREADABLE:
        remarks.append("part_decode_defect")
        return leaf.raw_body or b""
    if any(isinstance(defect, _BASE64_DEFECTS) for defect in leaf.message.defects[before:]):
        remarks.append("part_decode_defect")
    return payload if isinstance(payload, bytes) else b""


def _attached(leaf: Leaf, remarks: list[str]) -> bytes:
    """Return the bytes of an attached mail (or delivery report) as received; as a last resort re-written."""
    raw = leaf.raw_body
    encoding = _field(leaf.message, "content-transfer-encoding").lower()
    if raw is None:
        return _rewritten(leaf.message, remarks)
    # RFC 2046 forbids it, and senders do it: an attached mail in base64 is no mail until it is decoded.
    if encoding == "base64":
        return _leniently(raw, remarks)
    if encoding == "quoted-printable":
        return quopri.decodestring(raw)
    return raw


_NO_BASE64 = re.compile(rb"[^A-Za-z0-9+/]+")


def _leniently(raw: bytes, remarks: list[str]) -> bytes:
    """Base64 as mail programs read it: what is no letter of it is passed over, and its end may be missing."""
    letters = _NO_BASE64.sub(b"", raw.partition(b"=")[0])
    whole = letters[: len(letters) - (len(letters) % 4 == 1)]  # one letter alone says nothing
    if len(whole) % 4 or len(whole) != len(letters):
        if not raw.rstrip().endswith(b"="):
            remarks.append("part_decode_defect")
        whole += b"=" * (-len(whole) % 4)
    return base64.b64decode(whole)


def _rewritten(message: Mail, remarks: list[str]) -> bytes:
    remarks.append("part_rewritten")
    out = io.BytesIO()
    try:
        BytesGenerator(out, mangle_from_=False, maxheaderlen=0).flatten(message)
    except (*_UNREADABLE, RecursionError):
        remarks.append("part_decode_defect")
    return body_of(out.getvalue())


def _own_text(content: Content, message: Mail, payload: bytes) -> str:
    """A leaf of the body; what no text has in it goes to the antivirus too."""
    if _NO_TEXT.search(payload):
        content.texts.append(payload)
    return _text(message, payload, content.remarks)


def _text(message: Mail, payload: bytes, remarks: list[str]) -> str:
    text, remark = decode(payload, _param(message, "charset"))
    if remark:
        remarks.append(remark)
    text = text.replace("\r\n", "\n")
    if message.get_content_type() == "text/plain" and (_param(message, "format") or "").lower() == "flowed":
        text = unflow(text, delete_space=(_param(message, "delsp") or "").lower() == "yes")
    return text


def _calendar_text(text: str) -> str:
    unfolded = re.sub(r"\r?\n[ \t]", "", text)
    return "\n".join(f"{name}: {value.strip()}" for name, value in _CALENDAR_LINE.findall(unfolded)[:40])


def _raw_field(message: Mail, name: str) -> str:
    return next((str(value) for key, value in message.raw_items() if key.lower() == name), "")


def _field(message: Mail, name: str) -> str:
    return one_line(_raw_field(message, name))


def _disposition(message: Mail) -> str:
    return _field(message, "content-disposition").split(";", 1)[0].strip().lower()


def _declared_type(message: Mail) -> str:
    try:
        return one_line(message.get_content_type())[:200]
    except _UNREADABLE:
        return "application/octet-stream"


def _param(message: Mail, name: str, header: str = "content-type") -> str | None:
    """Return one parameter of a header; RFC 2231 pieces are joined in numeric order, encoded words decoded."""
    raw = _raw_field(message, header)
    if name not in raw.lower():
        return None
    # A copy of the header with its 8-bit bytes already decoded: the parser's own answer has lost them.
    copy = Mail()
    try:
        copy[header] = raw_header_text(raw)
        value = copy.get_param(name, header=header)
    except _UNREADABLE:
        return None
    if not isinstance(value, tuple):
        return None if value is None else decode_words(str(value))
    charset, _, text = value  # percent-decoded bytes as Latin-1, unless the text had other characters to begin with
    try:
        return decode(str(text).encode("latin-1"), charset)[0]
    except UnicodeEncodeError:
        return clean_text(str(text))


def part_name(message: Mail) -> str | None:
    """Return the name a sender gave, as data and never as a path: one line, no folders, at most 255 bytes."""
    return safe_name(_param(message, "filename", "content-disposition") or _param(message, "name") or "")


def safe_name(given: str) -> str | None:
    """Return a name as data and never as a path, or None where nothing of it is left."""
    name = re.split(r"[/\\]", one_line(given))[-1].strip()
    if name.strip(". ") == "":
        return None
    return _shortened(clean_text(name), 255)


def _shortened(name: str, limit: int) -> str:
    if len(name.encode()) <= limit:
        return name
    stem, dot, ending = name.rpartition(".")
    ending = f".{ending}" if dot and len(ending) <= 10 else ""
    stem = stem if ending else name
    return stem.encode()[: limit - len(ending.encode())].decode("utf-8", "ignore") + ending
