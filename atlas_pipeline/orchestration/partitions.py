"""The partitions: one a message (dynamic), one a message and attempt, one a month."""

from __future__ import annotations

import dagster as dg

from atlas_pipeline.settings import Settings

messages = dg.DynamicPartitionsDefinition(name="messages")
attempts = dg.StaticPartitionsDefinition(["1", "2", "3"])
message_attempts = dg.MultiPartitionsDefinition({"message": messages, "attempt": attempts})
FIRST_MONTH = "2026-01"


def months(settings: Settings) -> dg.MonthlyPartitionsDefinition:
    """Months in the agency's zone, the current one included: a report of the running month is useful."""
    return dg.MonthlyPartitionsDefinition(
        start_date=FIRST_MONTH, fmt="%Y-%m", timezone=settings.time_zone, end_offset=1
    )
