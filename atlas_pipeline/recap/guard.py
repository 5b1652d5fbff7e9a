"""Team addresses only: the check every outgoing mail passes, or the whole mail is refused. Pure; sends nothing.

The grammar is deliberately narrower than RFC 5322. A recipient header is a list of bare ASCII addresses; display names,
comments, groups, quoted local parts, encoded words and internationalised domains have no use in a mail to the team, and
each of them can make one reader see another address than the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from email import policy
from email.errors import MessageError
from email.message import EmailMessage, Message
from email.parser import BytesHeaderParser

from atlas_pipeline.errors import Refused

# Where a mail goes, and where answers, receipts and bounces to it would go.
RECIPIENT_HEADERS = frozenset({"to", "cc", "bcc", "resent-to", "resent-cc", "resent-bcc", "apparently-to"})
ANSWER_HEADERS = frozenset(
    {
        "reply-to",
        "resent-reply-to",
        "mail-reply-to",
        "mail-followup-to",
        "disposition-notification-to",
        "return-receipt-to",
        "x-confirm-reading-to",
        "errors-to",
    }
)
# Without ! % * / ` |, which RFC 5322 allows: servers of old relay by the first two, and a wild card is a slip of the pen.
_ADDRESS = re.compile(
    r"[A-Za-z0-9#$&'+=?^_{}~-]+(?:\.[A-Za-z0-9#$&'+=?^_{}~-]+)*"
    r"@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*",
    re.ASCII,
)
_FOLD = re.compile(r"\r?\n(?=[ \t])")


def exact_address(text: object) -> str | None:
    """``text`` in lower case when it is one bare ASCII address and nothing else, else None."""
    if not isinstance(text, str) or len(text) > 254 or "=?" in text or not _ADDRESS.fullmatch(text):
        return None
    return text.lower()


def check_recipients(
    message: EmailMessage, envelope: Sequence[str], *, team_domains: Iterable[str], team_recipients: Iterable[str]
) -> list[str]:
    """The envelope's addresses in lower case, each once, when every address of the mail and the envelope is the team's.

    Raises Refused ``recipients_not_configured`` (an allow-list is empty), ``recipients_missing`` (nobody to send to),
    ``recipient_not_team`` (any address that is not, whole mail refused), ``message_not_encodable``.
    """
    allowed = _allowed(team_domains, team_recipients)
    for value in _header_values(message, RECIPIENT_HEADERS | ANSWER_HEADERS):
        _all_team(_split(value), allowed)
    accepted = _all_team(envelope, allowed)
    if not accepted:
        raise Refused("recipients_missing")
    return list(dict.fromkeys(accepted))


def addressed(message: EmailMessage) -> list[str]:
    """Whom the mail's own recipient headers name, as written; judged by ``check_recipients``, not here."""
    names = (name for value in _header_values(message, RECIPIENT_HEADERS) for name in _split(value))
    return list(dict.fromkeys(names))


def _allowed(team_domains: Iterable[str], team_recipients: Iterable[str]) -> frozenset[str]:
    domains = frozenset(domain.lower() for domain in team_domains)
    exact = (exact_address(recipient) for recipient in team_recipients)
    allowed = frozenset(address for address in exact if address and address.rsplit("@", 1)[1] in domains)
    if not allowed:
        raise Refused("recipients_not_configured")
    return allowed


def _all_team(addresses: Iterable[str], allowed: frozenset[str]) -> list[str]:
    accepted = [exact_address(address) for address in addresses]
    team = [address for address in accepted if address in allowed]
    if len(team) != len(accepted):
        raise Refused("recipient_not_team")
    return [address for address in team if address is not None]


def _header_values(message: EmailMessage, names: frozenset[str]) -> Iterator[str]:
    """The values twice: as the object holds them, and as they read back from the bytes that would be sent."""
    try:
        again = BytesHeaderParser(policy=policy.compat32).parsebytes(message.as_bytes())
    except (MessageError, ValueError, LookupError, TypeError, AttributeError):
        raise Refused("message_not_encodable") from None
    views: tuple[Message, ...] = (message, again)
    for view in views:
        for name, value in view.raw_items():
            if name.strip().lower() in names:
                yield str(value)


def _split(value: str) -> list[str]:
    """A header value as a list of candidates; whatever is not a bare address stays as it is and is refused later."""
    return [item.strip(" \t") for item in _FOLD.sub("", value).split(",")]
