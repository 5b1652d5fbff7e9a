"""Client topology: who the tenants are, and where their sites live."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from atlas_pipeline.model import Tenant
from atlas_pipeline.store.database import Connection, Row
from atlas_pipeline.text import clean_json

_COLUMNS = (
    "slug, name, active, internal, domains, contacts, zones, repository, "
    "branch, preprod_url, deploy_command, default_routes, version_route, allowed_hosts, commit_url, ai_config"
)


def all_tenants(conn: Connection) -> list[Tenant]:
    """Every tenant, active or not, by slug."""
    return [_tenant(row) for row in conn.execute(f"select {_COLUMNS} from atlas.tenants order by slug")]  # noqa: S608  # our own columns


def get(conn: Connection, slug: str) -> Tenant | None:
    """One tenant, or None."""
    row = conn.execute(f"select {_COLUMNS} from atlas.tenants where slug = %s", (slug,)).fetchone()  # noqa: S608  # our own columns
    return _tenant(row) if row else None


def upsert(conn: Connection, tenant: Tenant) -> None:
    """Add or replace a tenant."""
    values = {name: getattr(tenant, name) for name in _COLUMNS.split(", ")}
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    values["ai_config"] = Jsonb(clean_json(dict(tenant.ai_config)))
    names = list(values)
    updates = ", ".join(f"{name} = excluded.{name}" for name in names if name != "slug")
    marks = ", ".join(f"%({name})s" for name in names)
    conn.execute(
        f"insert into atlas.tenants ({_COLUMNS}) values ({marks}) on conflict (slug) do update set {updates}",  # noqa: S608  # our own columns
        values,
    )


def _tenant(row: Row) -> Tenant:
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Tenant(**values)
