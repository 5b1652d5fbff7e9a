"""``atlas replay``: how an operator dares to change a model, a prompt or a threshold."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from atlas_pipeline.cli.common import actor, json_option, parts_now, print_json
from atlas_pipeline.flow.replaying import Change, told
from atlas_pipeline.flow.replaying import replay as run

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_SHARE = click.FloatRange(0, 1)


@click.command()
@click.option("--month", required=True, metavar="YYYY-MM", help="Whose stored mails are judged again.")
@click.option("--routing", type=_FILE, help="Another routing file.")
@click.option("--prompt", type=_FILE, help="Another system message, with {language} and {marker} in it.")
@click.option("--floor", type=_SHARE, help="Another floor of confidence.")
@click.option("--threshold", type=_SHARE, help="Another threshold of uncertainty.")
@json_option
def replay(
    month: str, routing: Path | None, prompt: Path | None, floor: float | None, threshold: float | None, as_json: bool
) -> None:
    """Classify a month's stored mails again beside the truth, and print what would have been otherwise.

    No message is changed and no agent started. Given again, the order goes on where it stopped. Exit 1 while mails are left.
    """
    with parts_now() as parts:
        found = run(parts, month, Change(routing, prompt, floor, threshold), actor=actor())
    if as_json:
        print_json(asdict(found))
    else:
        click.echo("\n".join(told(found)))
    if found.left:
        raise SystemExit(1)


COMMANDS = [replay]
