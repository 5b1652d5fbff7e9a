"""The demo's mails, in the order they arrive, and what should become of each. Delivering them is ``maildir``'s.

The agency is Atelier Rivage, its client the Menuiserie Lorme. Whoever writes from the agency's or the client's own
domain is authenticated by the receiving server; strangers are by their own domain, or not at all.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import format_datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import yaml

from atlas_pipeline.embedded.clamd import eicar
from atlas_pipeline.embedded.mails import clients
from atlas_pipeline.embedded.mails.picture import error_page
from atlas_pipeline.model import Intent, Status

TEAM_DOMAIN = "atelier-rivage.example"
TEAM_INBOX = f"equipe@{TEAM_DOMAIN}"
FOUNDER = f"lea.martin@{TEAM_DOMAIN}"
MAILBOX = f"atlas@{TEAM_DOMAIN}"
CLIENT = "claire.lorme@menuiserie-lorme.example"
_MINUTES_APART = 7


@dataclass(frozen=True)
class Scene:
    """What differs between two demos. ``start`` (aware) is when the first mail is written."""

    authserv_id: str
    start: datetime
    canary: str = field(repr=False)

    def written(self, mail: DemoMail) -> datetime:
        """When the author pressed "send"; the second delivery of a mail does not change it."""
        position = next(i for i, other in enumerate(DEMO_MAILS) if other.name == (mail.duplicate_of or mail.name))
        return self.start + timedelta(minutes=_MINUTES_APART * position)

    def arrival(self, mail: DemoMail) -> datetime:
        """When it came in."""
        return self.start + timedelta(minutes=_MINUTES_APART * DEMO_MAILS.index(mail), seconds=9)


@dataclass(frozen=True)
class DemoMail:
    """One delivery and its fate.

    ``expected_status`` None: the same mail was here before, there is no tracking row. ``expected_intents`` are those
    that are right, empty where nothing is classified. ``authentication`` is what the receiving server found: ``pass``,
    ``fail`` or ``none``.
    """

    name: str
    sender: str
    author: str
    write: Callable[[str, Scene], tuple[clients.Fields, bytes]]
    expected_status: Status | None
    expected_intents: frozenset[Intent] = frozenset()
    spawns: bool = False
    authentication: str = "pass"
    automatic: bool = False
    duplicate_of: str | None = None

    def raw(self, scene: Scene) -> bytes:
        """The bytes as the receiving server stores them. The same scene gives the same bytes."""
        name = self.duplicate_of or self.name
        more, body = self.write(name, scene)
        fields = [
            *self._trace(scene),
            ("From", clients.mailbox(self.author, self.sender)),
            ("To", clients.mailbox("Atlas", MAILBOX)),
            ("Subject", clients.encoded(_texts()[name]["subject"] if name != "horaires" else "Fwd: Nouveaux horaires")),
            ("Date", format_datetime(scene.written(self))),
            ("Message-ID", f"<{name}.{scene.written(self):%Y%m%d%H%M}@{self.sender.rsplit('@', 1)[1]}>"),
            *more,
        ]
        return clients.mail(fields, body)

    def _trace(self, scene: Scene) -> list[tuple[str, str]]:
        """What servers on the way added: this is all in which two deliveries of one mail differ."""
        domain = self.sender.rsplit("@", 1)[1]
        hop = "mx2" if self.duplicate_of else "mx"
        number = f"{DEMO_MAILS.index(self):02d}A1B7C{hop.upper()}"
        trace = [
            ("Return-Path", "<>" if self.automatic else f"<{self.sender}>"),
            ("Delivered-To", TEAM_INBOX if self.duplicate_of else MAILBOX),
            (
                "Received",
                f"from mail.{domain} (mail.{domain} [192.0.2.{10 + DEMO_MAILS.index(self)}])\n\tby {hop}.{TEAM_DOMAIN} "
                f"(Postfix) with ESMTPS id {number}\n\tfor <{MAILBOX}>; {format_datetime(scene.arrival(self))}",
            ),
        ]
        if self.authentication != "none":
            result = self.authentication
            trace.append(
                (
                    "Authentication-Results",
                    f"{scene.authserv_id};\n\tdmarc={result} header.from={domain};\n\tdkim={result} header.d={domain}",
                )
            )
        return trace


@cache
def _texts() -> dict[str, Any]:
    content = json.loads(files("atlas_pipeline.embedded.site").joinpath("template/content.json").read_text("utf-8"))
    loaded = yaml.safe_load(files("atlas_pipeline.embedded.mails").joinpath("texts.yaml").read_text("utf-8"))
    known = {"{old_phone}": content["telephone"], "{old_hours}": content["horaires"]}
    for entry in loaded.values():
        for name, value in known.items():
            entry["text"] = entry.get("text", "").replace(name, value)
    return dict(loaded)


def _outlook(name: str, _scene: Scene) -> tuple[clients.Fields, bytes]:
    fields, body = clients.outlook(_texts()[name]["text"], "_000_AM9P193MB1234rivage_")
    return [("Thread-Topic", clients.encoded(_texts()[name]["subject"])), ("Accept-Language", "fr-FR"), *fields], body


def _thunderbird(name: str, _scene: Scene) -> tuple[clients.Fields, bytes]:
    return clients.thunderbird(_texts()[name]["text"])


def _gmail(name: str, _scene: Scene) -> tuple[clients.Fields, bytes]:
    return clients.gmail(_texts()[name]["text"], "000000000000f3a1c2062fb0d9e1")


def _apple(name: str, _scene: Scene) -> tuple[clients.Fields, bytes]:
    return clients.apple_mail(_texts()[name]["text"])


def _forward(name: str, scene: Scene) -> tuple[clients.Fields, bytes]:
    """Gmail's forward: the original's sender, date, subject and recipient stand in the text."""
    say = _texts()[name]
    day = f"{scene.start - timedelta(hours=2):%d/%m/%Y à %H:%M}"
    block = (
        f"---------- Forwarded message ---------\nDe : Claire Lorme <{CLIENT}>\nDate: {day}\n"
        f"Subject: {say['subject']}\nTo: Léa Martin <{FOUNDER}>\n"
    )
    # In the HTML the addresses are links, and what was forwarded sits in a quote of its own.
    quoted = clients.paragraphs(say["text"], "<div>", "</div>")
    separator = '<div dir="ltr" class="gmail_attr">---------- Forwarded message ---------<br>'
    head = (
        f'{separator}De : <strong class="gmail_sendername" dir="auto">Claire Lorme</strong> <span dir="auto">&lt;'
        f'<a href="mailto:{CLIENT}">{CLIENT}</a>&gt;</span><br>'
        f"Date: {html.escape(day)}<br>Subject: {html.escape(say['subject'])}<br>"
        f'To: Léa Martin &lt;<a href="mailto:{FOUNDER}">{FOUNDER}</a>&gt;<br></div>'
    )
    page = (
        f'<div dir="ltr">{clients.paragraphs(say["note"], "<div>", "</div>")}<br>'
        f'<div class="gmail_quote">{head}<br><br>{quoted}</div></div>\n'
    )
    return clients.gmail(f"{say['note']}\n{block}\n\n{say['text']}", "000000000000a7706c062fb1244b", page)


def _newsletter(name: str, _scene: Scene) -> tuple[clients.Fields, bytes]:
    """HTML alone, out of a mailing tool."""
    say = _texts()[name]
    rows = "".join(
        f'<tr><td style="padding:16px"><h2>{html.escape(item["title"])}</h2><p>{html.escape(item["text"])}</p>'
        '<a href="https://lettre.hebdo-web.example/lire">Lire la suite</a></td></tr>'
        for item in say["items"]
    )
    page = (
        '<!DOCTYPE html><html><head><meta charset="utf-8"><style>h2{color:#205080}</style></head><body>'
        f'<div style="display:none">{html.escape(say["preheader"])}</div><table width="600" align="center">'
        f"<tr><td><h1>{html.escape(say['subject'])}</h1></td></tr>{rows}"
        f'<tr><td style="font-size:11px">{html.escape(say["footer"])}</td></tr></table>'
        '<img src="https://lettre.hebdo-web.example/o.gif" width="1" height="1" alt=""></body></html>\n'
    )
    fields = (
        ("List-Id", "La lettre du web <lettre.hebdo-web.example>"),
        ("List-Unsubscribe", "<https://lettre.hebdo-web.example/desabonnement?u=7f3a>"),
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
        ("MIME-Version", "1.0"),
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Transfer-Encoding", "quoted-printable"),
    )
    return fields, clients.quoted(page, "utf-8")


def _absence(name: str, _scene: Scene) -> tuple[clients.Fields, bytes]:
    """An Exchange server's automatic reply."""
    fields = (
        ("Auto-Submitted", "auto-replied"),
        ("X-Auto-Response-Suppress", "All"),
        ("MIME-Version", "1.0"),
        ("Content-Type", 'text/plain; charset="utf-8"'),
        ("Content-Transfer-Encoding", "base64"),
    )
    return fields, clients.base64_lines(_texts()[name]["text"].encode())


def _screenshot(_name: str, scene: Scene) -> tuple[clients.Fields, bytes]:
    """Apple Mail: an empty text and a picture in it, named as macOS names screenshots."""
    boundary = "Apple-Mail=_6C1F2B90-77A4-4D0C-9F8E-2E1A5D7C3B10"
    name = quote(f"Capture d’écran {scene.start:%Y-%m-%d} à 09.14.32.png")
    empty = clients.mail(
        (("Content-Transfer-Encoding", "7bit"), ("Content-Type", "text/plain;\n\tcharset=us-ascii")), b"\n\n"
    )
    picture = clients.mail(
        (
            ("Content-Disposition", f"inline;\n\tfilename*=utf-8''{name}"),
            ("Content-Type", f"image/png;\n\tx-unix-mode=0644;\n\tname*=utf-8''{name}"),
            ("Content-Transfer-Encoding", "base64"),
        ),
        clients.base64_lines(error_page(scene.canary)),
    )
    fields = (
        ("Content-Type", f'multipart/mixed;\n\tboundary="{boundary}"'),
        ("Mime-Version", "1.0 (Mac OS X Mail 16.0 \\(3774.300.61.1.2\\))"),
        ("X-Mailer", "Apple Mail (2.3774.300.61.1.2)"),
    )
    return fields, clients.multipart(boundary, [empty, picture])


def _with_virus(name: str, _scene: Scene) -> tuple[clients.Fields, bytes]:
    boundary = "----=_NextPart_000_0042_01DC6A11.5B0D2F70"
    text = clients.mail(
        (("Content-Type", 'text/plain; charset="utf-8"'), ("Content-Transfer-Encoding", "quoted-printable")),
        clients.quoted(_texts()[name]["text"], "utf-8"),
    )
    attached = clients.mail(
        (
            ("Content-Type", 'application/octet-stream; name="facture-2026-1187.com"'),
            ("Content-Transfer-Encoding", "base64"),
            ("Content-Disposition", 'attachment; filename="facture-2026-1187.com"'),
        ),
        clients.base64_lines(eicar()),
    )
    fields = (
        ("MIME-Version", "1.0"),
        ("X-Mailer", "Microsoft Outlook 16.0"),
        ("Content-Type", f'multipart/mixed; boundary="{boundary}"'),
    )
    return fields, clients.multipart(boundary, [text, attached])


def _broken(name: str, _scene: Scene) -> tuple[clients.Fields, bytes]:
    """A charset nobody knows, base64 that is none, and no closing boundary."""
    boundary = "----=_Part_1187_204117.1764580000"
    text = clients.mail(
        (("Content-Type", "text/plain; charset=x-maison-8"), ("Content-Transfer-Encoding", "8bit")),
        _texts()[name]["text"].encode(),
    )
    notes = clients.mail(
        (
            ("Content-Type", 'text/plain; name="notes.txt"'),
            ("Content-Transfer-Encoding", "base64"),
            ("Content-Disposition", 'attachment; filename="notes.txt"'),
        ),
        b"Vmlkw6lvcyA6IDMgc2l0ZXMs!!*IDQyIGZpY2hpZXJz%%%\nLCAxLDggR2\n",
    )
    fields = (("MIME-Version", "1.0"), ("Content-Type", f'multipart/mixed; boundary="{boundary}"'))
    return fields, clients.multipart(boundary, [text, notes], close=False)


_ACTIONABLE = frozenset({Intent.RUN, Intent.CHANTIER, Intent.QUESTION})

DEMO_MAILS: tuple[DemoMail, ...] = (
    DemoMail("run-telephone", CLIENT, "Claire Lorme", _outlook, Status.ACTIONED, frozenset({Intent.RUN}), spawns=True),
    DemoMail(
        "chantier-pages",
        FOUNDER,
        "Léa Martin",
        _thunderbird,
        Status.ACTIONED,
        frozenset({Intent.CHANTIER}),
        spawns=True,
    ),
    DemoMail(
        "question-sauvegardes",
        f"paul.henry@{TEAM_DOMAIN}",
        "Paul Henry",
        _thunderbird,
        Status.ACTIONED,
        frozenset({Intent.QUESTION}),
        spawns=True,
    ),
    DemoMail(
        "newsletter",
        "lettre@hebdo-web.example",
        "La lettre du web",
        _newsletter,
        Status.CLOSED,
        frozenset({Intent.NOISE}),
    ),
    DemoMail(
        "absence",
        "harriet@cole-partners.example",
        "Harriet Cole",
        _absence,
        Status.CLOSED,
        frozenset({Intent.NOISE}),
        automatic=True,
    ),
    DemoMail(
        "negociation-boulangerie",
        "emily@northgate-bakery.example",
        "Emily Norris",
        _gmail,
        Status.ACTIONED,
        frozenset({Intent.NEGOCIATION}),
        spawns=True,
    ),
    # Its author's address must belong to no tenant: the existing-client guard would make a run of it.
    DemoMail(
        "conseil-maquette",
        "marc@galerie-delaunay.example",
        "Marc Delaunay",
        _apple,
        Status.CLOSED,
        frozenset({Intent.CONSEIL}),
        authentication="none",
    ),
    DemoMail("capture", CLIENT, "Claire Lorme", _screenshot, Status.ACTIONED, _ACTIONABLE, spawns=True),
    DemoMail(
        "facture-jointe",
        "comptabilite@fournitures-pro.example",
        "Fournitures Pro",
        _with_virus,
        Status.BLOCKED,
        authentication="fail",
    ),
    # The founder's own address forwards, the client's stands in the body.
    DemoMail("horaires", FOUNDER, "Léa Martin", _forward, Status.ACTIONED, frozenset({Intent.RUN}), spawns=True),
    DemoMail(
        "question-encore",
        f"paul.henry@{TEAM_DOMAIN}",
        "Paul Henry",
        _thunderbird,
        None,
        duplicate_of="question-sauvegardes",
    ),
    DemoMail(
        "structure-cassee",
        f"declan.byrne@{TEAM_DOMAIN}",
        "Declan Byrne",
        _broken,
        Status.ACTIONED,
        frozenset({Intent.QUESTION}),
        spawns=True,
    ),
)
