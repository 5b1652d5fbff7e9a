"""``atlas report``: the month's calibration, computed anew."""

from __future__ import annotations

from datetime import UTC, datetime

import click
from rich.console import Console
from rich.markdown import Markdown

from atlas_pipeline.calibration.months import month_of
from atlas_pipeline.cli.common import json_option, parts_now, print_json
from atlas_pipeline.flow.calibrating import calibrate


@click.command()
@click.argument("month", required=False)
@json_option
def report(month: str | None, as_json: bool) -> None:
    """How well Atlas classified in MONTH (YYYY-MM, default: this one), and whether the next phase is earned."""
    with parts_now() as parts:
        metrics, rendered = calibrate(parts, month or month_of(datetime.now(UTC), parts.settings.time_zone))
    if as_json:
        print_json(metrics.as_json())
    else:
        Console(highlight=False).print(Markdown(rendered))


COMMANDS = [report]
