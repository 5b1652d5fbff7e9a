"""The command line: ``atlas``. Every error that reaches a user is one line with a code; tracebacks only with ``--debug``.

house     up, demo, migrate             doctor    which parts are real, embedded, absent
messages  status, show, tail            orders    spawn, reprocess, unblock, rescan, accept, cancel
recaps    recap list|show|confirm|resend
tenants   tenant list|show|add          inspect   what would be concluded of mail files, without a database
report    report, phase: the month's calibration   replay   a month judged again, beside the truth
"""

from __future__ import annotations

from typing import Any

import click
from pydantic import ValidationError

from atlas_pipeline.cli import agents, doctor, house, inspect, messages, orders, recaps, replay, report, tenants, texts
from atlas_pipeline.embedded.house import Stopped
from atlas_pipeline.errors import AtlasError

INTERRUPTED, FAILED = 130, 1


class Atlas(click.Group):
    """The group, with errors turned into one line on stderr."""

    def invoke(self, ctx: click.Context) -> Any:  # click's own signature
        """Run the verb; 1 on an error, 130 on an interrupt."""
        try:
            return super().invoke(ctx)
        except (Stopped, KeyboardInterrupt):
            ctx.exit(INTERRUPTED)
        except ValidationError as error:
            if ctx.params["debug"]:
                raise
            names = sorted({f"ATLAS_{'_'.join(map(str, problem['loc']))}".upper() for problem in error.errors()})
            _fail(ctx, f"setting_invalid ({', '.join(names)})")
        except AtlasError as error:
            if ctx.params["debug"]:
                raise
            _fail(ctx, str(error))
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params["debug"]:
                raise
            _fail(ctx, f"unexpected_{type(error).__name__} (run again with --debug to see where)")


def _fail(ctx: click.Context, line: str) -> None:
    click.echo(f"error: {line}", err=True)
    ctx.exit(FAILED)


@click.group(cls=Atlas, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show the traceback of an error; it may quote a mail.")
def main(debug: bool) -> None:
    """Atlas turns each e-mail forwarded to one mailbox into finished work."""
    del debug


for _module in (house, doctor, messages, orders, recaps, texts, tenants, agents, inspect, report, replay):
    for _command in _module.COMMANDS:
        main.add_command(_command)
