"""The decision after an agent has ended: the table of the specification, and that it is total."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_pipeline.model import Contract, DeployResult, Intent, Profile, QaResult, RouteCheck, Status
from atlas_pipeline.release.decide import ReleaseDecision, decide, feedback
from atlas_pipeline.release.wording import note

GOOD_DEPLOY = DeployResult(ok=True, code="deployed", exit_status=0, seconds=1.0, commit="abcdef1")
BAD_DEPLOY = DeployResult(
    ok=False, code="deploy_exit_nonzero", exit_status=3, seconds=1.0, commit="abcdef1", output_tail="one\n\ntwo\n"
)
GOOD = RouteCheck("/x", "browser", ok=True, status=200, milliseconds=1)
BAD = RouteCheck("/x", "http", ok=False, status=500, milliseconds=1, errors=("GET /x answered 500",))


def contract(status: str = "ok") -> Contract:
    return Contract(status, "acme", ("/x",), ("abcdef1",), summary="", draft_reply="", intent=None)


def ask(**changes: Any) -> ReleaseDecision:
    facts: dict[str, Any] = {
        "intent": Intent.CHANTIER,
        "profile": Profile.WRITE,
        "contract": contract(),
        "commits": 1,
        "zones_ok": True,
        "deploy": None,
        "qa": None,
        "attempt": 1,
        "max_attempts": 3,
    }
    return decide(**(facts | changes))


def test_a_finished_chantier_is_deployed_then_checked_then_told() -> None:
    """The way of the specification's drawing."""
    assert ask() == ReleaseDecision("deploy", None, "deploy_due")
    assert ask(deploy=GOOD_DEPLOY) == ReleaseDecision("qa", None, "qa_due")
    passed = ReleaseDecision("recap", Status.ACTIONED, "qa_passed")
    assert ask(deploy=GOOD_DEPLOY, qa=QaResult((GOOD,))) == passed


@pytest.mark.parametrize("intent", [Intent.QUESTION, Intent.NEGOCIATION, Intent.RUN])
def test_what_produces_no_code_goes_straight_to_the_recap(intent: Intent) -> None:
    """A run's commits are listed, never deployed."""
    assert ask(intent=intent) == ReleaseDecision("recap", Status.ACTIONED, "no_code")


@pytest.mark.parametrize("status", ["partial", "failed", "missing", ""])
@pytest.mark.parametrize("intent", list(Intent))
def test_a_contract_that_is_not_ok_makes_one_recap_and_calls_a_human(status: str, intent: Intent) -> None:
    """Whatever the intent."""
    expected = ReleaseDecision("recap", Status.ESCALATED, "contract_not_ok")
    assert ask(contract=contract(status), intent=intent) == expected


@pytest.mark.parametrize("intent", [Intent.CHANTIER, Intent.RUN])
def test_commits_outside_the_zones_are_escalated_before_anything_else(intent: Intent) -> None:
    """A run's commits too: nobody may leave the tenant's zones."""
    expected = ReleaseDecision("escalate", Status.ESCALATED, "commit_outside_zones")
    assert ask(zones_ok=False, intent=intent, contract=contract("partial")) == expected


@pytest.mark.parametrize("profile", [Profile.READ, Profile.DRAFT])
def test_a_chantier_without_the_right_to_write_is_a_plan(profile: Profile) -> None:
    """It has nowhere to deploy."""
    assert ask(profile=profile, commits=0) == ReleaseDecision("recap", Status.ACTIONED, "plan_only")


def test_a_chantier_without_commits_is_escalated() -> None:
    """Git counts, not the agent."""
    assert ask(commits=0) == ReleaseDecision("escalate", Status.ESCALATED, "chantier_without_commits")


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        (1, ReleaseDecision("retry", Status.QA_FAILED, "qa_failed")),
        (2, ReleaseDecision("retry", Status.QA_FAILED, "qa_failed")),
        (3, ReleaseDecision("escalate", Status.ESCALATED, "qa_failed_max_attempts")),
        (4, ReleaseDecision("escalate", Status.ESCALATED, "qa_failed_max_attempts")),
    ],
)
def test_failed_checks_are_tried_again_up_to_the_limit(attempt: int, expected: ReleaseDecision) -> None:
    """Then a human."""
    assert ask(deploy=GOOD_DEPLOY, qa=QaResult((GOOD, BAD)), attempt=attempt) == expected


def test_a_report_without_checks_has_not_passed() -> None:
    """Naming no routes is no way through."""
    assert ask(deploy=GOOD_DEPLOY, qa=QaResult(())).next == "retry"


def test_a_missing_browser_calls_a_human_and_not_another_agent() -> None:
    """No agent can install one; a fault that was found beside it is still worth another attempt."""
    unseen = RouteCheck("/x", "browser", ok=False, status=None, milliseconds=0, errors=("browser_unavailable: …",))
    expected = ReleaseDecision("escalate", Status.ESCALATED, "browser_unavailable")
    assert ask(deploy=GOOD_DEPLOY, qa=QaResult((GOOD, unseen))) == expected
    assert ask(deploy=GOOD_DEPLOY, qa=QaResult((BAD, unseen))).next == "retry"


def test_a_failed_deployment_counts_like_failed_checks() -> None:
    """With its own code."""
    assert ask(deploy=BAD_DEPLOY) == ReleaseDecision("retry", Status.QA_FAILED, "deploy_exit_nonzero")
    expected = ReleaseDecision("escalate", Status.ESCALATED, "deploy_exit_nonzero")
    assert ask(deploy=BAD_DEPLOY, attempt=3) == expected


def test_a_tenant_without_a_deploy_command_is_not_tried_again() -> None:
    """No agent can mend a setting."""
    missing = DeployResult(ok=False, code="deploy_not_configured", exit_status=None, seconds=0.0, commit=None)
    assert ask(deploy=missing) == ReleaseDecision("escalate", Status.ESCALATED, "deploy_not_configured")


DEPLOYS = st.one_of(
    st.none(),
    st.builds(
        DeployResult,
        ok=st.booleans(),
        code=st.sampled_from(["deployed", "deploy_timeout", "deploy_not_configured", "deploy_version_mismatch", "?"]),
        exit_status=st.none() | st.integers(-70, 300),
        seconds=st.floats(0, 1e6),
        commit=st.none() | st.text(),
        output_tail=st.text(),
    ),
)
CHECKS = st.builds(
    RouteCheck,
    route=st.text(),
    level=st.sampled_from(["http", "browser"]),
    ok=st.booleans(),
    status=st.none() | st.integers(100, 999),
    milliseconds=st.integers(0),
    errors=st.lists(st.text()).map(tuple),
)
REPORTS = st.none() | st.builds(QaResult, checks=st.lists(CHECKS, max_size=5).map(tuple))


SITUATIONS = st.fixed_dictionaries(
    {
        "intent": st.sampled_from(Intent),
        "profile": st.sampled_from(Profile),
        "contract": st.sampled_from(["ok", "partial", "failed", "missing", ""]).map(contract),
        "commits": st.integers(-1, 5),
        "zones_ok": st.booleans(),
        "deploy": DEPLOYS,
        "qa": REPORTS,
        "attempt": st.integers(-1, 9),
        "max_attempts": st.integers(0, 5),
    }
)


@given(facts=SITUATIONS)
def test_every_situation_has_one_answer_that_keeps_the_rules(facts: dict[str, Any]) -> None:
    """Only a finished chantier with commits under the write profile is deployed, checked or tried again."""
    decision = decide(**facts)
    expected_status: dict[str, set[Status | None]] = {
        "deploy": {None},
        "qa": {None},
        "recap": {Status.ACTIONED, Status.ESCALATED},
        "retry": {Status.QA_FAILED},
        "escalate": {Status.ESCALATED},
    }
    assert decision.status in expected_status[decision.next]
    assert decision.code
    finished = facts["contract"].ok and facts["zones_ok"] and facts["commits"] > 0
    releasable = facts["intent"] is Intent.CHANTIER and facts["profile"] is Profile.WRITE and finished
    if decision.next in {"deploy", "qa", "retry"}:
        assert releasable
    if decision.next == "retry":
        assert facts["attempt"] < facts["max_attempts"]
    if releasable and decision.status is Status.ACTIONED:
        assert facts["deploy"].ok
        assert facts["qa"].ok


@given(qa=REPORTS, deploy=DEPLOYS)
def test_feedback_is_bounded_lines_whatever_the_site_said(qa: QaResult | None, deploy: DeployResult | None) -> None:
    """It becomes part of a prompt."""
    for sentences in feedback(qa, deploy):
        assert len(sentences) <= 20
        assert all(len(sentence) <= 300 and sentence.isprintable() for sentence in sentences)


def test_feedback_tells_levels_apart_and_leaves_out_what_passed() -> None:
    """Notes fail nothing, so the next attempt has nothing to do about them."""
    browser = RouteCheck(
        "/x", "browser", ok=False, status=200, milliseconds=1, errors=("JavaScript error", note("cdn"))
    )
    noted = RouteCheck("/y", "browser", ok=True, status=200, milliseconds=1, errors=(note("stats"),))
    assert feedback(QaResult((BAD, browser, noted)), GOOD_DEPLOY) == (["GET /x answered 500"], ["JavaScript error"])


def test_feedback_on_a_failed_deployment_holds_the_end_of_its_output() -> None:
    """Where the reason usually stands."""
    http_errors, browser_errors = feedback(None, BAD_DEPLOY)
    assert http_errors == ["The deploy command ended with exit code 3.", "Deploy output: one", "Deploy output: two"]
    assert browser_errors == []
