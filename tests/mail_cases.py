"""The public mails beside what their manifest states of them: which facts agree with ours, and which do not.

Used by the corpus test and by the benchmark. Compared is what Atlas says of a mail and the manifest states in terms that can be
compared; the number of MIME parts, say, is counted differently by each parser.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import ParsedMail

SETS = (
    "mime_cpython", "mime_stalwart", "mime_imap_tools", "mime_webklex", "mime_django_mailbox", "mime_spamscope", "mime_mime4j",
    "tnef_tnefparse", "synthetic/mime",
)  # fmt: skip
_WINMAIL = (
    b"From: a@b.example\r\nMIME-Version: 1.0\r\nContent-Type: application/ms-tnef; name=winmail.dat\r\n"
    b"Content-Transfer-Encoding: base64\r\n\r\n"
)


@dataclass(frozen=True)
class Fact:
    """One stated value beside ours."""

    path: str
    name: str
    expected: Any
    found: Any

    @property
    def agrees(self) -> bool:
        """Whether both are equal."""
        return bool(self.expected == self.found)

    @property
    def set_(self) -> str:
        """Which set the mail belongs to."""
        return next(name for name in SETS if self.path.startswith(f"{name}/"))


def cases(corpus: Path) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Path, bytes and stated values of every mail; a bare TNEF file stands in the mail that it would come in."""
    for line in (corpus / "manifest.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        path: str = row["path"]
        if path.startswith(tuple(f"{name}/" for name in SETS)):
            raw = (corpus / path).read_bytes()
            yield path, _WINMAIL + base64.encodebytes(raw) if path.startswith("tnef_") else raw, row["expected"]


def compare(path: str, mail: ParsedMail, expected: dict[str, Any]) -> Iterator[Fact]:
    """Every stated value that can be compared."""
    for name, (read, normal) in _READINGS.items():
        if expected.get(name) is not None:
            yield Fact(path, name, normal(expected[name]), read(mail))


def _words(text: object) -> str:
    return " ".join(str(text or "").replace("\\r\\n", " ").split())


def _names(names: list[str | None] | None) -> list[str]:
    # Some state a part's name twice (as its name and as its file's); a path is no part of a name of ours.
    return sorted({re.split(r"[/\\\\]", _words(name))[-1] for name in names or [] if name})


def _own_names(mail: ParsedMail) -> list[str]:
    return _names([part.name for part in mail.parts if part.name != "winmail.dat"])


def _moment(text: str) -> str | None:
    moment = datetime.fromisoformat(text)
    if moment.year == 1900:  # how imap_tools says that there is no readable date
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def _files(files: list[dict[str, Any]]) -> list[str]:
    # An attached mail is compared by its name alone: others write it anew, we keep the bytes.
    return sorted(
        _words(file["filename"]) + ("" if file["content_type"].startswith("message/") else f" {file['sha256'][:12]}")
        for file in files
    )


def _own_files(mail: ParsedMail) -> list[str]:
    return sorted(
        _words(part.name) + ("" if part.sniffed_type == "message/rfc822" else f" {part.sha256[:12]}")
        for part in mail.parts
    )


def _same(value: Any) -> Any:
    return value


# What the manifest calls it: how ours is read, and how theirs is written to be compared.
_READINGS: dict[str, tuple[Callable[[ParsedMail], Any], Callable[[Any], Any]]] = {
    "subject": (lambda mail: _words(mail.subject), _words),
    "from": (
        lambda mail: mail.sender.address,
        lambda value: value[0] if isinstance(value, list) and value else value or None,
    ),
    "date": (lambda mail: mail.date.astimezone(UTC).isoformat() if mail.date else None, _moment),
    "date_utc": (lambda mail: mail.date.astimezone(UTC).isoformat() if mail.date else None, _moment),
    "text": (lambda mail: _words(mail.body_text), _words),
    "text_contains": (
        lambda mail: mail.body_text,
        lambda wanted: _Holding(tuple(wanted) if isinstance(wanted, list) else (wanted,)),
    ),
    "text_lacks": (lambda mail: mail.body_text, lambda words: _Lacking(tuple(words))),
    "text_unwrapped": (lambda mail: mail.body_text, lambda words: _Holding((words,))),
    "stuffed_line": (lambda mail: mail.body_text, lambda words: _Holding((words,))),
    "summary": (lambda mail: mail.body_text, lambda words: _Holding((words,))),
    "message_id": (lambda mail: mail.message_id, _same),
    "original_from": (lambda mail: mail.forward.sender.address, _same),
    "original_subject": (lambda mail: mail.forward.subject, _same),
    "attachments": (_own_files, _files),
    "attachment_names": (_own_names, _names),
    "filenames": (_own_names, _names),
    "filenames_stdlib": (_own_names, _names),
    "n_attachments": (lambda mail: len(mail.parts), _same),
    "body_kind": (
        lambda mail: "html" if mail.body_html else "text" if mail.body_text.strip() else None,
        lambda kind: "html" if kind == "htmlbody" else "text",
    ),
}


@dataclass(frozen=True)
class _Holding:
    words: tuple[str, ...]

    def __eq__(self, text: object) -> bool:
        return all(re.sub(r"\s+", " ", word) in _words(text) for word in self.words)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class _Lacking:
    words: tuple[str, ...]

    def __eq__(self, text: object) -> bool:
        return not any(word in str(text) for word in self.words)

    __hash__ = None  # type: ignore[assignment]


def all_facts(corpus: Path) -> Iterator[Fact]:
    """Parse everything and compare."""
    for path, raw, expected in cases(corpus):
        yield from compare(path, parse(raw), expected)
