"""Texts that a model writes for people of the house: ``draft``, ``dialogue``. Nothing is sent."""

from __future__ import annotations

from dataclasses import asdict
from typing import TextIO

import click

from atlas_pipeline.cli.common import actor, json_option, parts_now, print_json
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow import writing


@click.command()
@click.argument("key")
@json_option
def draft(key: str, as_json: bool) -> None:
    """Have a reply to the client written for a finished message, with the client's own provider. It is stored, never sent."""
    with parts_now() as parts:
        written = writing.reply_draft(parts, key, actor=actor())
    if as_json:
        print_json(asdict(written))
    else:
        click.echo(written.content)


@click.command()
@click.argument("notes", type=click.File("r", encoding="utf-8"))
@click.option("--lead", required=True, metavar="AGENT", help="Who answers.")
@click.option(
    "--agent", "others", multiple=True, required=True, metavar="AGENT", help="Who looks at the notes before; up to six."
)
@json_option
def dialogue(notes: TextIO, lead: str, others: tuple[str, ...], as_json: bool) -> None:
    """Let agents look at support notes (a file, or - for stdin), and one of them answer. Nothing is stored."""
    try:
        text = notes.read()
    except UnicodeDecodeError:
        raise Refused("notes_not_utf8") from None
    with parts_now() as parts:
        found = writing.dialogue(parts, text, lead=lead, others=others)
    if as_json:
        print_json(asdict(found))
        return
    for name, note in found.notes:
        click.echo(f"{name} ({note.provider}/{note.model}):\n{note.content.strip()}\n")
    click.echo(f"{found.lead} ({found.answer.provider}/{found.answer.model}):\n{found.answer.content.strip()}")


COMMANDS = [draft, dialogue]
