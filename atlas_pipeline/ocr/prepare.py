"""Any picture a mail may hold, turned into the grey ones that tesseract reads best. Limits come before any decoding.

The order of the steps was measured on screenshots, dark ones, 9-pixel fonts and phone photos. No text is read here.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator

from PIL import Image, ImageChops, ImageFilter, ImageOps, ImageStat

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
PATCH_MAX = 170
_SHRINK = 4


def prepare(content: bytes, sniffed_type: str, *, max_pixels: int) -> list[Image.Image]:
    """The picture as it is best read: one, or one for each of the first frames of a GIF or pages of a TIFF.

    Raises PermanentError: ``ocr_format_unsupported``, ``ocr_image_too_large`` (width times height, from the header),
    ``ocr_image_tiny`` (a side under 32 pixels, as tracking pixels and rulers have), ``ocr_image_unreadable``.
    """
    kind = FORMATS.get(sniffed_type)
    if kind is None:
        raise PermanentError("ocr_format_unsupported")
    if kind == "HEIF":
        import pi_heif  # few mails need it, and each picture's process would load it

        pi_heif.register_heif_opener()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # broken EXIF blocks and the like; our own limit is stricter than Pillow's
            with Image.open(io.BytesIO(content), formats=(kind,)) as picture:
                return [improved(frame) for frame in _frames(picture, max_pixels)]
    except AtlasError:
        raise
    except MemoryError:
        raise PermanentError("ocr_memory_exceeded") from None
    except Image.DecompressionBombError:
        raise PermanentError("ocr_image_too_large") from None
    except Exception:  # noqa: BLE001 - Pillow answers hostile bytes with errors of a dozen kinds; all mean the same
        raise PermanentError("ocr_image_unreadable") from None


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


def improved(frame: Image.Image) -> Image.Image:
    """Upright, opaque, grey, dark on light, large enough, full contrast; each step measurably helps, in this order."""
    grey = _grey(ImageOps.exif_transpose(frame))
    if ImageStat.Stat(grey).median[0] < DARK_MEDIAN:
        grey = ImageOps.invert(grey)
    if _is_drawn(grey):
        for box in _dark_patches(grey):  # the labels of buttons: white on blue they are passed over as a picture
            grey.paste(ImageOps.autocontrast(ImageOps.invert(grey.crop(box)), cutoff=(0, 20)), box)
    if max(grey.size) < SMALL_SIDE_PIXELS:  # 9-pixel fonts: 4 % wrong letters at x1, none at x2
        grey = grey.resize((grey.width * 2, grey.height * 2), Image.Resampling.LANCZOS)
    # Percent at the dark and at the light end. A page with one line on it has less than one percent of ink: cut there, and the
    # noise around the letters turns black.
    return ImageOps.autocontrast(grey, cutoff=(0.02, 1))


def _is_drawn(grey: Image.Image) -> bool:
    """Whether a screen was copied rather than photographed: most pixels are as their right neighbour.

    Measured: 0.87 to 0.93 of them on screenshots, 0.67 to 0.83 after JPEG, 0.13 on photographs, whose labels are better left alone.
    """
    width, height = grey.size
    steps = ImageChops.difference(grey.crop((0, 0, width - 1, height)), grey.crop((1, 0, width, height))).histogram()
    return steps[0] > 0.4 * sum(steps)


def _dark_patches(grey: Image.Image) -> list[tuple[int, int, int, int]]:
    """Boxes of flat dark areas in a light picture that may hold a line of light text.

    Found on a picture of a quarter of the size, a large one made as small as that.
    """
    shrink = max(_SHRINK, _SHRINK * max(grey.size) // SMALL_SIDE_PIXELS)
    small = grey.resize((max(1, grey.width // shrink), max(1, grey.height // shrink)), Image.Resampling.BOX)
    dark = small.point(lambda value: 255 if value < PATCH_MAX else 0)
    # Specks out, the holes that letters make closed.
    dark = dark.filter(ImageFilter.MinFilter(3)).filter(ImageFilter.MaxFilter(9)).filter(ImageFilter.MinFilter(7))
    boxes = []
    for left, top, right, bottom, cells in _areas(dark):
        width, height = right - left + 1, bottom - top + 1
        fits = width >= 8 and 3 <= height <= dark.height * 0.3 and width < dark.width
        box = (left * shrink, top * shrink, (right + 1) * shrink, (bottom + 1) * shrink)
        if fits and cells > 0.7 * width * height and _is_flat(grey.crop(box)):
            boxes.append(box)
    return boxes


def _is_flat(patch: Image.Image) -> bool:
    counts, middle = patch.histogram(), int(ImageStat.Stat(patch).median[0])
    near = sum(counts[max(0, middle - 12) : middle + 13])
    return middle < PATCH_MAX and near > 0.6 * sum(counts)


def _areas(mask: Image.Image) -> Iterator[tuple[int, int, int, int, int]]:
    """Left, top, right, bottom (all inside) and number of pixels of each connected area that is set; the first 200."""
    width, height = mask.size
    left_to_see = bytearray(mask.tobytes())
    at = left_to_see.find(255)
    for _ in range(200):
        if at < 0:
            return
        xs, ys, count = [at % width] * 2, [at // width] * 2, 0
        stack = [at]
        left_to_see[at] = 0
        while stack:
            here = stack.pop()
            x, y = here % width, here // width
            count += 1
            xs, ys = [min(xs[0], x), max(xs[1], x)], [min(ys[0], y), max(ys[1], y)]
            near = ((x > 0, here - 1), (x < width - 1, here + 1), (y > 0, here - width), (y < height - 1, here + width))
            for inside, there in near:
                if inside and left_to_see[there]:
                    left_to_see[there] = 0
                    stack.append(there)
        yield xs[0], ys[0], xs[1], ys[1], count
        at = left_to_see.find(255, at)


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


def encoded(image: Image.Image) -> bytes:
    """The bytes that tesseract is fed: uncompressed, since they only cross a pipe."""
    buffer = io.BytesIO()
    image.save(buffer, "PPM")
    return buffer.getvalue()
