"""Faults that a change brought, told apart from those that were there before it; and what that means for the loop."""

from __future__ import annotations

import pytest

from atlas_pipeline.model import DeployResult, QaResult, RouteCheck, Status
from atlas_pipeline.release.compare import Fault, faults, old_sentences, open_faults
from atlas_pipeline.release.decide import OLD, Past, ReleaseDecision, feedback
from tests.release.test_release_decide import BAD_DEPLOY, GOOD_DEPLOY, ask

JS = "JavaScript error on /x: ReferenceError: f is not defined (at /static/app.js:17:3)"


def check(route: str, *errors: str, status: int | None = 200, level: str = "browser") -> RouteCheck:
    return RouteCheck(route, level, ok=not errors, status=status, milliseconds=1, errors=errors)


def report(*checks: RouteCheck) -> QaResult:
    return QaResult(checks)


OLD_FAULT = report(check("/x", JS))
PASSED = ReleaseDecision("recap", Status.ACTIONED, "qa_passed_but_old_faults")
RETRY = ReleaseDecision("retry", Status.QA_FAILED, "qa_failed")


@pytest.mark.parametrize(
    "again",
    [
        JS,
        JS.replace(":17:3", ":412:9"),
        JS.replace("app.js", "app.js?v=7"),
        "JavaScript error on /x: ReferenceError: f is not defined (at /static/app.js:1:1)",
    ],
)
def test_a_fault_is_known_again_after_an_edit_moved_it(again: str) -> None:
    """A line more above it mends nothing and breaks nothing."""
    assert open_faults(OLD_FAULT, report(check("/x", again)), named=(), told=()) == frozenset()
    assert old_sentences(OLD_FAULT, report(check("/x", again))) == [again]


def test_the_hash_in_an_assets_name_makes_no_new_fault() -> None:
    """A build gives each asset a new one."""
    one = report(check("/x", "GET /app-3f9a1c77.js on /x answered 404 Not Found"))
    two = report(check("/x", "GET /app-0b12dd45.js on /x answered 404 Not Found"))
    assert faults(one) == faults(two)


@pytest.mark.parametrize(
    "other",
    [
        check("/y", JS),
        check("/x", JS, level="http"),
        check("/x", JS.replace("f is", "g is")),
        check("/x", JS, "Console error on /x: more"),
    ],
)
def test_another_route_level_or_sentence_is_a_fault_of_the_change(other: RouteCheck) -> None:
    """Nothing is excused by likeness."""
    assert len(open_faults(OLD_FAULT, report(other), named=(), told=faults(OLD_FAULT))) == 1


def test_an_old_fault_on_a_route_that_the_agent_named_fails_until_the_agent_was_told() -> None:
    """It may be what the request is about; who has been told and left it there has judged that it is not."""
    (fault,) = open_faults(OLD_FAULT, OLD_FAULT, named=("/x",), told=())
    assert fault == Fault("/x", "browser", JS.replace(":17:3", ""))
    assert open_faults(OLD_FAULT, OLD_FAULT, named=("/x",), told=faults(OLD_FAULT)) == frozenset()
    assert open_faults(OLD_FAULT, OLD_FAULT, named=("/y",), told=()) == frozenset()


@pytest.mark.parametrize("status", [None, 401, 500])
def test_a_page_that_does_not_come_shows_nothing_of_the_change(status: int | None) -> None:
    """A site that was down before and is down now has not passed; one broken page elsewhere is only reported."""
    down = report(check("/x", "GET /x failed", status=status))
    assert open_faults(down, down, named=("/x",), told=faults(down))
    assert open_faults(down, down, named=(), told=faults(down))
    beside = report(*down.checks, check("/y"))
    assert open_faults(down, beside, named=("/y",), told=()) == frozenset()


def test_without_a_look_before_everything_is_the_changes() -> None:
    assert len(open_faults(None, OLD_FAULT, named=(), told=())) == 1


def test_old_faults_do_not_fail_an_attempt_and_new_ones_do() -> None:
    """The contract of these tests names /x: told once, then only reported; at the last attempt at once."""
    facts = {"deploy": GOOD_DEPLOY, "before": OLD_FAULT}
    new = report(check("/x", JS, "Console error on /x: new"))
    told = Past(GOOD_DEPLOY, OLD_FAULT)
    assert ask(**facts, qa=OLD_FAULT) == RETRY
    assert ask(**facts, qa=OLD_FAULT, attempt=2, past=told) == PASSED
    assert ask(**facts, qa=OLD_FAULT, attempt=3) == PASSED
    assert ask(**facts, qa=new, attempt=2, past=told) == RETRY
    assert ask(**facts, qa=new, attempt=3, past=told).code == "qa_failed_max_attempts"
    assert ask(**facts, qa=report()).next == "retry"


def test_the_agent_that_was_told_and_commits_nothing_more_ends_the_loop() -> None:
    """The site is deployed and looked at again as it is, then a human is called or the old fault only reported."""
    failed = report(check("/x", "Console error on /x: new"))
    facts = {"attempt": 2, "commits": 0, "past": Past(GOOD_DEPLOY, failed)}
    assert ask(**facts).next == "deploy"
    assert ask(**facts, deploy=GOOD_DEPLOY).next == "qa"
    stop = ReleaseDecision("escalate", Status.ESCALATED, "same_failure_no_new_commit")
    assert ask(**facts, deploy=GOOD_DEPLOY, qa=failed) == stop
    assert ask(**facts, deploy=GOOD_DEPLOY, qa=report(check("/x", "another"))) == RETRY
    assert ask(**facts, deploy=GOOD_DEPLOY, qa=report(check("/x"))).code == "qa_passed"
    assert ask(**facts | {"commits": 1}, deploy=GOOD_DEPLOY, qa=failed) == RETRY
    old = facts | {"past": Past(GOOD_DEPLOY, OLD_FAULT), "before": OLD_FAULT}
    assert ask(**old, deploy=GOOD_DEPLOY, qa=OLD_FAULT) == PASSED


def test_a_deployment_that_fails_twice_in_the_same_way_without_a_commit_ends_the_loop() -> None:
    """Another way of failing may be worth another attempt."""
    facts = {"attempt": 2, "commits": 0, "past": Past(BAD_DEPLOY, None)}
    assert ask(**facts, deploy=BAD_DEPLOY).code == "same_failure_no_new_commit"
    slow = DeployResult(ok=False, code="deploy_timeout", exit_status=None, seconds=1, commit="abcdef1")
    assert ask(**facts, deploy=slow).next == "retry"


def test_the_next_attempt_is_told_which_faults_were_there_before() -> None:
    """So that it neither mends the whole site nor leaves what the request is about."""
    after = report(check("/x", JS, "Console error on /x: new"), check("/x", "GET /x is slow", level="http"))
    http, browser = feedback(after, GOOD_DEPLOY, OLD_FAULT)
    assert http == ["GET /x is slow"]
    assert browser == [JS + OLD, "Console error on /x: new"]
