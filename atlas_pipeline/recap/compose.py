"""The recap as a mail: headers, text and HTML with the same facts, screenshots.

Says nothing about where it may go (``guard``) and opens no connection (``send``).

Header values that carry words of a mail are the weak spot. CPython 3.11 and 3.12 decode an encoded word found in a
value that is set, and write the newline inside it as a real header line (CVE-2024-6923). So such words are broken up
before, and what was composed is read back: a mail that has other headers than the ones set here gets a subject of ours.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.headerregistry import Address as HeaderAddress
from email.headerregistry import HeaderRegistry, MessageIDHeader
from email.message import EmailMessage
from email.utils import format_datetime

from atlas_pipeline.errors import NotConfigured, Refused
from atlas_pipeline.recap.facts import RecapFacts, facts_from_json, facts_to_json
from atlas_pipeline.recap.guard import exact_address
from atlas_pipeline.recap.pictures import travelling
from atlas_pipeline.recap.sections import Section, one_line, recap_sections, render_html, render_text
from atlas_pipeline.recap.words import ALERTS, STATUSES, label, pick

__all__ = ["WIRE_POLICY", "RecapFacts", "compose", "compose_alert", "facts_from_json", "facts_to_json"]

MAX_SUBJECT = 150
# A dot-atom id: what servers generate. Odd ids of incoming mails make CPython's parser raise, so they are left out.
_MESSAGE_ID = re.compile(r"<[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,200}@[A-Za-z0-9.-]{1,200}>", re.ASCII)
_KEY = re.compile(r"[0-9]{8}-[0-9]{6,12}", re.ASCII)


def _registry() -> HeaderRegistry:
    """As the standard one, but a long id is not folded into an encoded word: that would break threads."""
    registry = HeaderRegistry()
    for name in ("in-reply-to", "references"):
        # The stubs want a BaseHeader here; the registry itself mixes one in.
        registry.map_to_type(name, MessageIDHeader)  # type: ignore[arg-type]
    return registry


WIRE_POLICY = policy.SMTP.clone(header_factory=_registry())


def compose(
    facts: RecapFacts,
    *,
    mail_from: str,
    recipients: Sequence[str],
    message_id: str,
    in_reply_to: str | None,
    now: datetime | None = None,
) -> EmailMessage:
    """The recap of a message that is finished or escalated.

    ``message_id`` is ours and fixed per notification (so that a repeat is recognised); ``in_reply_to`` is the forwarded
    mail's and left out when it is not a plain id. Reads the screenshots. Raises NotConfigured
    ``mail_from_not_configured`` and Refused ``message_id_invalid``, ``message_key_invalid``, ``recipients_missing``,
    ``recipient_not_team``.
    """
    _check(facts.message_key, mail_from, recipients, message_id)
    pictures = travelling(facts.pictures, facts.message_key)
    title = f"{pick(STATUSES[facts.status], facts.language)} – {one_line(facts.subject) or facts.message_key}"
    message = _message(
        title=title,
        plain_title=str(facts.status),
        key=facts.message_key,
        sections=recap_sections(facts, [shown for shown, _content in pictures]),
        language=facts.language,
        mail_from=mail_from,
        recipients=recipients,
        message_id=message_id,
        in_reply_to=in_reply_to,
        now=now,
    )
    page = message.get_body(("html",))
    for shown, content in pictures:
        # Beside the page that shows them; a reader of the text alone finds them as attached files.
        assert isinstance(page, EmailMessage)  # noqa: S101  # made above
        page.add_related(content, "image", "jpeg", cid=f"<{shown.cid}>", filename=shown.name, disposition="inline")
    return message


def compose_alert(
    *,
    code: str,
    detail: Mapping[str, str | float | bool | None],
    language: str,
    mail_from: str,
    recipients: Sequence[str],
    message_id: str,
    now: datetime | None = None,
) -> EmailMessage:
    """A short operational alarm, or its all-clear: a code and its facts (numbers, enums, names). Raises as ``compose``.

    A code that ``words.ALERTS`` knows is told in a sentence; of any other the code and the facts are shown.
    """
    safe = {one_line(name, 60): one_line(str(value), 200) for name, value in sorted(detail.items())}
    known = ALERTS.get(code)
    title = pick(known[0], language) if known else f"{label('alert', language)} – {one_line(code, 100)}"
    told = pick(known[1], language).format_map(defaultdict(lambda: "–", safe)) if known else one_line(code, 100)
    sections = [Section(title if known else label("alert", language), (told,))]
    if safe:
        sections.append(Section(label("detail", language), tuple(f"{name} = {value}" for name, value in safe.items())))
    return _message(
        title=title,
        plain_title=label("alert", language),
        key=None,
        sections=sections,
        language=language,
        mail_from=mail_from,
        recipients=recipients,
        message_id=message_id,
        in_reply_to=None,
        now=now,
    )


def _message(
    *,
    title: str,
    plain_title: str,
    key: str | None,
    sections: list[Section],
    language: str,
    mail_from: str,
    recipients: Sequence[str],
    message_id: str,
    in_reply_to: str | None,
    now: datetime | None,
) -> EmailMessage:
    _check(key, mail_from, recipients, message_id)
    message = EmailMessage(policy=WIRE_POLICY)
    message["From"] = HeaderAddress("Atlas", addr_spec=mail_from)
    message["To"] = ", ".join(recipients)
    message["Subject"] = subject_line(title)
    message["Date"] = format_datetime(now or datetime.now(UTC))
    message["Message-ID"] = message_id
    if in_reply_to and _plain_id(in_reply_to):
        message["In-Reply-To"] = in_reply_to.strip()
        message["References"] = in_reply_to.strip()
    message["Auto-Submitted"] = "auto-generated"
    message["X-Auto-Response-Suppress"] = "All"
    if key is not None:
        message["X-Atlas-Key"] = key
    if not headers_survive(message):
        message.replace_header("Subject", f"[Atlas] {plain_title}")
    footer = label("footer", language)
    # Quoted-printable keeps lines of any length and servers without 8BITMIME or SMTPUTF8 out of trouble.
    message.set_content(render_text(sections, footer), cte="quoted-printable")
    message.add_alternative(render_html(sections, footer, language), subtype="html", cte="quoted-printable")
    return message


def _check(key: str | None, mail_from: str, recipients: Sequence[str], message_id: str) -> None:
    if exact_address(mail_from) is None:
        raise NotConfigured("mail_from_not_configured")
    if not recipients:
        raise Refused("recipients_missing")
    if any(exact_address(recipient) is None for recipient in recipients):
        raise Refused("recipient_not_team")
    if not _plain_id(message_id):
        raise Refused("message_id_invalid")
    if key is not None and not _KEY.fullmatch(key):
        raise Refused("message_key_invalid")


def _plain_id(value: str) -> bool:
    return bool(_MESSAGE_ID.fullmatch(value.strip())) and "=?" not in value and ".." not in value


def subject_line(title: str) -> str:
    """``[Atlas] …`` on one line, with nothing in it that a header parser would take for an encoded word."""
    return "[Atlas] " + one_line(one_line(title, MAX_SUBJECT).replace("=?", "= ?"), MAX_SUBJECT)


def headers_survive(message: EmailMessage) -> bool:
    """Whether what is written to the wire reads back as exactly the headers that were set."""
    before = [name for name, _ in message.raw_items()]
    again = message_from_bytes(message.as_bytes(policy=WIRE_POLICY), policy=policy.compat32)
    subject_back = message_from_bytes(message.as_bytes(policy=WIRE_POLICY), policy=policy.default)["Subject"]
    return before == [name for name, _ in again.raw_items()] and not again.defects and "\n" not in str(subject_back)
