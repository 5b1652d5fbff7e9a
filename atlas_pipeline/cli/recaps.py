"""``atlas recap list|show|confirm|resend``: mails of ours that nobody knows the fate of, or that were refused."""

from __future__ import annotations

import click

from atlas_pipeline.cli.common import actor, json_option, parts_now, print_json, print_table
from atlas_pipeline.flow import operator
from atlas_pipeline.store import outbox

_COLUMNS = ["id", "message_key", "kind", "state", "code", "tries", "claimed_at", "refused_recipients", "bounced_at"]


@click.group()
def recap() -> None:
    """What waits in the outbox for a person's word; a row is named by its message key or by its number."""


@recap.command("list")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 10_000), help="How many, newest first.")
@json_option
def list_(limit: int, as_json: bool) -> None:
    """Recaps and alarms that are uncertain, refused, or were not taken for some recipient."""
    with parts_now() as parts, parts.db.transaction() as conn:
        rows = outbox.for_people(conn, limit)
    if as_json:
        print_json(rows)
    elif rows:
        print_table(rows, _COLUMNS)
    else:
        click.echo("no recap waits for a person")


@recap.command()
@click.argument("name", metavar="KEY|NUMBER")
@json_option
def show(name: str, as_json: bool) -> None:
    """Every row of a message, or the one with this number, with its Message-ID: what to look for in the team's mailbox."""
    with parts_now() as parts:
        rows = operator.recaps(parts.db, name)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        for column, value in row.items():
            if value not in (None, []):
                click.echo(f"{column:<18} {', '.join(value) if isinstance(value, list) else value}")
        click.echo()


def _decision(verb: str, done: str, says: str) -> click.Command:
    @recap.command(name=verb, help=says)
    @click.argument("name", metavar="KEY|NUMBER")
    def command(name: str) -> None:
        with parts_now() as parts:
            number = operator.decide_recap(parts.db, name, verb, actor=actor())
        click.echo(f"{name}: recap {number} {done}")

    return command


confirm = _decision("confirm", "counts as sent", "Say that an uncertain recap came: it counts as sent.")
resend = _decision(
    "resend",
    "goes out again",
    "Send a recap again that did not come (uncertain) or was refused, under the same Message-ID.",
)

COMMANDS = [recap]
