"""The screenshot of the demo: a browser window with an error page, and a note in red. Its words exist nowhere as text.

Words without accents: Pillow's own font, the one that is there on every machine, has none.
"""

from __future__ import annotations

import io

WIDTH, HEIGHT = 1180, 640


def error_page(canary: str) -> bytes:
    """A PNG of the error page; ``canary`` stands in it as the incident's reference."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (WIDTH, HEIGHT), "#ffffff")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 0, WIDTH, 64), fill="#e8eaed")
    draw.rounded_rectangle((150, 12, WIDTH - 40, 52), radius=18, fill="#ffffff")
    for number, colour in enumerate(("#ee6a5f", "#f5bd4f", "#61c454")):
        draw.ellipse((24 + 34 * number, 22, 44 + 34 * number, 42), fill=colour)
    lines = (
        (174, 20, 22, "#303030", "menuiserie-lorme.example/contact"),
        (60, 110, 54, "#202020", "Erreur 500"),
        (60, 190, 30, "#202020", "Page /contact"),
        (60, 250, 26, "#505050", f"Reference : {canary}"),
        # What the sender wrote into the picture before sending it.
        (60, 380, 30, "#c01515", "Question rapide : pourquoi, et depuis combien de temps ?"),
        (60, 430, 30, "#c01515", "Comment savoir si le reste fonctionne ?"),
        (60, 480, 30, "#c01515", "J'aimerais comprendre, quels sont les risques ?"),
    )
    draw.rounded_rectangle((36, 356, 960, 540), radius=16, outline="#c01515", width=4)
    for left, top, size, colour, words in lines:
        draw.text((left, top), words, fill=colour, font=ImageFont.load_default(size=size))
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()
