"""After an agent ended ok: deploy and check, as far as the decision asks, each step preceded by a row that says so."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from atlas_pipeline.errors import AtlasError, NotConfigured
from atlas_pipeline.flow.evidence import Evidence, gather
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import Outcome, StageDone
from atlas_pipeline.model import DeployResult, QaResult, RouteCheck, Status, Tenant
from atlas_pipeline.release.address import with_login
from atlas_pipeline.release.decide import ReleaseDecision
from atlas_pipeline.release.deploy import confirm_version, deploy
from atlas_pipeline.release.http_check import Limits
from atlas_pipeline.release.processes import stop_abandoned
from atlas_pipeline.release.qa import Site, run_qa
from atlas_pipeline.store import audit, releases, tracking
from atlas_pipeline.store.locks import message_lock, tenant_lock

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
    evidence = _evidence(parts, key, attempt)
    if evidence is not None and evidence.tenant is not None and _decided(parts, evidence).next in ("deploy", "qa"):
        # Two messages must not mix on one site: what is checked has to be what was deployed. Waiting costs a process
        # that does nothing, a refusal a run, of which a message has only so many.
        wait_seconds = 2.0 * parts.settings.deploy_timeout_seconds
        with tenant_lock(parts.database_url, evidence.tenant.slug, wait_seconds=wait_seconds) as taken:
            if not taken:
                return StageDone(STAGE, key, Outcome.REFUSED, {"code": "tenant_locked"})
            evidence = _deploy_and_check(parts, key, attempt)
    if evidence is None:
        return StageDone(STAGE, key, Outcome.UNCHANGED)
    decision = _decided(parts, evidence)
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


def _evidence(parts: Parts, key: str, attempt: int) -> Evidence | None:
    with parts.db.transaction() as conn:
        evidence = gather(conn, tracking.require(conn, key), attempt)
    return evidence if evidence is not None and evidence.state.status is Status.SPAWNING else None


def _decided(parts: Parts, evidence: Evidence) -> ReleaseDecision:
    return evidence.decide(parts.settings.max_attempts)


def _deploy_and_check(parts: Parts, key: str, attempt: int) -> Evidence | None:
    """Do what the decision asks for until it asks for something else; the tenant's lock is held."""
    while evidence := _evidence(parts, key, attempt):
        step = _decided(parts, evidence).next
        if step == "deploy":
            _look_before(parts, evidence)
            _deploy(parts, evidence)
        elif step == "qa":
            if not _stands(parts, evidence):
                _deploy(parts, evidence)  # another message's work is on the site: a crash let go of the lock
            else:
                _qa(parts, evidence)
        else:
            break
    return evidence


def _stands(parts: Parts, evidence: Evidence) -> bool:
    state, spawn, tenant = evidence.state, evidence.spawn, evidence.tenant
    assert tenant is not None  # noqa: S101  # without a tenant nothing was deployed
    with parts.db.transaction() as conn:
        return releases.stands(conn, state.message_key, state.round, spawn.attempt, tenant.slug)


def _look_before(parts: Parts, evidence: Evidence) -> None:
    """Measure the site before the message's first deployment, the default routes too: a later attempt may name others."""
    key, tenant, contract = evidence.state.message_key, evidence.tenant, evidence.spawn.contract
    assert tenant is not None  # noqa: S101  # without a tenant the decision never says deploy
    assert contract is not None  # noqa: S101
    with parts.db.transaction() as conn:
        if not (tenant.preprod_url and tenant.deploy_command) or releases.was_deployed(conn, key):
            return
    result = _checked(parts, tenant, (*contract.routes, *tenant.default_routes), before_folder(parts, key), before=True)
    with parts.db.transaction() as conn:
        releases.save_before(conn, key, tenant.slug, result)
        failed = sum(not check.ok for check in result.checks)
        audit.record(conn, key, "site_before", actor="release", checks=len(result.checks), failed=failed)


def site_of(parts: Parts, tenant: Tenant) -> Site:
    """The tenant's pre-production site and the way to it; its login of the settings in place of one in its address."""
    url, login = tenant.preprod_url or "", parts.settings.qa_login(tenant.slug)
    return Site(
        with_login(url, login) if login and url else url,
        allowed_hosts=tenant.allowed_hosts,
        ca_file=parts.settings.qa_ca_file,
    )


def _checked(parts: Parts, tenant: Tenant, routes: Sequence[str], folder: Path, *, before: bool = False) -> QaResult:
    settings = parts.settings
    try:
        return run_qa(
            site_of(parts, tenant),
            routes,
            chromium=settings.chromium,
            screenshot_dir=folder,
            timeout_seconds=settings.qa_timeout_seconds,
            limits=Limits(settings.qa_first_byte_seconds, settings.qa_page_bytes),
            only_answering=before,
        )
    except NotConfigured as error:
        sentence = f"{error.code}: the page was not looked at"
        return QaResult(
            tuple(
                RouteCheck(route, "http", ok=False, status=None, milliseconds=0, errors=(sentence,)) for route in routes
            )
        )


def _deploy(parts: Parts, evidence: Evidence) -> None:
    state, spawn, tenant = evidence.state, evidence.spawn, evidence.tenant
    assert tenant is not None  # noqa: S101  # without a tenant the decision never says deploy
    key, commit = state.message_key, evidence.commit
    where = (key, state.round, spawn.attempt)
    _end_abandoned(parts, key, tenant.slug)
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


def _end_abandoned(parts: Parts, key: str, tenant: str) -> None:
    """A deploy command outlives a run worker that was killed; two of them must not write to one site."""
    with parts.db.transaction() as conn:
        left = releases.abandoned(conn, tenant)
    for pid in left:
        if stop_abandoned(pid):
            with parts.db.transaction() as conn:
                audit.record(conn, key, "deploy_abandoned_ended", actor="release", tenant=tenant)


def _confirmed(parts: Parts, evidence: Evidence, result: DeployResult, commit: str) -> DeployResult:
    """Where the tenant offers a version route, the site must say that it serves this commit."""
    tenant = evidence.tenant
    if not result.ok or tenant is None or not tenant.version_route or not tenant.preprod_url:
        return result
    site = site_of(parts, tenant)
    seconds = parts.settings.qa_timeout_seconds
    code = confirm_version(site.base_url, tenant.version_route, commit, seconds, ca_file=site.ca_file)
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
        folder = screenshot_folder(parts, key, state.round, spawn.attempt)
        result = _checked(parts, tenant, spawn.contract.routes or tenant.default_routes, folder)
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


def before_folder(parts: Parts, key: str) -> Path:
    """Where the pictures of the site lie as it was before the message changed anything."""
    return parts.settings.home_dir / "screenshots" / key / "before"


def _facts(evidence: Evidence, code: str) -> dict[str, str | int | float | bool]:
    checks = evidence.qa.checks if evidence.qa else ()
    return {
        "code": code,
        "deployed": evidence.deploy is not None and evidence.deploy.ok,
        "checks": len(checks),
        "failed": sum(not check.ok for check in checks),
        "screenshots": sum(check.screenshot is not None for check in checks),
    }
