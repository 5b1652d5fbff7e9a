"""Deployments and QA reports: one of each a message, round and attempt, written before they start and settled after."""

from __future__ import annotations

from dataclasses import asdict

from psycopg.types.json import Jsonb

from atlas_pipeline.model import DeployResult, QaResult, RouteCheck
from atlas_pipeline.store.database import Connection
from atlas_pipeline.text import clean_json, clean_text


def begin_deployment(conn: Connection, key: str, round_: int, attempt: int, *, tenant: str, commit: str) -> None:
    """The row that says a deployment is about to start; one left unsettled by a crash is started over."""
    conn.execute(
        "insert into atlas.deployments (message_key, round, attempt, tenant, commit) values (%s, %s, %s, %s, %s) "
        "on conflict (message_key, round, attempt) do update set status = 'started', started_at = now(), commit = excluded.commit",
        (key, round_, attempt, tenant, commit),
    )


def note_deploy_pid(conn: Connection, key: str, round_: int, attempt: int, pid: int) -> None:
    """The deploy command runs under this process id."""
    conn.execute(
        "update atlas.deployments set pid = %s where message_key = %s and round = %s and attempt = %s",
        (pid, key, round_, attempt),
    )


def abandoned(conn: Connection, tenant: str) -> list[int]:
    """Process ids of this tenant's deployments without an end. Under the tenant's lock none of them has an owner."""
    rows = conn.execute(
        "select pid from atlas.deployments where tenant = %s and status = 'started' and pid is not null", (tenant,)
    )
    return [row["pid"] for row in rows]


def settle_deployment(conn: Connection, key: str, round_: int, attempt: int, result: DeployResult) -> None:
    """How the deployment went."""
    conn.execute(
        "update atlas.deployments set status = %s, code = %s, exit_status = %s, seconds = %s, output_tail = %s, ended_at = now() "
        "where message_key = %s and round = %s and attempt = %s",
        (
            "ok" if result.ok else "failed",
            result.code,
            result.exit_status,
            result.seconds,
            clean_text(result.output_tail),
            key,
            round_,
            attempt,
        ),
    )


def deployment(conn: Connection, key: str, round_: int, attempt: int) -> DeployResult | None:
    """The settled deployment of this attempt, or None."""
    row = conn.execute(
        "select status, code, exit_status, seconds, commit, output_tail from atlas.deployments "
        "where message_key = %s and round = %s and attempt = %s and status <> 'started'",
        (key, round_, attempt),
    ).fetchone()
    if row is None:
        return None
    return DeployResult(
        ok=row["status"] == "ok",
        code=row["code"],
        exit_status=row["exit_status"],
        seconds=row["seconds"],
        commit=row["commit"],
        output_tail=row["output_tail"] or "",
    )


def begin_qa(conn: Connection, key: str, round_: int, attempt: int) -> int:
    """The row that says the checks are about to start; its id."""
    row = conn.execute(
        "insert into atlas.qa_reports (message_key, round, attempt) values (%s, %s, %s) on conflict (message_key, round, attempt) "
        "do update set status = 'started', started_at = now() returning id",
        (key, round_, attempt),
    ).fetchone()
    assert row is not None  # noqa: S101  # insert … returning yields a row or raises
    return int(row["id"])


def settle_qa(conn: Connection, report_id: int, result: QaResult) -> None:
    """What the checks found, in their order."""
    conn.execute("delete from atlas.qa_checks where report_id = %s", (report_id,))
    for position, check in enumerate(result.checks):
        conn.execute(
            "insert into atlas.qa_checks (report_id, position, route, level, ok, http_status, milliseconds, errors, screenshot, "
            "phone_screenshot) values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (
                report_id,
                position,
                clean_text(check.route),
                check.level,
                check.ok,
                check.status,
                check.milliseconds,
                [clean_text(error) for error in check.errors],
                check.screenshot,
                check.phone_screenshot,
            ),
        )
    conn.execute(
        "update atlas.qa_reports set status = %s, ended_at = now() where id = %s",
        ("passed" if result.ok else "failed", report_id),
    )


def qa(conn: Connection, key: str, round_: int, attempt: int) -> QaResult | None:
    """The settled report of this attempt, or None."""
    report = conn.execute(
        "select id from atlas.qa_reports where message_key = %s and round = %s and attempt = %s and status <> 'started'",
        (key, round_, attempt),
    ).fetchone()
    if report is None:
        return None
    rows = conn.execute(
        "select route, level, ok, http_status as status, milliseconds, errors, screenshot, phone_screenshot from atlas.qa_checks "
        "where report_id = %s order by position",
        (report["id"],),
    )
    return QaResult(tuple(RouteCheck(**{**row, "errors": tuple(row["errors"])}) for row in rows))


def save_before(conn: Connection, key: str, tenant: str, result: QaResult) -> None:
    """The site as it was before this message changed anything; what is there already stays."""
    conn.execute(
        "insert into atlas.sites_before (message_key, tenant, checks) values (%s, %s, %s) on conflict (message_key) do nothing",
        (key, tenant, Jsonb(clean_json([asdict(check) for check in result.checks]))),
    )


def before(conn: Connection, key: str) -> QaResult | None:
    """The site as it was before this message changed anything, or None where nobody looked."""
    row = conn.execute("select checks from atlas.sites_before where message_key = %s", (key,)).fetchone()
    if row is None:
        return None
    return QaResult(tuple(RouteCheck(**{**check, "errors": tuple(check["errors"])}) for check in row["checks"]))


def was_deployed(conn: Connection, key: str) -> bool:
    """Whether a deployment for this message was ever begun."""
    row = conn.execute("select exists (select from atlas.deployments where message_key = %s) as was", (key,)).fetchone()
    return bool(row and row["was"])


def stands(conn: Connection, key: str, round_: int, attempt: int, tenant: str) -> bool:
    """Whether this attempt's deployment is the tenant's newest, so that what its site shows is this attempt's."""
    row = conn.execute(
        "select message_key, round, attempt from atlas.deployments where tenant = %s order by started_at desc, id desc limit 1",
        (tenant,),
    ).fetchone()
    return row == {"message_key": key, "round": round_, "attempt": attempt}
