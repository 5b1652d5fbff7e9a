"""What the classifier may know about one mail. Filled in by the flow; no decision is taken here."""

from __future__ import annotations

from dataclasses import dataclass, field

from atlas_pipeline.model import Forward, Trust


@dataclass(frozen=True)
class ClassifyFacts:
    """One mail, its facts and its text.

    ``has_attachments`` is about real attachments (a signature's logo is none), ``automatic`` is ``ParsedMail``'s.
    ``tenant`` is who the mail is about, if known; ``tenant_of_requester`` the active tenant whose contact or domain the
    requester's address belongs to. ``ocr_text`` lives for one classification and is never kept.
    """

    subject: str | None = field(repr=False)
    body_text: str = field(repr=False)
    forward: Forward
    trust: Trust
    sender_address: str | None = field(default=None, repr=False)
    automatic: str | None = None
    has_attachments: bool = False
    attachment_names: tuple[str, ...] = field(default=(), repr=False)
    ocr_text: str = field(default="", repr=False)
    tenant: str | None = None
    tenant_of_requester: str | None = None
