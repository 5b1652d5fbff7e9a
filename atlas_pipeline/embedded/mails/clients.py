"""The MIME shapes of mail clients: what Outlook, Thunderbird, Gmail and Apple Mail make of a text.

Everything is deterministic: boundaries are given, nothing asks a clock or a random source. Lines end with a line feed,
as a delivery agent stores them.
"""

from __future__ import annotations

import base64
import html
import quopri
import textwrap
from collections.abc import Sequence
from email.header import Header

Fields = Sequence[tuple[str, str]]


def mail(fields: Fields, body: bytes) -> bytes:
    """Header fields (already encoded), the empty line, the body. A part of a multipart is the same thing."""
    head = "".join(f"{name}: {value}\n" for name, value in fields)
    return head.encode("ascii") + b"\n" + body


def encoded(text: str, charset: str = "utf-8") -> str:
    """A header value as encoded words where it is not plain ASCII."""
    if text.isascii():
        return text
    return Header(text, charset, maxlinelen=72, header_name="Subject").encode(linesep="\n")


def mailbox(name: str, address: str, charset: str = "utf-8") -> str:
    """``Name <address>`` for a From or To."""
    return f"{encoded(name, charset)} <{address}>"


def quoted(text: str, charset: str) -> bytes:
    """Quoted-printable, the way of clients that send accents."""
    return quopri.encodestring(text.encode(charset))


def base64_lines(content: bytes) -> bytes:
    """Base64 in lines of 76."""
    return base64.encodebytes(content)


def multipart(boundary: str, parts: Sequence[bytes], *, close: bool = True) -> bytes:
    """The parts between boundaries; ``close`` False leaves out the end, as a cut transfer does."""
    opened = b"".join(b"--" + boundary.encode() + b"\n" + one.rstrip(b"\n") + b"\n\n" for one in parts)
    return opened + (b"--" + boundary.encode() + b"--\n" if close else b"")


def paragraphs(text: str, before: str, after: str) -> str:
    """HTML of a text: each line wrapped in the client's own markup."""
    return "\n".join(f"{before}{html.escape(line) or '&nbsp;'}{after}" for line in text.rstrip("\n").split("\n"))


def outlook(text: str, boundary: str) -> tuple[Fields, bytes]:
    """Outlook for Windows: plain and Word's HTML, windows-1252."""
    body = paragraphs(text, '<p class="MsoNormal">', "<o:p></o:p></p>")
    page = (
        '<html xmlns:o="urn:schemas-microsoft-com:office:office"><head><meta http-equiv="Content-Type" '
        'content="text/html; charset=windows-1252"><meta name="Generator" content="Microsoft Word 15">'
        '<style><!-- p.MsoNormal {margin:0cm; font-size:11.0pt; font-family:"Calibri",sans-serif;} --></style></head>'
        f'<body lang="FR"><div class="WordSection1">\n{body}\n</div></body></html>\n'
    )
    return _alternative(boundary), _both(text, page, "windows-1252", boundary)


def gmail(text: str, boundary: str, page: str | None = None) -> tuple[Fields, bytes]:
    """Gmail on the web: plain and a run of divs, UTF-8."""
    page = page or f'<div dir="ltr">{paragraphs(text, "<div>", "</div>")}</div>\n'
    return _alternative(boundary), _both(text, page, "UTF-8", boundary)


def _alternative(boundary: str) -> Fields:
    return (("MIME-Version", "1.0"), ("Content-Type", f'multipart/alternative; boundary="{boundary}"'))


def _both(text: str, page: str, charset: str, boundary: str) -> bytes:
    encoding = ("Content-Transfer-Encoding", "quoted-printable")
    plain = mail((("Content-Type", f'text/plain; charset="{charset}"'), encoding), quoted(text, charset))
    rich = mail((("Content-Type", f'text/html; charset="{charset}"'), encoding), quoted(page, charset))
    return multipart(boundary, [plain, rich])


def thunderbird(text: str) -> tuple[Fields, bytes]:
    """Thunderbird: one flowed text, 8bit, soft line breaks marked by a trailing space."""
    lines = []
    for line in text.rstrip("\n").split("\n"):
        # The signature's separator ends with a space and must not be taken for a soft break.
        wrapped = [line] if line == "-- " else textwrap.wrap(line, 72, break_on_hyphens=False) or [""]
        lines.extend([piece + " " for piece in wrapped[:-1]] + [wrapped[-1]])
    fields = (
        ("MIME-Version", "1.0"),
        ("User-Agent", "Mozilla Thunderbird"),
        ("Content-Language", "fr"),
        ("Content-Type", "text/plain; charset=UTF-8; format=flowed"),
        ("Content-Transfer-Encoding", "8bit"),
    )
    return fields, ("\n".join(lines) + "\n").encode()


def apple_mail(text: str) -> tuple[Fields, bytes]:
    """Apple Mail: one plain text, quoted-printable."""
    fields = (
        ("Content-Type", "text/plain; charset=utf-8"),
        ("Content-Transfer-Encoding", "quoted-printable"),
        ("Mime-Version", "1.0 (Mac OS X Mail 16.0 \\(3774.300.61.1.2\\))"),
        ("X-Mailer", "Apple Mail (2.3774.300.61.1.2)"),
    )
    return fields, quoted(text, "utf-8")
