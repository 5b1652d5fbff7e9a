"""What the stages hand each other: frozen dataclasses and enums, no behaviour beyond what their own fields decide.

Values that hold content of a mail keep it out of ``repr`` (``field(repr=False)``), since a repr ends up in logs.
All datetimes are timezone-aware. Sizes are bytes, durations milliseconds or seconds as the name says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Intent(StrEnum):
    """What a mail asks for (specification, "Intent enumeration")."""

    RUN = "run"
    CHANTIER = "chantier"
    QUESTION = "question"
    NOISE = "noise"
    NEGOCIATION = "negociation"
    CONSEIL = "conseil"


class Status(StrEnum):
    """Where a message stands; ``atlas.inbox.status`` is the truth. Transitions are in ``store/tracking.py``."""

    RECEIVED = "received"
    CLASSIFIED = "classified"
    SPAWNING = "spawning"
    ACTIONED = "actioned"
    QA_FAILED = "qa_failed"
    ESCALATED = "escalated"
    CLOSED = "closed"
    BLOCKED = "blocked"
    FAILED = "failed"


class Verdict(StrEnum):
    """What the antivirus concluded. Only ``clean`` opens the door; ``error`` is transient and holds the mail."""

    CLEAN = "clean"
    INFECTED = "infected"
    UNSCANNABLE = "unscannable"
    ERROR = "error"


class TrustLevel(StrEnum):
    """Who wrote, as far as it is proven. ``other`` is everyone whose From is not authenticated."""

    FOUNDER = "founder"
    TEAM = "team"
    TENANT_CONTACT = "tenant_contact"
    TENANT_DOMAIN = "tenant_domain"
    PROSPECT = "prospect"
    OTHER = "other"


class Profile(StrEnum):
    """What an agent may do (design, "Rights follow trust")."""

    WRITE = "write"
    READ = "read"
    DRAFT = "draft"


@dataclass(frozen=True)
class Address:
    """A mail address as read from a header or a forward block; either half may be missing."""

    name: str | None = field(default=None, repr=False)
    address: str | None = field(default=None, repr=False)

    @property
    def domain(self) -> str | None:
        """The lower-case domain, or None where there is no address."""
        if not self.address or "@" not in self.address:
            return None
        return self.address.rsplit("@", 1)[1].lower()


@dataclass(frozen=True)
class ListedMail:
    """One mail as a mailbox lists it: no body. ``uid`` is IMAP's UID in decimal, or a Maildir's unique name.

    ``message_id`` is asked for only where known mails have to be found again under new UIDs.
    """

    uid: str
    internal_date: datetime
    size: int
    seen: bool
    message_id: str | None = None


@dataclass(frozen=True)
class Listing:
    """One look at a mailbox. ``uid_next`` is None for a Maildir, whose names have no order; ``more`` is left for the next look."""

    mailbox: str
    uid_validity: int
    uid_next: int | None
    mails: tuple[ListedMail, ...]
    more: bool = False


# Which of these UIDs, under this UIDVALIDITY, were listed before.
Known = Callable[[int, Sequence[str]], Collection[str]]


@dataclass(frozen=True)
class Part:
    """A leaf of the MIME tree that is not the mail's own text: attachment, inline image, attached mail."""

    index: int
    name: str | None = field(repr=False)
    declared_type: str
    sniffed_type: str
    size: int
    sha256: str
    inline: bool
    content: bytes = field(repr=False)

    @property
    def is_image(self) -> bool:
        """Whether the bytes (not the label) are a picture."""
        return self.sniffed_type.startswith("image/")


@dataclass(frozen=True)
class Forward:
    """The mail inside a forward, as claimed by the text; ``found`` False means the mail is no forward.

    ``forwarder`` is who passed it on, where the outer From does not say so (automatic forwarding). ``conflict``: two parts
    of the mail name different senders.
    """

    found: bool
    method: str | None = None
    confidence: float | None = None
    sender: Address = Address()
    subject: str | None = field(default=None, repr=False)
    date: str | None = None
    body: str | None = field(default=None, repr=False)
    forwarder: Address = Address()
    conflict: bool = False


@dataclass(frozen=True)
class ParsedMail:
    """As much as the parser could understand; ``remarks`` are codes for the rest.

    ``fingerprint`` is the sha256 (hex) over Date, From, Subject, Message-ID and the decoded parts, so that trace headers do
    not make one mail two. ``automatic`` names why a mail was written by a machine (``auto_submitted``, ``precedence``,
    ``null_return_path``, ``report``, ``own_message``), or is None. ``texts`` are decoded leaves of the body that hold more than
    text; ``read_whole`` is False where there are parts that were not reached.
    """

    message_id: str | None = field(repr=False)
    fingerprint: str
    sender: Address
    recipients: tuple[Address, ...]
    subject: str | None = field(repr=False)
    date: datetime | None
    body_text: str = field(repr=False)
    body_html: str | None = field(repr=False)
    parts: tuple[Part, ...]
    forward: Forward
    authentication_results: tuple[str, ...] = field(repr=False)
    strict_sender: bool
    automatic: str | None
    headers: dict[str, list[str]] = field(repr=False)
    remarks: tuple[str, ...] = ()
    texts: tuple[bytes, ...] = field(default=(), repr=False)
    read_whole: bool = True


@dataclass(frozen=True)
class Trust:
    """How far the outer From is believed, and why (a code)."""

    level: TrustLevel
    reason: str

    @property
    def authenticated(self) -> bool:
        """Whether the From is proven at all."""
        return self.level is not TrustLevel.OTHER


@dataclass(frozen=True)
class Tenant:
    """A client of the agency, as the topology table describes it."""

    slug: str
    name: str
    active: bool
    internal: bool
    domains: tuple[str, ...]
    contacts: tuple[str, ...] = field(repr=False)
    zones: tuple[str, ...] = ()
    repository: str | None = None
    branch: str = "main"
    preprod_url: str | None = None
    deploy_command: tuple[str, ...] = ()
    default_routes: tuple[str, ...] = ("/",)
    version_route: str | None = None
    # Hosts that its pages may ask besides the site; where its commits can be read, the commit's name appended.
    allowed_hosts: tuple[str, ...] = ()
    commit_url: str | None = None
    # Which provider and model write this client's texts; read by ``ai.gateway.resolve_tenant_ai``.
    ai_config: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class ScanResult:
    """One verdict on one run of bytes. ``signature`` names what was found, ``code`` says why there is no clean or infected."""

    verdict: Verdict
    signature: str | None = None
    code: str | None = None
    milliseconds: int = 0


class AnswerFormat(StrEnum):
    """How an answer in JSON is asked for: by its schema, as any object, or by words alone."""

    SCHEMA = "schema"
    OBJECT = "object"
    TEXT = "text"


@dataclass(frozen=True)
class CompletionRequest:
    """One question to a language model.

    ``document`` is the bare text to judge, for providers that read no prompt. ``schema`` (JSON Schema) says that the answer is an
    object like this; ``answer_format`` overrides the provider's own way of asking for it. ``temperature`` None is the model's own.
    ``message_key`` is the message that the call is made for, where there is one: its budget pays.
    """

    task: str
    system: str = field(repr=False)
    prompt: str = field(repr=False)
    document: str = field(default="", repr=False)
    schema: Mapping[str, object] | None = field(default=None, repr=False)
    answer_format: AnswerFormat | None = None
    max_tokens: int = 1024
    temperature: float | None = 0.0
    message_key: str | None = None


@dataclass(frozen=True)
class Completion:
    """What a model answered. ``model`` is ``provider/model`` and names who really answered."""

    content: str = field(repr=False)
    provider: str
    model: str
    tokens_in: int | None
    tokens_out: int | None
    milliseconds: int
    finish_reason: str | None = None


@dataclass(frozen=True)
class Embeddings:
    """Vectors of one model; ``vectors[i]`` belongs to text i, all of one dimension."""

    model: str
    vectors: list[list[float]] = field(repr=False)
    tokens: int | None = None


@dataclass(frozen=True)
class Decision:
    """The classifier's conclusion after all guards. ``guards`` are the audit actions that fired, in order."""

    intent: Intent
    classifier_intent: Intent
    confidence: float
    model: str
    reasoning: str = field(repr=False)
    guards: tuple[str, ...]
    uncertain: bool
    prompt_version: str
    tenant: str | None


@dataclass(frozen=True)
class Contract:
    """The agent's result file after validation; ``problems`` are codes for what in it was not believed."""

    status: str
    tenant: str | None
    routes: tuple[str, ...]
    commits: tuple[str, ...]
    summary: str = field(repr=False)
    draft_reply: str = field(repr=False)
    intent: Intent | None
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the agent says that it finished and the file could be believed."""
        return self.status == "ok"


@dataclass(frozen=True)
class SpawnResult:
    """How one agent process ended. ``ok`` only with exit 0, a result event, ``is_error`` false and no time-out."""

    ok: bool
    code: str
    exit_status: int | None
    signal: int | None
    seconds: float
    events: int
    result_seen: bool
    cost_usd: float | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cache_read: int | None = None
    turns: int | None = None
    denials: int = 0


@dataclass(frozen=True)
class DeployResult:
    """One run of a tenant's deploy command."""

    ok: bool
    code: str
    exit_status: int | None
    seconds: float
    commit: str | None
    output_tail: str = field(repr=False, default="")


@dataclass(frozen=True)
class RouteCheck:
    """One route looked at on one level (``http`` or ``browser``); ``errors`` are sentences an agent can act on.

    ``screenshot`` and ``phone_screenshot`` are paths of PNG files, at the width of a desk and at that of a phone.
    """

    route: str
    level: str
    ok: bool
    status: int | None
    milliseconds: int
    errors: tuple[str, ...] = ()
    screenshot: str | None = None
    phone_screenshot: str | None = None


@dataclass(frozen=True)
class QaResult:
    """All checks of one attempt; without any check nothing has passed."""

    checks: tuple[RouteCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether something was checked and every check passed."""
        return bool(self.checks) and all(check.ok for check in self.checks)
