"""``atlas tenant``: the client topology."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from atlas_pipeline.cli.common import json_option, parts_now, print_json, print_table
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow.writing import PROVIDERS
from atlas_pipeline.model import Tenant
from atlas_pipeline.store import tenants as store


@click.group()
def tenant() -> None:
    """Clients: domains, contacts, repository, pre-production, deploy command."""


@tenant.command(name="list")
@json_option
def list_(as_json: bool) -> None:
    """All tenants."""
    with parts_now() as parts, parts.db.transaction() as conn:
        rows = [asdict(one) for one in store.all_tenants(conn)]
    if as_json:
        print_json(rows)
    else:
        print_table(rows, ["slug", "name", "active", "internal", "domains", "repository", "preprod_url"])


@tenant.command()
@click.argument("slug")
@json_option
def show(slug: str, as_json: bool) -> None:
    """One tenant."""
    with parts_now() as parts, parts.db.transaction() as conn:
        found = store.get(conn, slug)
    if found is None:
        raise Refused("tenant_unknown", slug=slug)
    if as_json:
        print_json(asdict(found))
        return
    for name, value in asdict(found).items():
        click.echo(f"{name:<15} {', '.join(value) if isinstance(value, tuple) else value}")


@tenant.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def add(file: Path) -> None:
    """Add or replace a tenant from a JSON file with the fields that `atlas tenant show --json` prints."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise Refused("tenant_not_json") from None
    one = read_tenant(text)
    with parts_now() as parts, parts.db.transaction() as conn:
        known = store.get(conn, one.slug) is not None
        store.upsert(conn, one)
    click.echo(f"{one.slug}: {'replaced' if known else 'added'}")


def read_tenant(text: str) -> Tenant:
    """A tenant from JSON. Raises Refused: ``tenant_not_json``, ``tenant_fields`` with the names that are wrong."""
    try:
        facts = json.loads(text)
    except ValueError:
        raise Refused("tenant_not_json") from None
    known = {item.name: item for item in fields(Tenant)}
    if not isinstance(facts, dict):
        raise Refused("tenant_not_json")
    wrong = sorted(set(facts) - set(known)) + [
        name for name, value in facts.items() if name in known and not _fits(name, value)
    ]
    missing = sorted({"slug", "name"} - set(facts))
    if wrong or missing:
        raise Refused("tenant_fields", wrong=",".join(wrong), missing=",".join(missing))
    values: dict[str, Any] = {
        "active": True,
        "internal": False,
        "domains": (),
        "contacts": (),
        "allowed_hosts": (),
        **facts,
    }
    lowered = {name: tuple(item.lower() for item in values[name]) for name in ("domains", "contacts", "allowed_hosts")}
    chosen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in {**values, **lowered}.items()
    }
    return Tenant(**chosen)


_SLUG = re.compile("[a-z0-9-]+")
_DOMAIN = re.compile(r"[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})+")
_ADDRESS = re.compile(r"[^\s@<>\"]{1,64}@" + _DOMAIN.pattern)
_URL = re.compile(r"https?://[^\s/]+\S*")
# What git may be given: a folder, or a server over a transport that runs no command of the URL's choice (``ext::`` does).
_REPOSITORY = re.compile(r"/\S.*|(https|ssh|file)://\S+|[\w.-]+@[\w.-]+:[^\s:]+")
_ITEMS: dict[str, Callable[[str], object]] = {
    "domains": _DOMAIN.fullmatch,
    "contacts": _ADDRESS.fullmatch,
    "zones": lambda zone: zone.strip() and not zone.startswith("/") and ".." not in zone.split("/"),
    "default_routes": lambda route: route.startswith("/"),
    "deploy_command": lambda word: word,
    "repository": _REPOSITORY.fullmatch,
    "preprod_url": _URL.fullmatch,
    # A name without port: the browser is told it as it stands, where a comma or a star would let in more than one host.
    "allowed_hosts": _DOMAIN.fullmatch,
    "commit_url": _URL.fullmatch,
}
_AI: dict[str, Callable[[object], bool]] = {
    "provider": lambda name: name in PROVIDERS,
    "model": lambda name: isinstance(name, str) and 0 < len(name) <= 100,
}
_LISTS = ("domains", "contacts", "zones", "deploy_command", "default_routes", "allowed_hosts")


def _fits(name: str, value: object) -> bool:
    if name in _LISTS:
        return isinstance(value, list) and all(isinstance(item, str) and _ITEMS[name](item) for item in value)
    if name == "ai_config":
        return isinstance(value, dict) and all(_AI.get(key) and _AI[key](item) for key, item in value.items())
    if name in ("active", "internal"):
        return isinstance(value, bool)
    if name == "slug":
        return isinstance(value, str) and _SLUG.fullmatch(value) is not None
    if value is None:
        return name in ("repository", "preprod_url", "version_route", "commit_url")
    return isinstance(value, str) and bool(_ITEMS.get(name, str)(value))


COMMANDS = [tenant]
