"""Mails and settings made to reach somebody who is not of the team, generated from a number: the same ones each time.

``allowed`` says who may get a mail under a case's settings, by a reading of its own: only a bare address of the list, in a
domain of the list, both as they are written. What a server receives is held against that.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.errors import MessageError
from email.message import EmailMessage

from atlas_pipeline.errors import AtlasError
from atlas_pipeline.recap.compose import compose
from atlas_pipeline.recap.send import MailExit, send
from tests.fixtures_recap import DOMAINS, FROM, MESSAGE_ID, TEAM, recap_facts

CLIENT = "claire.lorme@menuiserie-lorme.example"
STRANGERS = (CLIENT, "x@evil.example", "lea.martin@evil.example", "autre@atelier-rivage.example")
_LOOK_ALIKES = str.maketrans({"a": "а", "e": "е", "i": "і", "o": "ο", "l": "ӏ", "r": "г"})
HEADERS = (
    "To",
    "Cc",
    "Bcc",
    "Resent-To",
    "Resent-Cc",
    "Resent-Bcc",
    "Reply-To",
    "Errors-To",
    "Disposition-Notification-To",
)


@dataclass(frozen=True)
class Case:
    """One mail, the envelope's settings, and how it was made."""

    kind: str
    message: EmailMessage
    team_domains: tuple[str, ...]
    team_recipients: tuple[str, ...]

    @property
    def allowed(self) -> frozenset[str]:
        """Who may get it."""
        return frozenset(
            name.lower()
            for name in self.team_recipients
            if name.lower() in TEAM
            and name.rpartition("@")[2].lower() in {domain.lower() for domain in self.team_domains}
        )


def _encoded(text: str, chance: random.Random) -> str:
    if chance.random() < 0.5:
        return f"=?utf-8?q?{''.join(f'={byte:02X}' for byte in text.encode())}?="
    return f"=?utf-8?b?{base64.b64encode(text.encode()).decode()}?="


def _mangled(address: str, chance: random.Random) -> str:
    """One team address, written so that two readers might see two people."""
    local, _, domain = address.rpartition("@")
    other = chance.choice(STRANGERS)
    tricks: list[Callable[[], str]] = [
        lambda: address,
        address.upper,
        lambda: other,
        lambda: f"{local}@{chance.choice(('sub.', 'evil.', 'xn--', '-', '.'))}{domain}",
        lambda: f"{local}@{domain}{chance.choice(('.evil.example', '.', '..', 'x', '%2eevil', ':25', '/x'))}",
        lambda: f"{local}@evil-{domain}",
        lambda: f"{local}@{domain}@evil.example",
        lambda: f"{local}@evil.example@{domain}",
        lambda: f"{local}%evil.example@{domain}",
        lambda: f"evil.example!{local}@{domain}",
        lambda: f"@evil.example:{address}",
        lambda: f"@evil.example,@{domain}:{other}",
        lambda: f'"{address}" <{other}>',
        lambda: f'"{other}" <{address}>',
        lambda: f"{address} <{other}>",
        lambda: f"<{address}> <{other}>",
        lambda: f"<{address}",
        lambda: f"{other} ({address})",
        lambda: f"{local}({other})@{domain}",
        lambda: f"({address}){other}",
        lambda: f"team: {address}, {other};",
        lambda: f"undisclosed-recipients:; {other}",
        lambda: f"team:{other};{address}",
        lambda: f"{address};{other}",
        lambda: f"{address},{other}",
        lambda: f"{address} {other}",
        lambda: f"{address}\t{other}",
        lambda: f'"{local}"@{domain}',
        lambda: f'"{other},"@{domain}',
        lambda: f'"x\\"{local}"@{domain}',
        lambda: f'"{address}>,<{other}"@{domain}',
        lambda: address.translate(_LOOK_ALIKES),
        lambda: f"{local}@{domain.translate(_LOOK_ALIKES)}",
        lambda: f"{local}@{domain.replace('.', '。')}",
        lambda: f"{address[:5]}{chance.choice(chr(0x200B) + chr(0xAD) + chr(0x202E) + chr(0xFEFF))}{address[5:]}",
        lambda: _encoded(address, chance),
        lambda: _encoded(other, chance),
        lambda: f"{_encoded(f'{address}>, <{other}', chance)} <{address}>",
        lambda: f"=?utf-8?q?x=0ABcc:_{other}?= <{address}>",
        lambda: f"{address}\n {other}",
        lambda: f"{address},\n {other}",
        lambda: f"{address}\r\nBcc: {other}",
        lambda: f"{address}\nBcc: {other}",
        lambda: f"{address}\rBcc: {other}",
        lambda: f"{address}\x00{other}",
        lambda: f"{address}\x0b,{other}",
        lambda: f"{local}@[192.0.2.{chance.randrange(256)}]",
        lambda: f"{local}+{chance.randrange(99)}@{domain}",
        lambda: f"{address}> SIZE=1\r\nRCPT TO:<{other}",
        lambda: "".join(
            chance.choices([*TEAM, other, *'@<>",;:()\\ \n\r\t=?.', "é", "\u202e"], k=chance.randrange(1, 6))
        ),
    ]
    return chance.choice(tricks)()


def _settings(chance: random.Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Mostly the right ones; else with a slip of the pen, or nothing."""
    if chance.random() < 0.7:
        return DOMAINS, TEAM
    domain = DOMAINS[0]
    domains = chance.choice(
        [(), ("",), (f"@{domain}",), (f"*.{domain}",), ("*",), ("example",), (f"{domain}.",), (f"{domain} ",), (domain.upper(),),
         (domain[:-1],), (f"{domain},evil.example",), (f"https://{domain}",), ("evil.example",), DOMAINS]
    )  # fmt: skip
    recipients = chance.choice(
        [(), ("",), ("*",), (f"*@{domain}",), (f"Léa <{TEAM[0]}>",), (f"{TEAM[0]};{CLIENT}",), (f"{TEAM[0]} ",), (f"{TEAM[0]}\n",),
         (TEAM[0].upper(),), (TEAM[0],), (domain,), (f"@{domain}",), (CLIENT,), TEAM]
    )  # fmt: skip
    return domains, recipients


def _from_bytes(heads: list[tuple[str, str]]) -> EmailMessage:
    """As it reads from the wire, the writing side of the library never asked."""
    head = "".join(f"{name}: {value}\n" for name, value in heads)
    raw = f"From: {FROM}\nMessage-ID: {MESSAGE_ID}\n{head}\nx\n".encode("utf-8", "surrogateescape")
    mail = message_from_bytes(raw, policy=policy.default)
    assert isinstance(mail, EmailMessage)
    return mail


def _from_values(heads: list[tuple[str, str]], kind: policy.Policy) -> EmailMessage | None:
    """As a program sets them; None where the library refuses, which is a refusal too."""
    mail = EmailMessage(policy=kind)
    try:
        mail["From"], mail["Message-ID"] = FROM, MESSAGE_ID
        for name, value in heads:
            mail[name] = value
        mail.set_payload("x\n")
    except (
        ValueError,
        IndexError,
        AttributeError,
        TypeError,
        MessageError,
    ):  # what CPython's header parser raises of such text
        return None
    return mail


def _composed(recipients: tuple[str, ...], subject: str) -> EmailMessage | None:
    """As the house itself makes it, its recipients setting being what it is."""
    try:
        return compose(
            recap_facts(subject=subject, summary=subject),
            mail_from=FROM,
            recipients=recipients,
            message_id=MESSAGE_ID,
            in_reply_to=subject,
        )
    except AtlasError:
        return None


def hostile_cases(count: int, seed: int = 8) -> Iterator[Case | None]:
    """So many cases; None for one that the library or the composer refused to make."""
    for number in range(count):
        chance = random.Random(f"{seed}-{number}")  # noqa: S311  # the same cases each time
        domains, recipients = _settings(chance)
        heads = [("To", chance.choice(TEAM) if chance.random() < 0.5 else _mangled(chance.choice(TEAM), chance))]
        heads += [
            (chance.choice(HEADERS), _mangled(chance.choice(TEAM), chance))
            for _ in range(chance.choice((0, 0, 1, 1, 2)))
        ]
        way = chance.choice(("bytes", "bytes", "default", "smtp", "compat32", "compose"))
        message: EmailMessage | None
        if way == "bytes":
            message = _from_bytes(heads)
        elif way == "compose":
            asked = tuple(_mangled(chance.choice(TEAM), chance) for _ in range(chance.randrange(1, 3)))
            message = _composed(asked if chance.random() < 0.5 else recipients, heads[-1][1])
        else:
            message = _from_values(
                heads, {"default": policy.default, "smtp": policy.SMTP, "compat32": policy.compat32}[way]
            )
        yield Case(way, message, domains, recipients) if message is not None else None


@dataclass
class Tally:
    """What became of the cases."""

    tried: int = 0
    not_made: int = 0
    refused: int = 0
    sent: int = 0

    @property
    def text(self) -> str:
        """One line."""
        return f"{self.tried} tried: {self.not_made} not made, {self.refused} refused, {self.sent} sent"


def try_all(count: int, mail_exit: MailExit, received: list[tuple[str, list[str], bytes]], seed: int = 8) -> Tally:
    """Send every case; whatever the server got is of those who may get it, or AssertionError names the case."""
    tally = Tally()
    for number, case in enumerate(hostile_cases(count, seed)):
        tally.tried += 1
        if case is None:
            tally.not_made += 1
            continue
        before = len(received)
        try:
            send(case.message, mail_exit, team_domains=case.team_domains, team_recipients=case.team_recipients)
            tally.sent += 1
        except AtlasError:
            tally.refused += 1
        for _sender, recipients, content in received[before:]:
            named = {name.lower() for name in recipients}
            assert named <= case.allowed, (number, case.kind, recipients)
            assert not any(name.lower().startswith(b"bcc") for name in content.split(b"\r\n\r\n")[0].split(b"\r\n")), (
                number
            )
        received.clear()
    return tally
