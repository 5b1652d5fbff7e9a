"""Screenshots as people send them, drawn in Chromium from known lines, and photographs of them. The lines are what is to be read."""

from __future__ import annotations

import html
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass

from PIL import Image, ImageChops, ImageDraw, ImageFilter
from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"


@dataclass(frozen=True)
class Screen:
    """One picture: its kind, its bytes, the lines on it."""

    kind: str
    name: str
    image: bytes
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)


_ERROR = {
    "fr": (
        "Erreur 500",
        "Une erreur interne est survenue sur la page Contact.",
        "Le formulaire n'a pas pu être envoyé, veuillez réessayer plus tard.",
        "Référence de l'incident : 8F3A-2217",
        "Si le problème persiste, écrivez à support@lorme.example",
        "Retour à l'accueil",
    ),
    "en": (
        "Error 404",
        "The page you are looking for could not be found.",
        "It may have been moved, renamed or deleted by its owner.",
        "Requested address: /services/kitchen-furniture",
        "Please check the spelling, or go back to the home page.",
        "Contact us at help@lorme.example",
    ),
}
_DIALOG = {
    "fr": (
        "Enregistrer les modifications",
        "Voulez-vous enregistrer les modifications apportées au menu ?",
        "Elles seront perdues si vous quittez cette page maintenant.",
        "Annuler",
        "Enregistrer",
    ),
    "en": (
        "Payment declined",
        "Your card was declined by the bank, and no order was placed.",
        "Try again with another card or contact your bank.",
        "Close",
        "Try again",
    ),
}
_TERMINAL = {
    "fr": (
        "Connexion au serveur de préproduction",
        "Fatal error: Uncaught TypeError in contact.php on line 42",
        "Aucun fichier trouvé dans le dossier images",
        "Échec du déploiement après 3 tentatives",
        "Temps écoulé : 12 secondes",
    ),
    "en": (
        "npm error code ENOENT",
        "npm error path /srv/site/package.json",
        "Error: Cannot find module express",
        "Require stack: server.js, routes.js, index.js",
        "Process exited with status 1",
    ),
}
_CODE = {
    "js": (
        "function sendForm(event) {",
        "const fields = new FormData(event.target);",
        "if (fields.get('email') === null) {",
        "throw new Error('missing address');",
        "return fetch('/contact', {method: 'POST', body: fields});",
    ),
    "python": (
        "def total(orders: list) -> float:",
        "return sum(order.price for order in orders)",
        "class Order:",
        "price = 12.50",
        "raise ValueError('unknown order')",
    ),
}
_MAIL = {
    "fr": (
        "Horaires à corriger sur le site",
        "De : Claire Lorme <claire@lorme.example>",
        "À : Atelier Rivage <atelier@rivage.example>",
        "Bonjour,",
        "Les horaires affichés sur la page d'accueil sont faux depuis lundi.",
        "Nous ouvrons désormais à 9 h 30, du mardi au samedi.",
        "Pourriez-vous les corriger avant vendredi ?",
        "Bien cordialement, Claire",
    ),
    "en": (
        "Broken link in the footer",
        "From: John Carter <john@carter.example>",
        "To: Rivage Studio <studio@rivage.example>",
        "Hello,",
        "The link to our terms of sale in the footer leads nowhere.",
        "Two customers have already complained about it this week.",
        "Could you please have a look at it today?",
        "Kind regards, John",
    ),
}

_SANS, _SERIF, _MONO = "Liberation Sans", "Liberation Serif", "DejaVu Sans Mono"


def _page(
    lines: tuple[str, ...], *, font: str, size: int, ink: str, paper: str, first: float = 1.0, button: str = ""
) -> str:
    head = f"<div style='font-size:{size * first:.0f}px;font-weight:{700 if first > 1 else 400};margin-bottom:{size}px'>{html.escape(lines[0])}</div>"
    last = ""
    rest = lines[1:]
    if button:
        last = "".join(
            f"<span style='display:block;width:max-content;margin-top:{size}px;padding:{size // 2}px {size}px;"
            f"background:{button};color:#fff;border-radius:4px'>{html.escape(line)}</span>"
            for line in rest[-1:]
        )
        rest = rest[:-1]
    body = "".join(f"<div style='margin:{size // 2}px 0;white-space:pre'>{html.escape(line)}</div>" for line in rest)
    return (
        f"<body style='margin:0;background:{paper}'><div id='shot' style='display:inline-block;padding:{2 * size}px {3 * size}px;"
        f'color:{ink};background:{paper};font:{size}px "{font}"\'>{head}{body}{last}</div></body>'
    )


def pages() -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Kind, name, HTML and lines of each screenshot."""
    for tongue in ("fr", "en"):
        error, dialog, terminal, mail = _ERROR[tongue], _DIALOG[tongue], _TERMINAL[tongue], _MAIL[tongue]
        yield (
            "error page",
            f"error {tongue}",
            _page(error, font=_SANS, size=16, ink="#222", paper="#fff", first=2),
            error,
        )
        yield (
            "error page",
            f"error serif {tongue}",
            _page(error, font=_SERIF, size=18, ink="#333", paper="#f4f1ea", first=1.6),
            error,
        )
        yield (
            "dialog",
            f"dialog {tongue}",
            _page(dialog, font=_SANS, size=14, ink="#202124", paper="#fff", first=1.4, button="#1a73e8"),
            dialog,
        )
        yield (
            "terminal",
            f"terminal {tongue}",
            _page(terminal, font=_MONO, size=14, ink="#d0d0d0", paper="#101010"),
            terminal,
        )
        yield (
            "terminal",
            f"terminal green {tongue}",
            _page(terminal, font=_MONO, size=13, ink="#33dd55", paper="#000"),
            terminal,
        )
        yield (
            "dark mode",
            f"dark {tongue}",
            _page(error, font=_SANS, size=15, ink="#e8eaed", paper="#202124", first=1.8),
            error,
        )
        yield (
            "dark mode",
            f"dark mail {tongue}",
            _page(mail, font=_SANS, size=14, ink="#c8ccd0", paper="#17212b", first=1.3),
            mail,
        )
        yield "9 px", f"small {tongue}", _page(error, font=_SANS, size=9, ink="#222", paper="#fff", first=1.4), error
        yield "9 px", f"small mail {tongue}", _page(mail, font=_SANS, size=9, ink="#000", paper="#fff", first=1.3), mail
        yield (
            "mail client",
            f"mail {tongue}",
            _page(mail, font=_SANS, size=15, ink="#1f1f1f", paper="#fff", first=1.5),
            mail,
        )
    for name, (ink, paper) in {"js": ("#24292e", "#ffffff"), "python": ("#d4d4d4", "#1e1e1e")}.items():
        yield "code", f"code {name}", _page(_CODE[name], font=_MONO, size=14, ink=ink, paper=paper), _CODE[name]


def screens(chromium: str = CHROMIUM) -> list[Screen]:
    """Draw them all, and photograph some."""
    drawn: list[Screen] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        for kind, name, markup, lines in pages():
            page.set_content(markup)
            drawn.append(Screen(kind, name, page.locator("#shot").screenshot(), lines))
        browser.close()
    shown = [one for one in drawn if one.kind in ("error page", "mail client", "dialog")]
    drawn += [
        Screen("photo", f"photo of {one.name}", photographed(one.image, seed), one.lines)
        for seed, one in enumerate(shown[:6])
    ]
    return drawn


def photographed(png: bytes, seed: int) -> bytes:
    """A phone's picture of a screen: askew, in perspective, badly lit, soft, noisy, JPEG."""
    chance = random.Random(seed)  # noqa: S311  # the same each time
    screen = Image.open(io.BytesIO(png)).convert("RGB")
    wide = screen.resize((screen.width * 2, screen.height * 2), Image.Resampling.BICUBIC)
    margin = wide.height // 6
    table = Image.new("RGB", (wide.width + 2 * margin, wide.height + 2 * margin), (70, 64, 58))
    table.paste(wide, (margin, margin))
    turned = table.rotate(chance.uniform(-2.5, 2.5), Image.Resampling.BICUBIC, fillcolor=(70, 64, 58))
    width, height = turned.size
    lean = width * chance.uniform(0.005, 0.02)
    quad = (lean, 0, 0, height, width, height - lean / 2, width - lean, lean / 3)
    leaning = turned.transform(turned.size, Image.Transform.QUAD, quad, Image.Resampling.BICUBIC)
    shade = Image.linear_gradient("L").resize(leaning.size).point(lambda value: 150 + value * 105 // 255)
    lit = ImageChops.multiply(leaning, Image.merge("RGB", (shade, shade, shade)))
    noise = Image.effect_noise(lit.size, 18).convert("RGB")
    noisy = ImageChops.add(lit, noise, scale=1.0, offset=-128).filter(ImageFilter.GaussianBlur(1.1))
    out = io.BytesIO()
    noisy.save(out, "JPEG", quality=80)
    return out.getvalue()


def sideways(jpeg: bytes, degrees: int) -> bytes:
    """The picture turned, and nothing that says so."""
    out = io.BytesIO()
    Image.open(io.BytesIO(jpeg)).rotate(degrees, expand=True).save(out, "JPEG", quality=85)
    return out.getvalue()


def error_rate(read: str, written: str) -> float:
    """Edits a character of the written text (Levenshtein), spaces, quotes and dashes made alike."""
    one, two = _alike(read), _alike(written)
    row = list(range(len(two) + 1))
    for number, char in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(two, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (char != other))
    return row[-1] / max(1, len(two))


def _alike(text: str) -> str:
    for char in '\u2018\u2019\u201c\u201d\u00ab\u00bb"`':
        text = text.replace(char, "'")
    for char in "\u2013\u2014\u2212":
        text = text.replace(char, "-")
    return " ".join(text.split())


def blank(width: int, height: int) -> bytes:
    """A picture with nothing to read."""
    out = io.BytesIO()
    picture = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(picture).ellipse((width // 4, height // 4, width // 2, height // 2), fill="#99bbdd")
    picture.save(out, "PNG")
    return out.getvalue()
