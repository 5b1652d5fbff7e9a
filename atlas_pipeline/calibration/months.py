"""Months in the agency's time zone."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from atlas_pipeline.errors import Refused

_MONTH = re.compile(r"[12][0-9]{3}-(0[1-9]|1[0-2])")


def bounds(month: str, time_zone: str) -> tuple[datetime, datetime]:
    """First instant of ``YYYY-MM`` and of the month after it, in the zone. Raises Refused("month_malformed")."""
    if not _MONTH.fullmatch(month):
        raise Refused("month_malformed")
    year, number = int(month[:4]), int(month[5:])
    zone = ZoneInfo(time_zone)
    start = datetime(year, number, 1, tzinfo=zone)
    end = datetime(year + number // 12, number % 12 + 1, 1, tzinfo=zone)
    return start, end


def month_of(moment: datetime, time_zone: str) -> str:
    """The month in which this instant lies."""
    return moment.astimezone(ZoneInfo(time_zone)).strftime("%Y-%m")


def before(month: str, count: int) -> str:
    """The month that many months before ``YYYY-MM``. Raises Refused("month_malformed")."""
    if not _MONTH.fullmatch(month):
        raise Refused("month_malformed")
    year, number = divmod(int(month[:4]) * 12 + int(month[5:]) - 1 - count, 12)
    return f"{year:04d}-{number + 1:02d}"
