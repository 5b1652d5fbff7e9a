"""The recognised text, wrapped so that it leaves memory only on purpose: ``reveal()`` is the one way out."""

from __future__ import annotations

from typing import NoReturn

from atlas_pipeline.errors import Refused


class OcrText:
    """Text read from pictures. Printing, logging, formatting, copying and pickling it give nothing away."""

    __slots__ = ("__text",)

    def __init__(self, text: str) -> None:
        self.__text = text

    def reveal(self) -> str:
        """The text itself, for the classifier's prompt; whoever calls this must not store or log it."""
        return self.__text

    def __len__(self) -> int:
        return len(self.__text)

    def __repr__(self) -> str:
        return f"<OcrText {len(self.__text)} characters>"

    def __format__(self, format_spec: str) -> str:
        return format(repr(self), format_spec)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise Refused("ocr_text_stays_in_memory")

    def __reduce__(self) -> NoReturn:
        raise Refused("ocr_text_stays_in_memory")

    def __getstate__(self) -> NoReturn:
        raise Refused("ocr_text_stays_in_memory")
