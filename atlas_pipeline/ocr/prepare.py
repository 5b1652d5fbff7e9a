"""Any picture a mail may hold, turned into the greyscale PNGs tesseract reads best. Limits come before any decoding.

The order of the steps was measured on screenshots, dark ones, 9-pixel fonts and phone photos. No text is read here.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import warnings
from collections.abc import Iterator

from PIL import Image, ImageOps, ImageStat

from atlas_pipeline.errors import AtlasError, PermanentError

# By what the bytes are: one decoder each, so that nothing else of Pillow (EPS starts Ghostscript) meets hostile bytes.
FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/gif": "GIF",
    "image/tiff": "TIFF",
    "image/webp": "WEBP",
    "image/bmp": "BMP",
    "image/x-ms-bmp": "BMP",
    "image/heic": "HEIF",
    "image/heif": "HEIF",
}
PAGED_FORMATS = {"GIF", "TIFF"}
FRAMES_MAX = 5
SIDE_MIN_PIXELS = 32
SMALL_SIDE_PIXELS = 2000
DARK_MEDIAN = 110


def prepare(content: bytes, sniffed_type: str, *, max_pixels: int) -> list[bytes]:
    """PNGs of a picture: one, or one for each of the first frames of a GIF or pages of a TIFF.

    Raises PermanentError: ``ocr_format_unsupported``, ``ocr_image_too_large`` (width times height, from the header),
    ``ocr_image_tiny`` (a side under 32 pixels, as tracking pixels and rulers have), ``ocr_image_unreadable``.
    """
    kind = FORMATS.get(sniffed_type)
    if kind is None or (kind == "HEIF" and not _heif_available()):
        raise PermanentError("ocr_format_unsupported")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # broken EXIF blocks and the like; our own limit is stricter than Pillow's
            with Image.open(io.BytesIO(content), formats=(kind,)) as picture:
                return [_png(_improve(frame)) for frame in _frames(picture, max_pixels)]
    except AtlasError:
        raise
    except Image.DecompressionBombError:
        raise PermanentError("ocr_image_too_large") from None
    except Exception:  # noqa: BLE001 - Pillow answers hostile bytes with errors of a dozen kinds; all mean the same
        raise PermanentError("ocr_image_unreadable") from None


def _heif_available() -> bool:
    """Whether pillow-heif is installed; if so its decoder is known to Pillow afterwards."""
    if importlib.util.find_spec("pillow_heif") is None:
        return False
    importlib.import_module("pillow_heif").register_heif_opener()
    return True


def _frames(picture: Image.Image, max_pixels: int) -> Iterator[Image.Image]:
    """The frames worth reading. Pages of a TIFF have sizes of their own: each is checked before it is decoded."""
    count = FRAMES_MAX if picture.format in PAGED_FORMATS else 1
    for number in range(count):
        if number:
            try:
                picture.seek(number)
            except EOFError:
                return
        if picture.width * picture.height > max_pixels:
            raise PermanentError("ocr_image_too_large")
        if min(picture.size) < SIDE_MIN_PIXELS:
            raise PermanentError("ocr_image_tiny")
        yield picture


def _improve(frame: Image.Image) -> Image.Image:
    """Upright, opaque, grey, dark on light, large enough, full contrast; each step measurably helps, in this order."""
    grey = _grey(ImageOps.exif_transpose(frame))
    if ImageStat.Stat(grey).median[0] < DARK_MEDIAN:
        grey = ImageOps.invert(grey)
    if max(grey.size) < SMALL_SIDE_PIXELS:  # 9-pixel fonts: 4 % wrong letters at x1, none at x2
        grey = grey.resize((grey.width * 2, grey.height * 2), Image.Resampling.LANCZOS)
    return ImageOps.autocontrast(grey, cutoff=1)


def _grey(image: Image.Image) -> Image.Image:
    """Eight bits of grey from any mode; what is transparent becomes white paper."""
    if image.mode[0] in "IF":  # 16 and 32 bits a pixel: a plain conversion would cut at 255 and leave a white page
        wide = image.convert("F")
        low, high = wide.getextrema()
        if isinstance(low, float) and isinstance(high, float) and high > low:
            scale = 255.0 / (high - low)
            offset = -low * scale
            wide = wide.point(lambda value: value * scale + offset)
        return wide.convert("L")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(paper, image).convert("L")
    return image.convert("RGB").convert("L")  # by way of RGB: CMYK and palettes know no direct one that is right


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
