"""``atlas report`` and ``atlas phase``: the month's calibration, computed anew, and what an operator makes of it."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.markdown import Markdown

from atlas_pipeline.calibration.months import month_of
from atlas_pipeline.calibration.page import page
from atlas_pipeline.calibration.tables import percent
from atlas_pipeline.cli.common import actor, json_option, parts_now, print_json, print_table
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow import promoting
from atlas_pipeline.flow.calibrating import calibrate


@click.command()
@click.argument("month", required=False)
@json_option
@click.option("--html", "as_html", is_flag=True, help="Print one HTML page with its pictures.")
def report(month: str | None, as_json: bool, as_html: bool) -> None:
    """How well Atlas classified in MONTH (YYYY-MM, default: this one), and whether the next phase is earned."""
    if as_json and as_html:
        raise click.UsageError("--json or --html, not both")
    with parts_now() as parts:
        metrics, rendered = calibrate(parts, month or month_of(datetime.now(UTC), parts.settings.time_zone))
        language = parts.settings.language
    if as_json:
        print_json(metrics.as_json())
    elif as_html:
        click.echo(page(metrics, language), nl=False)
    else:
        Console(highlight=False).print(Markdown(rendered))


@click.group()
def phase() -> None:
    """The phase the house is in. Phase 3 opens it to clients.

    The gate decides whether it is earned; only a person enters it.
    """


@phase.command("show")
@json_option
def show(as_json: bool) -> None:
    """The phase, who entered it, and what the gate decided month by month.

    Decisions are those of the reports that were made; nothing is computed.
    """
    with parts_now() as parts:
        found = promoting.standing(parts)
    if as_json:
        print_json(asdict(found))
        return
    since = f", since {found.since:%Y-%m-%d %H:%M} by {found.actor}" if found.since else ""
    click.echo(f"phase {found.phase}{since}")
    if found.decisions:
        rows = [
            {
                "month": row["month"],
                "earned": "yes" if row["earned"] else "no",
                "internal_jobs": row["evidence"]["success"]["whole"],
                "success": percent(row["evidence"]["success"]["value"]),
                "decided": row["at"],
            }
            for row in found.decisions
        ]
        print_table(rows, ["month", "earned", "internal_jobs", "success", "decided"])


@phase.command("promote")
@click.option("--yes", is_flag=True, help="Confirm without being asked.")
def promote(yes: bool) -> None:
    """Enter phase 3. The gate is judged anew first; refused while it is not passed.

    The order is audited with who gave it. Should the gate be lost later, the phase is left by itself.
    """
    with parts_now() as parts:
        decision = promoting.judge_now(parts)
        success = decision["evidence"]["success"]
        if decision["earned"] and not yes:
            told = f"{success['whole']} internal jobs, {percent(success['value'])} kept"
            if not click.confirm(f"{told}: enter phase 3?", err=True):
                raise Refused("not_confirmed")
        reached = promoting.promote(parts, decision["id"], actor=actor())
    click.echo(f"phase {reached}")


COMMANDS = [report, phase]
