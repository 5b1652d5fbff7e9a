"""``atlas agents`` and ``atlas scar``: who there is, and what they learnt."""

from __future__ import annotations

import click

from atlas_pipeline.cli.common import actor, json_option, parts_now, print_json, print_table
from atlas_pipeline.errors import AtlasError, Refused
from atlas_pipeline.flow import domains, teaching
from atlas_pipeline.store import registry
from atlas_pipeline.store.manifest import manifest


@click.command()
@click.option("--domain", type=click.Choice(domains.DOMAINS), help="Only those that write for this prompt domain.")
@click.option(
    "--manifest", "as_manifest", is_flag=True, help="What the domain exposes: tables, views, operations; JSON."
)
@json_option
def agents(domain: str | None, as_manifest: bool, as_json: bool) -> None:
    """The active agents, by ring and family."""
    if as_manifest:
        print_json(manifest())
        return
    with parts_now() as parts:
        if domain is not None:
            found = domains.agents_for(parts, domain)
            rows = [
                {"codename": name, "domain": domain, "from": found.source, "code": found.code}
                for name in found.codenames
            ]
            columns = ["codename", "domain", "from", "code"]
        else:
            with parts.db.transaction() as conn:
                known = registry.active(conn)
            columns = [
                "codename",
                "nickname",
                "role",
                "group_name",
                "orbite",
                "spawn_count",
                "error_count",
                "prompt_domains",
            ]
            rows = [{name: row[name] for name in columns} for row in known]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, columns)


@click.command(name="mother-ship")
@click.option("--port", type=click.IntRange(1, 65535), default=3100, show_default=True, help="On loopback.")
def mother_ship(port: int) -> None:
    """Answer clients' own houses, until Ctrl-C: who writes for a prompt domain.

    Their questions are signed with ATLAS_MOTHER_SHIP_SECRET. Put a proxy with TLS before it.
    """
    import uvicorn

    from atlas_pipeline.flow.mother_ship import application

    with parts_now() as parts:
        uvicorn.run(application(parts), host="127.0.0.1", port=port, log_level="warning", server_header=False)


@click.group()
def scar() -> None:
    """Lessons that agents are told: written by people, never by a mail."""


@scar.command()
@click.argument("lesson")
@click.option("--agent", "codename", metavar="AGENT", help="Whose lesson it is; everybody's where left out.")
@click.option("--tenant", metavar="SLUG", help="Only for missions of this client.")
@click.option("--days", type=click.IntRange(1, 36_500), help="For so long; for ever where left out.")
@click.option(
    "--from", "provenance", default="operator", show_default=True, metavar="TEXT", help="Where it was learnt."
)
def add(lesson: str, codename: str | None, tenant: str | None, days: int | None, provenance: str) -> None:
    """Write a lesson down; it is told from the next start on."""
    with parts_now() as parts:
        with parts.db.transaction() as conn:
            made = registry.add_scar(
                conn, lesson, author=actor(), provenance=provenance, codename=codename, tenant=tenant, days=days
            )
        click.echo(str(made))
        try:
            teaching.index_scars(parts)
        except AtlasError as error:
            click.echo(f"kept; until it can be embedded it is found by its words alone ({error.code})", err=True)


@scar.command(name="list")
@click.option("--expired", is_flag=True, help="Those too that are told no more.")
@json_option
def list_(expired: bool, as_json: bool) -> None:
    """The lessons, the newest first."""
    with parts_now() as parts, parts.db.transaction() as conn:
        rows = registry.scars(conn, expired=expired)
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ["id", "codename", "tenant", "lesson", "provenance", "author", "expires_at"])


@scar.command()
@click.argument("number", type=int)
def expire(number: int) -> None:
    """Tell a lesson no more; it is kept."""
    with parts_now() as parts, parts.db.transaction() as conn:
        if not registry.expire_scar(conn, number):
            raise Refused("no_such_scar", scar=number)
    click.echo(f"{number}: expired")


COMMANDS = [agents, mother_ship, scar]
