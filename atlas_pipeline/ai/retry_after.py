"""Reading ``Retry-After``: seconds or an HTTP date. What is done with it is decided in ``ai.http``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,6})?")


def seconds_to_wait(value: str | None, now: datetime) -> float | None:
    """Seconds the server asks for, never negative; None where the header is absent or senseless (``-5``, ``abc``)."""
    text = (value or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if moment.tzinfo is None:  # "-0000" gives a naive time that is meant as UTC
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
