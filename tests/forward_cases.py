"""The public forwards and replies as one kind of case, for the test over them and for the benchmark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.utils import parseaddr
from pathlib import Path
from typing import Any

from atlas_pipeline.mailbox.forwards import find_forward
from atlas_pipeline.mailbox.html import html_to_text
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import Forward

SETS = ("forward_crisp/", "forward_quotequail/", "reply_talon/", "reply_zapier/", "synthetic/mime/fwd_")


@dataclass(frozen=True)
class Case:
    """A mail, or its body with the subject where one is known, and what was in it; None where nothing is stated."""

    path: str
    content: bytes
    subject: str | None
    forwarded: bool
    address: str | None = None
    original_subject: str | None = None
    body: str | None = None

    @property
    def set_name(self) -> str:
        """The set it is counted in: HTML bodies make their own."""
        return self.path.partition("/")[0] + (" html" if self.path.endswith(".html") else "")

    def found(self) -> Forward:
        """Return what the forward function says."""
        if self.path.endswith(".eml"):
            return parse(self.content).forward
        text = self.content.decode("utf-8", "replace")
        is_html = self.path.endswith(".html")
        return find_forward(self.subject, "" if is_html else text, text if is_html else None, ())

    def shown(self) -> tuple[str, str | None]:
        """Return text and subject, for a reader of texts alone."""
        if self.path.endswith(".eml"):
            mail = parse(self.content)
            return mail.body_text, mail.subject
        text = self.content.decode("utf-8", "replace")
        return (html_to_text(text)[0] if self.path.endswith(".html") else text), self.subject


def cases(corpus: Path) -> list[Case]:
    """Return every case of the sets."""
    rows = map(json.loads, (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines())
    return [_case(corpus, row) for row in rows if row["path"].startswith(SETS)]


def _case(corpus: Path, row: dict[str, Any]) -> Case:
    expected = row["expected"]
    subject_path = row.get("subject_path")
    stated = expected.get("original_from") or expected.get("from")
    address = stated.get("address") if isinstance(stated, dict) else parseaddr(stated or "")[1]
    forwarded = expected.get("forwarded", expected.get("type") == "forward" or row["path"].startswith("synthetic/"))
    return Case(
        path=row["path"],
        content=(corpus / row["path"]).read_bytes(),
        subject=(corpus / subject_path).read_text(encoding="utf-8") if subject_path else None,
        forwarded=forwarded,
        address=(address or None) if forwarded else None,
        original_subject=expected.get("original_subject", expected.get("subject")) if forwarded else None,
        body=expected.get("original_body_exact", expected.get("text")) if forwarded else None,
    )
