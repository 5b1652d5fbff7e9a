"""``atlas status``, ``show`` and ``tail``: what the tables say. No content of a mail but its subject, and only in lists."""

from __future__ import annotations

import time

import click

from atlas_pipeline.cli.common import json_option, parts_now, print_json, print_table
from atlas_pipeline.errors import Refused
from atlas_pipeline.model import Status
from atlas_pipeline.store import audit, outbox, overview, spawns


@click.command()
@json_option
@click.option(
    "--status", "wanted", type=click.Choice([status.value for status in Status]), help="Only messages in this status."
)
@click.option(
    "--limit", default=30, show_default=True, type=click.IntRange(1, 10_000), help="How many messages, newest first."
)
def status(as_json: bool, wanted: str | None, limit: int) -> None:
    """The house in numbers, the newest messages, the recaps that wait for a person, and the newest alarms."""
    with parts_now() as parts, parts.db.transaction() as conn:
        summary = overview.summary(conn)
        rows = overview.messages(conn, status=wanted, limit=limit)
        open_ = outbox.for_people(conn)
        alarms = audit.recent_alerts(conn)
    if as_json:
        print_json({**summary, "newest": rows, "open_recaps": open_, "alerts": alarms})
        return
    for name, counts in summary.items():
        click.echo(f"{name:<9} " + ("  ".join(f"{key} {count}" for key, count in counts.items()) or "none"))
    click.echo()
    print_table(
        rows,
        ["message_key", "status", "intent", "confidence", "tenant", "attempt", "reason_code", "trust_level", "subject"],
    )
    if open_:
        click.echo("\nrecaps that wait for a person (atlas recap confirm or resend)")
        print_table(open_, ["id", "message_key", "kind", "state", "code", "tries", "refused_recipients", "bounced_at"])
    if alarms:
        click.echo("\nalarms, newest first")
        print_table(alarms, ["at", "code", "message_key", "detail"])


@click.command()
@click.argument("key")
@json_option
def show(key: str, as_json: bool) -> None:
    """One message's whole story: verdicts, decision, agents, checks, recaps, audit."""
    with parts_now() as parts, parts.db.transaction() as conn:
        story = overview.story(conn, key)
    if not story:
        raise Refused("message_unknown", key=key)
    if as_json:
        print_json(story)
        return
    for name, value in story["message"].items():
        if value not in (None, [], False):
            click.echo(f"{name:<18} {value}")
    for section in ("attachments", "spawns", "deployments", "qa", "recaps", "audit"):
        rows = story[section]
        if rows:
            click.echo(f"\n{section}")
            print_table(rows, [name for name in rows[0] if any(row[name] not in (None, [], "") for row in rows)])


@click.command()
@click.argument("key")
@click.option("--follow/--no-follow", default=True, help="Go on until the agent has ended.")
def tail(key: str, follow: bool) -> None:
    """Follow the events of the message's newest agent, one a line."""
    with parts_now() as parts:
        with parts.db.transaction() as conn:
            newest = spawns.newest_id(conn, key)
        if newest is None:
            raise Refused("no_spawn", key=key)
        seq = 0
        while True:
            with parts.db.transaction() as conn:
                events, live = spawns.events_after(conn, newest, seq)
            for event in events:
                seq = event["seq"]
                click.echo(
                    f"{seq:>6}  {event['at']:%H:%M:%S}  {event['event_type']}  {event['tool_name'] or ''}".rstrip()
                )
            if not events and not (live and follow):
                return
            time.sleep(0 if events else 0.5)


COMMANDS = [status, show, tail]
