"""The exit tries itself: addresses that must not get a mail, derived from the ones that may, against an exit that sends nothing.

``atlas doctor`` runs it with the settings as they are. It goes through ``send`` as a recap does, so it finds a guard that was
taken out as well as one that a setting has opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage

from atlas_pipeline.errors import AtlasError, Refused
from atlas_pipeline.recap.send import Delivery, send

_OUTSIDE = "atlas-self-test@outside.invalid"


@dataclass
class _Remembering:
    """An exit that opens no connection."""

    reached: list[Sequence[str]] = field(default_factory=list)

    def deliver(self, message: EmailMessage, recipients: Sequence[str]) -> Delivery:
        self.reached.append(recipients)
        return Delivery("self-test", str(message["Message-ID"]), tuple(recipients))

    def check(self) -> None:
        """Nothing to check."""


def prove_exit(*, team_domains: Sequence[str], team_recipients: Sequence[str]) -> int:
    """How many hostile mails were refused, after each of the team's addresses was let through.

    Raises Refused: ``recipients_not_configured`` where nobody may get a mail (nothing leaves, which is safe, but nothing can be
    proven); ``recipient_not_team`` where one of ``team_recipients`` is no bare address in one of ``team_domains``, so that every
    recap would be refused; ``exit_guard_open`` with the ``kind`` of the mail that came through.
    """
    exit_ = _Remembering()
    for recipient in team_recipients or ("",):
        send(_mail(f"To: {recipient}"), exit_, team_domains=team_domains, team_recipients=team_recipients)
    let_through = len(exit_.reached)
    count = 0
    for kind, head in hostile(team_recipients[0].lower()):
        _must_be_refused(kind, head, exit_, team_domains, team_recipients)
        count += 1
    good = f"To: {team_recipients[0]}"
    for kind, domains, recipients in (
        ("empty_allow_list", team_domains, ()),
        ("no_domain", (), team_recipients),
        ("mistyped_domain", tuple(f"{domain}x" for domain in team_domains), team_recipients),
        ("mistyped_recipient", team_domains, tuple(f"{name} <{name}>" for name in team_recipients)),
        ("any_recipient", ("*", "@", "."), ("*", "*@*", "@")),
    ):
        _must_be_refused(kind, good, exit_, domains, recipients)
        count += 1
    if len(exit_.reached) != let_through:
        raise Refused("exit_guard_open", kind="unknown")
    return count


def _must_be_refused(
    kind: str, head: str, exit_: _Remembering, team_domains: Sequence[str], team_recipients: Sequence[str]
) -> None:
    try:
        send(_mail(head), exit_, team_domains=team_domains, team_recipients=team_recipients)
    except AtlasError:
        return
    raise Refused("exit_guard_open", kind=kind)


def _mail(head: str) -> EmailMessage:
    """A mail as it reads from bytes: the writing side of the library would refuse some of these heads by itself."""
    text = f"From: atlas@outside.invalid\nMessage-ID: <self-test@outside.invalid>\n{head}\n\nx\n"
    mail = message_from_bytes(text.encode(), policy=policy.default)
    assert isinstance(mail, EmailMessage)  # noqa: S101  # what this policy makes
    return mail


def hostile(allowed: str) -> Iterator[tuple[str, str]]:
    """(kind, header lines) that each name somebody beside ``allowed``, or it in a way that readers understand differently."""
    local, _, domain = allowed.rpartition("@")
    for kind, address in (
        ("stranger", _OUTSIDE),
        ("other_person", f"x-{local}@{domain}"),
        ("sub_domain", f"{local}@sub.{domain}"),
        ("longer_domain", f"{local}@{domain}.outside.invalid"),
        ("domain_ends_alike", f"{local}@not-{domain}"),
        ("two_at_signs", f"{local}@{domain}@outside.invalid"),
        ("two_at_signs_reversed", f"{local}@outside.invalid@{domain}"),
        ("name_is_an_address", f'"{allowed}" <{_OUTSIDE}>'),
        ("comment", f"{_OUTSIDE} ({allowed})"),
        ("group", f"team: {allowed}, {_OUTSIDE};"),
        ("route", f"@outside.invalid:{allowed}"),
        ("percent", f"{local}%outside.invalid@{domain}"),
        ("quoted_local_part", f'"{local}"@{domain}'),
        ("encoded_word", f"=?utf-8?q?{local}=40outside=2Einvalid?= <{allowed}>"),
        ("look_alike", f"{local}@{domain.replace('e', chr(0x435)).replace('a', chr(0x430))}\u200b"),
        ("punycode", f"{local}@xn--{domain}"),
        ("literal", f"{local}@[192.0.2.1]"),
        ("trailing_dot", f"{allowed}."),
        ("semicolon", f"{allowed};{_OUTSIDE}"),
        ("second_address", f"{allowed}, {_OUTSIDE}"),
        ("tagged", f"{local}+tag@{domain}"),
    ):
        yield kind, f"To: {address}"
    for name in ("To", "Cc", "Bcc", "Resent-To", "Reply-To", "Disposition-Notification-To"):
        yield f"in_{name.lower()}", f"To: {allowed}\n{name}: {_OUTSIDE}"
    yield "nobody", "Subject: x"
