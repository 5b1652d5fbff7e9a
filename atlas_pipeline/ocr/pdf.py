"""A PDF as pages: the text that stands in it, and a picture of each page that has none (a scan, a fax)."""

from __future__ import annotations

from collections.abc import Iterator

import pypdfium2
from PIL import Image

from atlas_pipeline.errors import PermanentError

# A scan often carries a stamp or a page number as text; that is not what its pictures say.
TEXT_MIN_CHARS = 25
SIDE_PIXELS = 2300  # A4 at 200 dpi


def pages(content: bytes, remarks: list[str], *, max_pages: int, max_pixels: int) -> Iterator[str | Image.Image]:
    """Yield each of the first pages: its text, or where there is hardly any its picture in grey.

    Behind the last one ``ocr_page_limit`` is appended to ``remarks`` where the document has more.
    Raises PermanentError ``ocr_pdf_unreadable`` (a password among the reasons).
    """
    try:
        document = pypdfium2.PdfDocument(content)
    except (pypdfium2.PdfiumError, ValueError, TypeError):
        raise PermanentError("ocr_pdf_unreadable") from None
    with document:
        for number in range(min(len(document), max_pages)):
            try:
                yield _page(document[number], max_pixels)
            except pypdfium2.PdfiumError:
                raise PermanentError("ocr_pdf_unreadable") from None
        if len(document) > max_pages:
            remarks.append("ocr_page_limit")


def _page(page: pypdfium2.PdfPage, max_pixels: int) -> str | Image.Image:
    text = str(page.get_textpage().get_text_bounded()).replace("\r\n", "\n").strip()
    if len(text) >= TEXT_MIN_CHARS:
        return text
    width, height = page.get_size()
    longest = max(width, height, 1.0)
    scale = min(SIDE_PIXELS / longest, (max_pixels / max(width * height, 1.0)) ** 0.5)
    picture: Image.Image = page.render(scale=scale, grayscale=True).to_pil()
    return picture
