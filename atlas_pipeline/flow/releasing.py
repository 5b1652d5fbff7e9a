"""After an agent ended ok: deploy and check, as far as the decision asks, each step preceded by a row that says so."""

from __future__ import annotations

import os
from pathlib import Path

from atlas_pipeline.errors import AtlasError
from atlas_pipeline.flow.evidence import Evidence, gather
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import Outcome, StageDone
from atlas_pipeline.model import DeployResult, QaResult, Status
from atlas_pipeline.release.deploy import confirm_version, deploy
from atlas_pipeline.release.qa import Site, run_qa
from atlas_pipeline.store import audit, releases, tracking
from atlas_pipeline.store.locks import message_lock

STAGE = "qa_report"
# What a deploy command may see of our environment; no secret of ours is among it.
_DEPLOY_ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSH_AUTH_SOCK")


def release(parts: Parts, key: str, attempt: int) -> StageDone:
    """Bring the attempt to the decision that ends it. What is settled already is not done again.

    A failed check puts the message to ``qa_failed`` (the next attempt follows) or leaves it for the recap to escalate.
    """
    with parts.db.transaction() as conn:
        state = tracking.get(conn, key)
    if state is None or state.status is not Status.SPAWNING or state.attempt != attempt:
        return StageDone(STAGE, key, Outcome.UNCHANGED)
    with message_lock(parts.database_url, state.seq) as taken:
        if not taken:
            return StageDone(STAGE, key, Outcome.REFUSED, {"code": "lock_held"})
        return _until_decided(parts, key, attempt)


def _until_decided(parts: Parts, key: str, attempt: int) -> StageDone:
    while True:
        with parts.db.transaction() as conn:
            evidence = gather(conn, tracking.require(conn, key), attempt)
        if evidence is None or evidence.state.status is not Status.SPAWNING:
            return StageDone(STAGE, key, Outcome.UNCHANGED)
        decision = evidence.decide(parts.settings.max_attempts)
        if decision.next == "deploy":
            _deploy(parts, evidence)
        elif decision.next == "qa":
            _qa(parts, evidence)
        else:
            break
    if decision.next == "retry":
        with parts.db.transaction() as conn:
            tracking.move(
                conn,
                key,
                expected=[Status.SPAWNING],
                to=Status.QA_FAILED,
                action="qa_failed",
                actor="release",
                reason_code=decision.code,
                attempt=attempt,
            )
    return StageDone(
        STAGE, key, Outcome.DONE if evidence.deploy else Outcome.NOT_NEEDED, _facts(evidence, decision.code)
    )


def _deploy(parts: Parts, evidence: Evidence) -> None:
    state, spawn, tenant = evidence.state, evidence.spawn, evidence.tenant
    assert tenant is not None  # noqa: S101  # without a tenant the decision never says deploy
    key, commit = state.message_key, spawn.commits[-1]
    where = (key, state.round, spawn.attempt)
    with parts.db.transaction() as conn:
        releases.begin_deployment(conn, *where, tenant=tenant.slug, commit=commit)
        audit.record(conn, key, "deploy_started", actor="release", attempt=spawn.attempt, tenant=tenant.slug)

    def note_pid(pid: int) -> None:
        with parts.db.transaction() as conn:
            releases.note_deploy_pid(conn, *where, pid)

    try:
        result = deploy(
            tenant.deploy_command,
            commit=commit,
            work_tree=parts.settings.home_dir / "worktrees" / key,
            timeout_seconds=parts.settings.deploy_timeout_seconds,
            environment={name: os.environ[name] for name in _DEPLOY_ENVIRONMENT if name in os.environ},
            on_started=note_pid,
        )
        result = _confirmed(parts, evidence, result, commit)
    except AtlasError as error:
        result = DeployResult(ok=False, code=error.code, exit_status=None, seconds=0.0, commit=commit)
    with parts.db.transaction() as conn:
        releases.settle_deployment(conn, *where, result)
        audit.record(
            conn,
            key,
            "deployed" if result.ok else "deploy_failed",
            actor="release",
            code=result.code,
            seconds=round(result.seconds, 1),
        )


def _confirmed(parts: Parts, evidence: Evidence, result: DeployResult, commit: str) -> DeployResult:
    """Where the tenant offers a version route, the site must say that it serves this commit."""
    tenant = evidence.tenant
    if not result.ok or tenant is None or not tenant.version_route or not tenant.preprod_url:
        return result
    code = confirm_version(tenant.preprod_url, tenant.version_route, commit, parts.settings.qa_timeout_seconds)
    if code == "ok":
        return result
    return DeployResult(
        ok=False,
        code=code,
        exit_status=result.exit_status,
        seconds=result.seconds,
        commit=commit,
        output_tail=result.output_tail,
    )


def _qa(parts: Parts, evidence: Evidence) -> None:
    state, spawn, tenant = evidence.state, evidence.spawn, evidence.tenant
    assert tenant is not None  # noqa: S101  # without a tenant nothing was deployed
    assert spawn.contract is not None  # noqa: S101
    key = state.message_key
    with parts.db.transaction() as conn:
        report = releases.begin_qa(conn, key, state.round, spawn.attempt)
    if tenant.preprod_url:
        result = run_qa(
            Site(tenant.preprod_url),
            spawn.contract.routes or tenant.default_routes,
            chromium=parts.settings.chromium,
            screenshot_dir=screenshot_folder(parts, key, state.round, spawn.attempt),
            timeout_seconds=parts.settings.qa_timeout_seconds,
        )
    else:
        result = QaResult(())
    with parts.db.transaction() as conn:
        releases.settle_qa(conn, report, result)
        failed = sum(not check.ok for check in result.checks)
        audit.record(
            conn,
            key,
            "qa_passed" if result.ok else "qa_not_passed",
            actor="release",
            attempt=spawn.attempt,
            checks=len(result.checks),
            failed=failed,
        )


def screenshot_folder(parts: Parts, key: str, round_: int, attempt: int) -> Path:
    """Where the pictures of one attempt lie."""
    return parts.settings.home_dir / "screenshots" / key / f"{round_}-{attempt}"


def _facts(evidence: Evidence, code: str) -> dict[str, str | int | float | bool]:
    checks = evidence.qa.checks if evidence.qa else ()
    return {
        "code": code,
        "deployed": evidence.deploy is not None and evidence.deploy.ok,
        "checks": len(checks),
        "failed": sum(not check.ok for check in checks),
        "screenshots": sum(check.screenshot is not None for check in checks),
    }
