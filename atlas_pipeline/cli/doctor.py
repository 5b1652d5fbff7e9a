"""``atlas doctor``: of each component whether it is real, embedded, of the demo or absent, reachable, and which version."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import click
import psycopg

from atlas_pipeline.cli.common import json_option, print_json, print_table, settings_now
from atlas_pipeline.embedded.resolve import DAGSTER_DATABASE, database_urls, postgres_of
from atlas_pipeline.errors import AtlasError, NotConfigured
from atlas_pipeline.flow import recapping, scanning
from atlas_pipeline.flow.means import standing
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.release.browser_check import BrowserChecker
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import audit, mailboxes, overview, phases, spawns
from atlas_pipeline.store.migrate import pending

_VERSION_SECONDS = 20.0


@dataclass(frozen=True)
class Finding:
    """One component. ``kind``: real, embedded, demo or absent. ``ok``: reachable and usable now; an absent one is not."""

    component: str
    kind: str
    ok: bool
    version: str = ""
    detail: str = ""


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Look at every component; exit 1 if one that is configured can't be used (an embedded one starts with the house)."""
    settings = settings_now()
    findings = list(examine(settings))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        print_table(
            [{**asdict(finding), "ok": "yes" if finding.ok else "NO"} for finding in findings],
            ["component", "kind", "ok", "version", "detail"],
        )
    if any(not finding.ok and finding.kind in ("real", "demo") for finding in findings):
        raise SystemExit(1)


def examine(settings: Settings) -> Iterator[Finding]:
    """All findings, one after the other; a component in trouble is a finding, never an exception."""
    url, database = _database(settings)
    yield database
    with opened(settings, url or "") as parts:
        if url:
            yield _guarded("migrations", "real", lambda: _migrations(url))
            yield _guarded(
                "dagster storage",
                "real" if settings.dagster_url or settings.database_url else "embedded",
                lambda: _dagster(settings),
            )
        mailbox = _mailbox(parts)
        yield mailbox
        if url and mailbox.ok:
            _rest_no_longer(parts)
        yield _guarded("antivirus", _kind(settings.clamd, settings), lambda: _antivirus(parts))
        yield _guarded("ocr", "real", lambda: _ocr(parts))
        yield _guarded("browser", "real", lambda: _browser(settings))
        yield _guarded("git", "real", lambda: _program("git", "--version"))
        yield _ai(parts)
        yield _guarded("agent", _agent_kind(settings), lambda: _agent(parts))
        yield _guarded(
            "mail exit", "demo" if not settings.smtp_url and settings.outbox_dir else "real", lambda: _mail_exit(parts)
        )
        yield _exit_guard(parts)
        yield Finding(
            "spawn switch",
            "real",
            ok=True,
            detail="on" if settings.spawn_enabled else "off: messages wait in classified",
        )
        if settings.agent_database_url is not None:
            hooks_url = settings.agent_database_url.get_secret_value()
            yield _guarded("agent hooks", "real", lambda: _hooks(hooks_url))
        if url and not _missing(url):
            yield _guarded("agent means", "real", lambda: _means(parts))
            yield _guarded("phase", "real", lambda: _phase(parts))
            yield _guarded("senders", "real", lambda: _senders(parts))
            yield _guarded("inbox", "real", lambda: _inbox(parts))


def _guarded(component: str, kind: str, look: Callable[[], tuple[str, str]]) -> Finding:
    try:
        version, detail = look()
    except NotConfigured as error:
        absent = error.code.endswith("_not_configured")
        return Finding(component, "absent" if absent else kind, ok=False, detail=str(error))
    except AtlasError as error:
        return Finding(component, kind, ok=False, detail=str(error))
    return Finding(component, kind, ok=True, version=version, detail=detail)


def _kind(value: object, settings: Settings) -> str:
    return "demo" if settings.demo and value is not None else "real"


def _database(settings: Settings) -> tuple[str | None, Finding]:
    if settings.database_url is None:
        status = postgres_of(settings).status()
        detail = f"port {status['port']}" if status["running"] else "not running; `atlas up` or `atlas demo` starts it"
        url = database_urls(settings).atlas if status["running"] else None
        return url, Finding(
            "database", "embedded", ok=status["running"], version=status["version"] or "", detail=detail
        )
    url = settings.database_url.get_secret_value()
    finding = _guarded("database", "real", lambda: (_server_version(url), ""))
    return (url if finding.ok else None), finding


def _server_version(url: str) -> str:
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            row = connection.execute(
                "select current_setting('server_version'), (select extversion from pg_extension where extname = 'vector')"
            ).fetchone()
    except psycopg.Error as error:
        raise AtlasError("database_unreachable", sqlstate=error.sqlstate) from None
    return f"{row[0]}, pgvector {row[1] or 'missing'}" if row else ""


def _missing(url: str) -> bool:
    """Whether the tables can't be asked: the finding on migrations says why."""
    try:
        return bool(pending(url))
    except AtlasError:
        return True


def _migrations(url: str) -> tuple[str, str]:
    missing = pending(url)
    if missing:
        raise AtlasError("migrations_pending", count=len(missing))
    return "", "all applied"


def _dagster(settings: Settings) -> tuple[str, str]:
    urls = database_urls(settings)
    plain = urls.dagster.replace("postgresql+psycopg2://", "postgresql://", 1)
    try:
        with psycopg.connect(plain, connect_timeout=5):
            return "", f"database {DAGSTER_DATABASE}" if urls.embedded else "as configured"
    except psycopg.Error as error:
        raise AtlasError("dagster_database_unreachable", sqlstate=error.sqlstate) from None


def _mailbox(parts: Parts) -> Finding:
    settings = parts.settings
    kind = "demo" if settings.imap_url is None and settings.demo else "real"

    def look() -> tuple[str, str]:
        with parts.source() as source:
            listing = source.list(above_uid=None)
            return "", f"{source.mailbox}, {sum(not mail.seen for mail in listing.mails)} unread"

    return _guarded("mailbox", kind, look)


def _rest_no_longer(parts: Parts) -> None:
    """The mailbox answers: the next look need not wait for the end of the pause that its failures have brought about."""
    with contextlib.suppress(AtlasError):  # what is wrong with the database is a finding of its own
        mailbox = parts.source().mailbox
        with parts.db.transaction() as conn:
            mailboxes.rest_no_longer(conn, mailbox)


def _antivirus(parts: Parts) -> tuple[str, str]:
    found = scanning.asked(parts)
    if not found.version.signatures:
        return found.version.engine, "test signatures only: not a protection"
    detail = f"signatures {found.version.signatures}, {found.age_days or 0:.1f} days old"
    return found.version.engine, detail + (f": {found.objection}" if found.objection else "")


def _ocr(parts: Parts) -> tuple[str, str]:
    parts.ocr_engine.check()
    return parts.ocr_engine.version(), f"languages {parts.ocr_engine.languages}"


def _program(name: str, flag: str) -> tuple[str, str]:
    found = shutil.which(name)
    if found is None:
        raise AtlasError("program_missing", program=name)
    try:
        done = subprocess.run(
            [found, flag],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise AtlasError("program_not_answering", program=name) from None
    if done.returncode != 0:
        raise AtlasError("program_failed", program=name, exit_status=done.returncode)
    return done.stdout.strip().splitlines()[0][:80] if done.stdout.strip() else "", ""


def _browser(settings: Settings) -> tuple[str, str]:
    """Not only the program: the driver that steers it has needs of its own."""
    version, _ = _program(settings.chromium, "--version")
    BrowserChecker(settings.chromium).probe()
    return version, ""


def _ai(parts: Parts) -> Finding:
    """No paid call is made: what is said is which provider serves which task, and that the routing file is in order."""
    settings = parts.settings
    keys = (settings.mistral_api_key, settings.anthropic_api_key, settings.openai_api_key, settings.voyage_api_key)
    kind = "real" if settings.ai_routing is not None or any(keys) else "embedded"
    return _guarded("ai", kind, lambda: _served(parts))


def _served(parts: Parts) -> tuple[str, str]:
    router = parts.router
    classifying = router.classifiers
    embedding = router.embedding
    detail = f"then {', '.join(classifying[1:])}; " if classifying[1:] else ""
    detail += f"embeds with {embedding.provider.name}/{embedding.model}" if embedding else ""
    return classifying[0], f"{detail}; keys not tried"


def _agent_kind(settings: Settings) -> str:
    return (
        "demo" if settings.demo and settings.agent_bin is not None and "standin" in settings.agent_bin.parts else "real"
    )


def _agent(parts: Parts) -> tuple[str, str]:
    version, _ = _program(str(parts.agent_bin), "--version")
    if "Claude Code" not in version:
        raise AtlasError("agent_unrecognised", program=parts.agent_bin.name)
    return version, f"model {parts.settings.agent_model}"


def _hooks(url: str) -> tuple[str, str]:
    """Whether the agents' hooks could note an event: their role may sign in, and call the one function that is theirs."""
    spawns.hook_coordinates(url)
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            row = connection.execute(
                "select to_regprocedure('atlas.note_hook(text, text, jsonb)') is not null"
            ).fetchone()
    except psycopg.Error as error:
        raise AtlasError("agent_database_unreachable", sqlstate=error.sqlstate) from None
    if row is None or not row[0]:
        raise AtlasError("agent_database_without_hooks")
    return "", f"role {spawns.HOOK_ROLE}"


def _means(parts: Parts) -> tuple[str, str]:
    """Whether an agent could be started now: its model answered the last time, and the day's money is not spent."""
    limit = parts.settings.spawn_day_budget_euros
    with parts.db.transaction() as conn:
        short, spent = standing(conn, parts.settings)
    if short is not None:
        raise AtlasError(short, euros_today=round(spent, 2), limit=limit)
    return "", f"{spent:.2f} of {limit:.2f} euros spent today"


def _mail_exit(parts: Parts) -> tuple[str, str]:
    settings = parts.settings
    parts.mail_exit()
    if not settings.team_recipients or not settings.mail_from:
        raise AtlasError("recipients_missing" if settings.mail_from else "mail_from_missing")
    strangers = [
        address for address in settings.team_recipients if address.rsplit("@", 1)[-1] not in settings.team_domains
    ]
    if strangers:
        raise AtlasError("recipient_outside_team_domains", count=len(strangers))
    parts.mail_exit().check()
    way = "smtp" if settings.smtp_url else f"folder {settings.outbox_dir}"
    return "", f"{way}, {len(settings.team_recipients)} recipients"


def _phase(parts: Parts) -> tuple[str, str]:
    with parts.db.transaction() as conn:
        phase = phases.current(conn)["phase"]
    whose = "every client" if phase == phases.OPEN else "internal tenants alone"
    return "", f"{phase}: agents commit and deploy for {whose}"


def _exit_guard(parts: Parts) -> Finding:
    """Hostile mails against the allow-list as it is set; where nobody is named yet, nothing can leave and nothing be tried."""
    settings = parts.settings
    if not settings.team_recipients and not settings.team_domains:
        return Finding("exit guard", "absent", ok=False, detail="team_recipients_not_configured: no mail can leave")
    return _guarded("exit guard", "real", lambda: ("", f"{recapping.prove_guard(parts)} hostile mails refused"))


def _senders(parts: Parts) -> tuple[str, str]:
    with parts.db.transaction() as conn:
        proven, looked_at = overview.authenticated(conn)
    return "", f"{proven} of the last {looked_at} mails authenticated"


def _inbox(parts: Parts) -> tuple[str, str]:
    with parts.db.transaction() as conn:
        troubles = {name: count for name, count in overview.health(conn).items() if count}
        alarms = audit.recent_alerts(conn, 3)
    told = [*(f"{name} {count}" for name, count in troubles.items()), *(f"alarm {alarm['code']}" for alarm in alarms)]
    return "", "; ".join(told) or "nothing waits for a human"


COMMANDS = [doctor]
