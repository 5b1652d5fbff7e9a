"""From bytes to text: charsets that lie, encoded words, format=flowed. Nothing here raises.

Not here: what a database refuses (``atlas_pipeline.text``), HTML (``mailbox/html.py``).
"""

from __future__ import annotations

import base64
import binascii
import codecs
import quopri
import re

from atlas_pipeline.text import clean_text

_CHARSET = re.compile(r"[A-Za-z0-9_.:+-]{1,40}")
# Codecs that are no charsets: quadratic (idna, punycode), or they interpret the text (escapes warn on odd input).
_NOT_CHARSETS = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "mbcs", "oem"}
# What senders write is often a subset of what they use (the browsers' table does the same).
_WIDER = {"iso8859-1": "cp1252", "ascii": "utf-8", "gb2312": "gb18030", "gbk": "gb18030", "euc_kr": "cp949"}

_ENCODED_WORD = re.compile(r"=\?([^?\s]{1,60})\?([bBqQ])\?([^?]*)\?=")
_BETWEEN_WORDS = re.compile(r"[ \t\r\n]*\Z")


def codec_name(label: str) -> str | None:
    """Return the codec for a charset label (``cp-850`` and ``x-gbk`` are understood), or None where there is none."""
    found = _CHARSET.match(label.strip(" \t'\""))
    if found is None:
        return None
    name = found.group().lower()
    for spelling in (name, name.removeprefix("x-"), name.replace("-", "")):
        try:
            codec = codecs.lookup(spelling)
        except (LookupError, ValueError):
            continue
        # ``_is_text_encoding`` tells utf-8 from zip and base64; bytes.decode asks the same attribute.
        if codec.name in _NOT_CHARSETS or not getattr(codec, "_is_text_encoding", True):
            return None
        return _WIDER.get(codec.name, codec.name)
    return None


def decode(raw: bytes, label: str | None) -> tuple[str, str | None]:
    """Decode by the label, else UTF-8, else Windows-1252; return clean text, and a remark if the label was no help."""
    remark = None
    if label:
        codec = codec_name(label)
        if codec is None:
            remark = "charset_unknown"
        else:
            try:
                return clean_text(raw.decode(codec)), None
            except ValueError:
                remark = "charset_mismatch"
    try:
        return clean_text(raw.decode("utf-8")), remark
    except UnicodeDecodeError:
        return _nearly(raw), remark or "charset_mismatch"


def _nearly(raw: bytes) -> str:
    """Decode what is no UTF-8: as UTF-8 still where few characters are broken (a cut text), else as Windows-1252."""
    text = raw.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    whole = sum(char > "\x7f" for char in text) - broken
    return clean_text(text if whole > broken else raw.decode("cp1252", "replace"))


def raw_header_text(value: str) -> str:
    """Turn a header as the parser keeps it (8-bit bytes as surrogates) into text, UTF-8 first."""
    if value.isascii():
        return value
    return decode(value.encode("utf-8", "surrogateescape"), None)[0]


def _word_bytes(kind: str, text: str) -> bytes:
    if kind in "qQ":
        return quopri.decodestring(text.replace("_", " ").encode("utf-8", "surrogatepass"), header=False)
    letters = re.sub(r"[^A-Za-z0-9+/]", "", text)
    letters = letters[: len(letters) - 1] if len(letters) % 4 == 1 else letters
    try:
        return base64.b64decode(letters + "=" * (-len(letters) % 4))
    except binascii.Error:
        return text.encode("utf-8", "surrogatepass")


def decode_words(value: str) -> str:
    """Decode RFC 2047 words as mail programs show them: anywhere in the text, and split characters joined.

    Neighbouring words of one charset are joined as bytes before they are decoded, since senders cut inside a character.
    """
    text = raw_header_text(value)
    if "=?" not in text:
        return clean_text(text)
    out: list[str] = []
    pending: list[bytes] = []
    charset = ""
    position = 0
    for word in _ENCODED_WORD.finditer(text):
        between = text[position : word.start()]
        label = word.group(1).split("*", 1)[0].lower()  # RFC 2231 allows a language after the charset
        adjacent = bool(pending) and _BETWEEN_WORDS.match(between) is not None
        if pending and not (adjacent and label == charset):
            out.append(decode(b"".join(pending), charset)[0])
            pending = []
        if not adjacent:
            out.append(between)
        charset = label
        pending.append(_word_bytes(word.group(2), word.group(3)))
        position = word.end()
    if pending:
        out.append(decode(b"".join(pending), charset)[0])
    return clean_text("".join(out) + text[position:])


def unflow(text: str, *, delete_space: bool) -> str:
    """Join the soft line breaks of format=flowed (RFC 3676); the quote depth of a line is kept."""
    out: list[list[str]] = []  # pieces of each line: adding to a string again and again is quadratic
    open_depth: int | None = None
    for line in text.split("\n"):
        bare = line.lstrip(">")
        depth = len(line) - len(bare)
        bare = bare.removeprefix(" ")
        soft = bare.endswith(" ") and bare != "-- "
        if soft and delete_space:
            bare = bare[:-1]
        if open_depth == depth and bare != "-- ":
            out[-1].append(bare)
        else:
            out.append([">" * depth + " " if depth else "", bare])
        open_depth = depth if soft else None
    return "\n".join(map("".join, out))
