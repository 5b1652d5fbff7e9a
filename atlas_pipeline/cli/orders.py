"""Orders of an operator: ``spawn``, ``reprocess``, ``unblock``, ``rescan``, ``accept``, ``cancel``, ``correct``.

Each is audited with who gave it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from atlas_pipeline.cli.common import actor, json_option, parts_now, print_json, print_table
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow import operator, scanning, spawning, watching
from atlas_pipeline.model import Intent, Verdict


@click.command()
@click.argument("key", required=False)
@click.option("--due", is_flag=True, help="Run one spawn cycle now in place of naming a message.")
@click.option("--dry-run", is_flag=True, help="Only show which agent would take it, and what it would be told.")
def spawn(key: str | None, due: bool, dry_run: bool) -> None:
    """Start the whole action of a message over, as a new round; the daemon starts the agent within half a minute."""
    if (key is None) == (not due):
        raise click.UsageError("name one message key, or --due")
    with parts_now() as parts:
        if dry_run:
            if key is None:
                raise click.UsageError("--dry-run needs a message key")
            briefing, system, user = spawning.rehearse(parts, key)
            found = f"{len(briefing.lessons.texts)} by {briefing.lessons.how}"
            click.echo(f"agent: {briefing.agent} ({briefing.reason}); profile: {briefing.profile}; lessons: {found}")
            click.echo(f"\n===== system prompt =====\n{system}\n===== prompt =====\n{user}")
            return
        if key is not None:
            round_ = operator.request_spawn(parts.db, key, actor=actor())
            click.echo(f"{key}: round {round_} is asked for")
            return
        keys = watching.request_due(parts, actor=actor())
        if not keys:
            watching.require_agent(parts)
    click.echo("\n".join(keys) if keys else "no candidate")


@click.command()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--failed", is_flag=True, help="Every message that is failed, after a fix, in place of naming them.")
@click.option("--force", is_flag=True, help="Also when an agent was started for it already.")
def reprocess(keys: tuple[str, ...], failed: bool, force: bool) -> None:
    """Put messages back to received; the next intake scans and classifies them again. Exit 1 where one was refused."""
    if bool(keys) == failed:
        raise click.UsageError("name message keys, or --failed")
    with parts_now() as parts:
        wanted = operator.failed_keys(parts.db) if failed else list(dict.fromkeys(keys))
        refused = 0
        for key in wanted:
            try:
                operator.reprocess(parts.db, key, actor=actor(), force=force)
                click.echo(f"{key}: received")
            except Refused as refusal:
                if len(wanted) == 1:
                    raise
                refused += 1
                click.echo(f"{key}: {refusal.code}", err=True)
    if not wanted:
        click.echo("no message is failed")
    if refused:
        raise SystemExit(1)


@click.command()
@click.argument("key")
def unblock(key: str) -> None:
    """Let a blocked message through in spite of its scan verdict."""
    with parts_now() as parts:
        operator.unblock(parts.db, key, actor=actor())
    click.echo(f"{key}: received, its verdict is overridden")


@click.command()
@click.option("--since", required=True, metavar="DATE|DAYS", help="A date (2026-11-30), or so many days back (7).")
@json_option
def rescan(since: str, as_json: bool) -> None:
    """Scan stored mail again, after new signatures came; what became infected is blocked. Exit 1 where one was, or no verdict."""
    with parts_now() as parts:
        found = list(scanning.rescan(parts, _moment(since)))
    rows = [
        {"message_key": one.key, "was": one.was and one.was.value, "now": one.now.value, "became_infected": one.raised}
        for one in found
    ]
    if as_json:
        print_json(rows)
    else:
        changed = [row for row in rows if row["was"] != row["now"]]
        if changed:
            print_table(changed, ["message_key", "was", "now", "became_infected"])
        click.echo(f"{len(rows)} scanned, {sum(one.raised for one in found)} became infected")
    if any(one.raised or one.now is Verdict.ERROR for one in found):
        raise SystemExit(1)


def _moment(since: str) -> datetime:
    try:
        return datetime.now().astimezone() - timedelta(days=float(since))
    except (ValueError, OverflowError):
        pass
    try:
        return datetime.fromisoformat(since).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter("neither a date nor a number of days", param_hint="--since") from None


def _decision(verb: str, says: str) -> click.Command:
    @click.command(name=verb, help=says)
    @click.argument("key")
    def command(key: str) -> None:
        with parts_now() as parts:
            table = operator.decide_draft(parts.db, key, verb, actor=actor())
        click.echo(f"{key}: {table} {'accepted' if verb == 'accept' else 'cancelled'}")

    return command


accept = _decision("accept", "Accept the work record that a message became.")
cancel = _decision("cancel", "Cancel the work record that a message became; calibration counts it as a refusal.")


@click.command()
@click.argument("key")
@click.argument("intent", type=click.Choice([intent.value for intent in Intent]))
def correct(key: str, intent: str) -> None:
    """Say what a message really asks for; the classifiers learn from it. `reprocess` classifies the message again."""
    with parts_now() as parts:
        was = operator.correct(parts.db, key, Intent(intent), actor=actor())
    click.echo(f"{key}: {was} corrected to {intent}")


COMMANDS = [spawn, reprocess, unblock, rescan, accept, cancel, correct]
