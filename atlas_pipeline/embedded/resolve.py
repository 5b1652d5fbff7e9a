"""Which database is used: the one that is configured, or the embedded server. Nothing else starts it."""

from __future__ import annotations

from dataclasses import dataclass, field

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.settings import Settings

ATLAS_DATABASE, DAGSTER_DATABASE = "atlas", "dagster"


@dataclass(frozen=True)
class DatabaseUrls:
    """URLs of Atlas's database and of Dagster's own; ``embedded`` says whose server it is."""

    atlas: str = field(repr=False)
    dagster: str = field(repr=False)
    embedded: bool


def postgres_of(settings: Settings) -> EmbeddedPostgres:
    """The embedded server of this state folder, started or not."""
    return EmbeddedPostgres(settings.home_dir / "postgres")


def database_urls(settings: Settings) -> DatabaseUrls:
    """The URLs to use; starts the embedded server where none is configured. Raises DatabaseUnavailable, NotConfigured."""
    if settings.database_url is not None:
        atlas = settings.database_url.get_secret_value()
        return DatabaseUrls(atlas, _dagster_url(settings, atlas), embedded=False)
    server = postgres_of(settings)
    server.ensure()
    for name in (ATLAS_DATABASE, DAGSTER_DATABASE):
        server.ensure_database(name)
    atlas = server.url(ATLAS_DATABASE)
    return DatabaseUrls(atlas, _dagster_url(settings, atlas), embedded=True)


def _dagster_url(settings: Settings, atlas: str) -> str:
    if settings.dagster_url is not None:
        return for_dagster(settings.dagster_url.get_secret_value())
    # Beside Atlas's database, on the same server.
    base, _, options = atlas.partition("?")
    return for_dagster(f"{base.rsplit('/', 1)[0]}/{DAGSTER_DATABASE}{'?' + options if options else ''}")


def for_dagster(url: str) -> str:
    """The URL with Dagster's driver named: SQLAlchemy's own default is psycopg 3, on which Dagster's NOTIFY fails."""
    scheme, separator, rest = url.partition("://")
    return f"postgresql+psycopg2://{rest}" if separator and scheme in ("postgres", "postgresql") else url
