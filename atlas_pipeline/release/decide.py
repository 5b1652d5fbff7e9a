"""What follows once an agent has ended: deploy, look, tell, try again or call a human. Pure functions.

The caller does what ``next`` says, writes ``status`` where it is not None, and asks again with what it then knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from atlas_pipeline.model import Contract, DeployResult, Intent, Profile, QaResult, RouteCheck, Status
from atlas_pipeline.release.compare import Fault, faults, old_sentences, open_faults
from atlas_pipeline.release.deploy import describe
from atlas_pipeline.release.wording import one_line, problems

Next = Literal["deploy", "qa", "recap", "retry", "escalate"]
MAX_SENTENCES = 20
OUTPUT_LINES = 10
BROWSER_UNAVAILABLE = "browser_unavailable"
CA_UNREADABLE = "qa_ca_file_unreadable"
OLD = " (there before the change: mend it if the request is about it)"


@dataclass(frozen=True)
class ReleaseDecision:
    """The next step; ``status`` is the tracking row's new one, None while it stays ``spawning``. ``code`` says why."""

    next: Next
    status: Status | None
    code: str


@dataclass(frozen=True)
class Past:
    """How the attempt before this one in the same round ended."""

    deploy: DeployResult
    qa: QaResult | None


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
    before: QaResult | None = None,
    past: Past | None = None,
) -> ReleaseDecision:
    """Decide for the final ``intent`` (after the contract's downgrade) and ``commits``, those that git counts in this attempt.

    ``before`` is the site as it was before the message changed anything: a fault that stands there already does not fail
    the attempt (``compare.open_faults`` says which does all the same). ``past`` is the attempt before: one without a new
    commit deploys what is there again, and the same failure once more ends the loop.

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
    if commits < 1 and past is None:
        return ReleaseDecision("escalate", Status.ESCALATED, "chantier_without_commits")
    last = attempt >= max_attempts
    # At the last attempt nobody can be told any more: what was there before is the recap's.
    told = faults(qa) if last else faults(past.qa if past else None)
    decision = _after_code(deploy, qa, before, named=contract.routes, told=told, last=last)
    if decision.next == "retry" and commits < 1 and past is not None and _same_failure(past, deploy, qa):
        return ReleaseDecision("escalate", Status.ESCALATED, "same_failure_no_new_commit")
    return decision


def _same_failure(past: Past, deploy: DeployResult | None, qa: QaResult | None) -> bool:
    if deploy is not None and not deploy.ok:
        return past.deploy.code == deploy.code
    return past.deploy.ok and past.qa is not None and faults(past.qa) == faults(qa)


def _after_code(
    deploy: DeployResult | None,
    qa: QaResult | None,
    before: QaResult | None,
    *,
    named: tuple[str, ...],
    told: frozenset[Fault],
    last: bool,
) -> ReleaseDecision:
    if deploy is None:
        return ReleaseDecision("deploy", None, "deploy_due")
    if not deploy.ok:
        # No agent can mend a setting: three more sessions would only cost.
        hopeless = deploy.code in {"deploy_not_configured", CA_UNREADABLE}
        return _failed(deploy.code, deploy.code, last=last or hopeless)
    if qa is None:
        return ReleaseDecision("qa", None, "qa_due")
    if qa.ok:
        return ReleaseDecision("recap", Status.ACTIONED, "qa_passed")
    if qa.checks and all(check.ok or not_looked_at(check) for check in qa.checks):
        # The house lacks a browser: no agent can mend that, and three more sessions would only cost.
        return ReleaseDecision("escalate", Status.ESCALATED, _lacking(qa))
    if qa.checks and not open_faults(before, qa, named=named, told=told):
        return ReleaseDecision("recap", Status.ACTIONED, "qa_passed_but_old_faults")
    return _failed("qa_failed", "qa_failed_max_attempts", last=last)


def not_looked_at(check: RouteCheck) -> bool:
    """Whether the check failed because there was nothing to look with, and no page was seen."""
    return any(error.startswith((f"{BROWSER_UNAVAILABLE}:", f"{CA_UNREADABLE}:")) for error in check.errors)


def _lacking(qa: QaResult) -> str:
    codes = {error.partition(":")[0] for check in qa.checks for error in check.errors if not_looked_at(check)}
    return CA_UNREADABLE if CA_UNREADABLE in codes else BROWSER_UNAVAILABLE


def _failed(code: str, last_code: str, *, last: bool) -> ReleaseDecision:
    if last:
        return ReleaseDecision("escalate", Status.ESCALATED, last_code)
    return ReleaseDecision("retry", Status.QA_FAILED, code)


def feedback(
    qa: QaResult | None, deploy: DeployResult | None, before: QaResult | None = None
) -> tuple[list[str], list[str]]:
    """What the next attempt is told: problems over HTTP (a failed deployment among them) and problems in the browser.

    At most 20 sentences each, in the order of the checks; notes are left out, and what was there ``before`` the change
    is marked. The words are partly the site's: data for a model, not orders.
    """
    old = set(old_sentences(before, qa)) if qa else set()
    http_errors = [] if deploy is None or deploy.ok else [describe(deploy), *_last_lines(deploy)]
    browser_errors: list[str] = []
    for check in qa.checks if qa else ():
        if not check.ok:
            (http_errors if check.level == "http" else browser_errors).extend(
                one_line(sentence, 230) + OLD if sentence in old else sentence for sentence in problems(check)
            )
    return _bounded(http_errors), _bounded(browser_errors)


def _last_lines(deploy: DeployResult) -> list[str]:
    lines = [line for line in deploy.output_tail.splitlines() if line.strip()]
    return [f"Deploy output: {line}" for line in lines[-OUTPUT_LINES:]]


def _bounded(sentences: list[str]) -> list[str]:
    return [one_line(sentence) for sentence in dict.fromkeys(sentences)][:MAX_SENTENCES]
