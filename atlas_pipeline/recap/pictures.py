"""Screenshots, made small enough to travel: the top of each page, reduced, and not more of them than a mail can hold.

Mail servers refuse what is larger than some 10 MB, and a page of photographs alone can be 8 MB of PNG. The whole pictures
stay where they are. Which ones are worth showing is decided by who gives them, in their order.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from atlas_pipeline.recap.facts import Picture
from atlas_pipeline.recap.sections import Shown

MAX_PICTURES = 12
MAX_BYTES = 4_000_000  # of all together; base64 makes 5.5 MB of them
MAX_FILE_BYTES, MAX_PIXELS = 30_000_000, 40_000_000
_WIDTHS = {"desk": 800, "phone": 390}
_TALLEST = {"desk": 1.25, "phone": 2.2}  # height by width: about the first two screens
_QUALITY = 80
_PNG = b"\x89PNG\r\n\x1a\n"


def travelling(pictures: Iterable[Picture], key: str) -> list[tuple[Shown, bytes]]:
    """The first pictures that may travel, as JPEG. Files that are gone, no PNG or too large are passed over.

    ``key`` is the message's; it is part of the Content-IDs.
    """
    found: list[tuple[Shown, bytes]] = []
    total = 0
    for picture in pictures:
        content = reduced(Path(picture.path), picture.width)
        if content is None or total + len(content) > MAX_BYTES:
            continue
        total += len(content)
        number = len(found) + 1
        shown = Shown(f"capture-{number:02d}.jpg", f"capture-{number:02d}.{key}@atlas.invalid", picture)
        found.append((shown, content))
        if len(found) == MAX_PICTURES:
            break
    return found


def reduced(path: Path, width: str) -> bytes | None:
    """The top of a PNG file as JPEG, at most as wide as is worth showing; None where it can't be read."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            return None
        content = path.read_bytes()
        if not content.startswith(_PNG) or len(content) < 24:
            return None
        across, down = struct.unpack(">II", content[16:24])
        if not 0 < across * down <= MAX_PIXELS:
            return None
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            top = image.convert("RGB").crop((0, 0, across, min(down, round(across * _TALLEST.get(width, 1.25)))))
        most = _WIDTHS.get(width, 800)
        if top.width > most:
            top = top.resize((most, max(1, round(top.height * most / top.width))), Image.Resampling.LANCZOS)
        written = io.BytesIO()
        top.save(written, "JPEG", quality=_QUALITY, optimize=True)
        return written.getvalue()
    except (OSError, ValueError, SyntaxError):  # gone, unreadable, broken or no path: the recap goes out without it
        return None
