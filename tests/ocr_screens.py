"""Screenshots as people send them, drawn in Chromium from known lines, and photographs of them. The lines are what is to be read."""

from __future__ import annotations

import html
import io
import random
from collections.abc import Mapping
from dataclasses import dataclass

from PIL import Image, ImageChops, ImageFilter
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


@dataclass(frozen=True)
class Style:
    """How lines are shown. ``first``: how much larger the first one is; ``button``: the colour under the last one."""

    kind: str
    name: str
    texts: Mapping[str, tuple[str, ...]]
    font: str
    size: int
    ink: str
    paper: str
    first: float = 1.0
    button: str = ""

    def page(self, lines: tuple[str, ...]) -> str:
        """The HTML; what is to be photographed has the id ``shot``."""
        size = self.size
        big = f"font-size:{size * self.first:.0f}px;font-weight:{700 if self.first > 1 else 400};margin-bottom:{size}px"
        plain = f"margin:{size // 2}px 0;white-space:pre"
        label = (
            f"display:block;width:max-content;margin-top:{size}px;padding:{size // 2}px {size}px;"
            f"background:{self.button};color:#fff;border-radius:4px"
        )
        styles = [big, *[plain] * (len(lines) - 1)]
        if self.button:
            styles[-1] = label
        body = "".join(
            f"<div style='{style}'>{html.escape(line)}</div>" for style, line in zip(styles, lines, strict=True)
        )
        return (
            f"<body style='margin:0;background:{self.paper}'><div id='shot' style='display:inline-block;"
            f"padding:{2 * size}px {3 * size}px;color:{self.ink};background:{self.paper};"
            f'font:{size}px "{self.font}"\'>{body}</div></body>'
        )


STYLES = (
    Style("error page", "error", _ERROR, _SANS, 16, "#222", "#fff", 2),
    Style("error page", "error serif", _ERROR, _SERIF, 18, "#333", "#f4f1ea", 1.6),
    Style("dialog", "dialog", _DIALOG, _SANS, 14, "#202124", "#fff", 1.4, "#1a73e8"),
    Style("terminal", "terminal", _TERMINAL, _MONO, 14, "#d0d0d0", "#101010"),
    Style("terminal", "terminal green", _TERMINAL, _MONO, 13, "#33dd55", "#000"),
    Style("dark mode", "dark", _ERROR, _SANS, 15, "#e8eaed", "#202124", 1.8),
    Style("dark mode", "dark mail", _MAIL, _SANS, 14, "#c8ccd0", "#17212b", 1.3),
    Style("9 px", "small", _ERROR, _SANS, 9, "#222", "#fff", 1.4),
    Style("9 px", "small mail", _MAIL, _SANS, 9, "#000", "#fff", 1.3),
    Style("mail client", "mail", _MAIL, _SANS, 15, "#1f1f1f", "#fff", 1.5),
    Style("code", "code", {"js": _CODE["js"]}, _MONO, 14, "#24292e", "#fff"),
    Style("code", "code", {"python": _CODE["python"]}, _MONO, 14, "#d4d4d4", "#1e1e1e"),
)


def screens(chromium: str = CHROMIUM) -> list[Screen]:
    """Draw them all, and photograph some."""
    drawn: list[Screen] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        for style in STYLES:
            for tongue, lines in style.texts.items():
                page.set_content(style.page(lines))
                shot = page.locator("#shot").screenshot()
                drawn.append(Screen(style.kind, f"{style.name} {tongue}", shot, lines))
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
