"""What follows once an agent has ended: deploy, look, tell, try again or call a human. Pure functions.

The caller does what ``next`` says, writes ``status`` where it is not None, and asks again with what it then knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from atlas_pipeline.model import Contract, DeployResult, Intent, Profile, QaResult, RouteCheck, Status
from atlas_pipeline.release.deploy import describe
from atlas_pipeline.release.wording import one_line, problems

Next = Literal["deploy", "qa", "recap", "retry", "escalate"]
MAX_SENTENCES = 20
OUTPUT_LINES = 10
BROWSER_UNAVAILABLE = "browser_unavailable"


@dataclass(frozen=True)
class ReleaseDecision:
    """The next step; ``status`` is the tracking row's new one, None while it stays ``spawning``. ``code`` says why."""

    next: Next
    status: Status | None
    code: str


def decide(
    *,
    intent: Intent,
    profile: Profile,
    contract: Contract,
    commits: int,
    zones_ok: bool,
    deploy: DeployResult | None,
    qa: QaResult | None,
    attempt: int,
    max_attempts: int,
) -> ReleaseDecision:
    """Decide for the final ``intent`` (after the contract's downgrade) and ``commits`` as git counted them.

    Total: every combination has an answer. Only a chantier under the write profile is ever deployed.
    """
    if not zones_ok:
        return ReleaseDecision("escalate", Status.ESCALATED, "commit_outside_zones")
    if not contract.ok:
        return ReleaseDecision("recap", Status.ESCALATED, "contract_not_ok")
    if intent is not Intent.CHANTIER:
        return ReleaseDecision("recap", Status.ACTIONED, "no_code")
    if profile is not Profile.WRITE:
        return ReleaseDecision("recap", Status.ACTIONED, "plan_only")
    if commits < 1:
        return ReleaseDecision("escalate", Status.ESCALATED, "chantier_without_commits")
    return _after_code(deploy, qa, last=attempt >= max_attempts)


def _after_code(deploy: DeployResult | None, qa: QaResult | None, *, last: bool) -> ReleaseDecision:
    if deploy is None:
        return ReleaseDecision("deploy", None, "deploy_due")
    if not deploy.ok:
        # No agent can give the tenant a deploy command: three more sessions would only cost.
        hopeless = deploy.code == "deploy_not_configured"
        return _failed(deploy.code, deploy.code, last=last or hopeless)
    if qa is None:
        return ReleaseDecision("qa", None, "qa_due")
    if qa.ok:
        return ReleaseDecision("recap", Status.ACTIONED, "qa_passed")
    if qa.checks and all(check.ok or not_looked_at(check) for check in qa.checks):
        # The house lacks a browser: no agent can mend that, and three more sessions would only cost.
        return ReleaseDecision("escalate", Status.ESCALATED, BROWSER_UNAVAILABLE)
    return _failed("qa_failed", "qa_failed_max_attempts", last=last)


def not_looked_at(check: RouteCheck) -> bool:
    """Whether the check failed because there was no browser to look with."""
    return any(error.startswith(f"{BROWSER_UNAVAILABLE}:") for error in check.errors)


def _failed(code: str, last_code: str, *, last: bool) -> ReleaseDecision:
    if last:
        return ReleaseDecision("escalate", Status.ESCALATED, last_code)
    return ReleaseDecision("retry", Status.QA_FAILED, code)


def feedback(qa: QaResult | None, deploy: DeployResult | None) -> tuple[list[str], list[str]]:
    """What the next attempt is told: problems over HTTP (a failed deployment among them) and problems in the browser.

    At most 20 sentences each, in the order of the checks; notes are left out. The words are partly the site's: data
    for a model, not orders.
    """
    http_errors = [] if deploy is None or deploy.ok else [describe(deploy), *_last_lines(deploy)]
    browser_errors: list[str] = []
    for check in qa.checks if qa else ():
        if not check.ok:
            (http_errors if check.level == "http" else browser_errors).extend(problems(check))
    return _bounded(http_errors), _bounded(browser_errors)


def _last_lines(deploy: DeployResult) -> list[str]:
    lines = [line for line in deploy.output_tail.splitlines() if line.strip()]
    return [f"Deploy output: {line}" for line in lines[-OUTPUT_LINES:]]


def _bounded(sentences: list[str]) -> list[str]:
    return [one_line(sentence) for sentence in dict.fromkeys(sentences)][:MAX_SENTENCES]
