"""A chantier from the founder's mail to the team's recap, and every way its end can differ."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atlas_pipeline.flow import recapping, releasing, watching
from atlas_pipeline.flow.stage import StageDone, StageFailed
from atlas_pipeline.model import Intent, Profile, Status
from atlas_pipeline.store import tenants
from atlas_pipeline.store.locks import holders, message_lock
from tests.fixtures_flow import CLIENT, SLUG, TEAM_INBOX, Bench, killed_at_the_end, letter, outcomes, write_agent
from tests.fixtures_release import wait_until

COMMITS = "commit('app.py', open('app.py').read() + '\\n# mended\\n'); result_file(routes=['/']); end()"


def branch(bench: Bench, key: str) -> list[str]:
    """Subjects of the commits on the message's branch."""
    command = ["git", "-C", str(bench.tenant.repository), "log", "--format=%s", f"main..atlas/{key}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def deploys_with(bench: Bench, *command: str, preprod: str | None = "http://127.0.0.1:9") -> None:
    """The tenant deploys in another way."""
    bench.change(
        "update atlas.tenants set deploy_command = %s, version_route = null, preprod_url = %s", list(command), preprod
    )


def code_of(report: object) -> str:
    assert isinstance(report, StageDone)
    return str(report.facts["code"])


def test_a_chantier_takes_two_attempts_and_the_team_alone_is_told(bench: Bench, site: str) -> None:
    key = bench.chantier()
    first = bench.action(key, 1)
    assert [report.stage for report in first] == ["spawn_result", "qa_report", "recap"]
    assert (bench.status(key), code_of(first[1]), bench.recaps()) == (Status.QA_FAILED, "qa_failed", [])
    (due,) = watching.follow_ups(bench.parts, [])
    assert (due.message_key, due.tenant, due.round, due.attempt) == (key, SLUG, 1, 2)

    second = bench.action(key, 2)
    assert code_of(second[2]) == "qa_passed"
    state = bench.state(key)
    assert (state.status, state.attempt, state.final_intent) == (Status.ACTIONED, 2, Intent.CHANTIER)
    assert len(branch(bench, key)) == 2
    assert [row["status"] for row in bench.rows("select status from atlas.qa_reports order by attempt")] == [
        "failed",
        "passed",
    ]

    (error,) = [e for row in bench.rows("select errors from atlas.qa_checks where not ok") for e in row["errors"]]
    said = "\n".join(str(row["payload"]) for row in bench.rows("select payload from atlas.spawn_events"))
    assert "not defined" in error
    assert "devis.js" in said
    shots = [
        row["screenshot"] for row in bench.rows("select screenshot from atlas.qa_checks where screenshot is not null")
    ]
    assert len(shots) == 4
    assert all(Path(shot).read_bytes().startswith(b"\x89PNG") for shot in shots)

    (recap,) = bench.recaps()
    assert (recap["To"], recap["Cc"], recap["Bcc"]) == (TEAM_INBOX, None, None)
    assert recap["Message-ID"] == f"<recap.{key}.1.2@atlas.atelier-rivage.example>"
    told = recap.get_body(("plain",))
    assert told is not None
    lines = told.get_content().splitlines()
    before, last = bench.latest(key, 1), bench.latest(key, 2)
    assert f"Tentative 1 : {before.commits[0][:12]}" in lines
    assert f"– {error}" in lines
    assert f"Tentative 2 : {last.commits[1][:12]}" in lines
    assert last.commits[0] == before.commits[0]
    assert [line for line in lines if line.startswith("Commit : ")] == [f"Commit : {commit}" for commit in last.commits]
    assert [line.split(" : ")[1] for line in lines if line.startswith("capture-")] == [
        f"{route}, {when}, {width}"
        for route in ("/equipe", "/devis")
        for width in ("bureau", "téléphone")
        for when in ("avant", "après")
    ]
    assert "Fautes déjà là avant le changement" not in lines
    assert bench.one("select count(*) from atlas.reply_drafts") == 1
    assert not (bench.parts.settings.home_dir / "worktrees" / key).exists()
    assert watching.follow_ups(bench.parts, []) == []
    assert [outcome for report in bench.action(key, 2) for outcome in outcomes([report], key)] == [
        "refused",
        "unchanged",
        "unchanged",
    ]


def test_the_second_prompt_holds_the_error_that_the_browser_saw(bench: Bench, site: str, tmp_path: Path) -> None:
    heard = tmp_path / "prompt.txt"
    agent = write_agent(tmp_path, f"pathlib.Path({str(heard)!r}).write_text(prompt); {COMMITS}")
    house = bench.again(agent_bin=agent)
    key = house.chantier()
    house.change("update atlas.tenants set default_routes = '{/devis}'")
    routes = write_agent(
        tmp_path, "commit('content.json', open('content.json').read() + ' '); result_file(routes=['/devis']); end()"
    )
    house.again(agent_bin=routes).action(key, 1)
    assert house.status(key) is Status.QA_FAILED
    house.spawn(key, 2)
    text = heard.read_text()
    assert "is not defined" in text
    assert house.latest(key, 1).commits[-1][:12] in text


def test_a_question_is_answered_for_the_team_without_any_deployment(bench: Bench) -> None:
    key = bench.take_in(letter("Question", "menuiserie-lorme.example : où sont les sauvegardes ?\n"), Intent.QUESTION)
    reports = bench.action(key)
    assert [report.outcome for report in reports if isinstance(report, StageDone)] == ["done", "not_needed", "done"]
    assert (bench.status(key), bench.state(key).reason_code) == (Status.ACTIONED, "no_code")
    assert bench.latest(key).profile is Profile.READ
    assert (len(bench.recaps()), bench.one("select count(*) from atlas.deployments")) == (1, 0)


def test_a_runs_commits_are_told_and_never_deployed(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS))
    key = house.take_in(letter("Téléphone", sender=CLIENT), Intent.RUN)
    house.action(key)
    assert (house.status(key), house.latest(key).profile, len(house.latest(key).commits)) == (
        Status.ACTIONED,
        Profile.WRITE,
        1,
    )
    assert house.one("select count(*) from atlas.deployments") == 0
    assert house.latest(key).commits[0][:12] in house.recaps()[0].as_string()


def test_a_stranger_gets_an_empty_folder_and_no_repository(bench: Bench, tmp_path: Path) -> None:
    heard = tmp_path / "seen.txt"
    body = f"pathlib.Path({str(heard)!r}).write_text(repr(os.listdir('.'))); result_file(); end()"
    house = bench.again(agent_bin=write_agent(tmp_path, body))
    key = house.take_in(letter(sender="x@elsewhere.example", proven=False), Intent.NEGOCIATION)
    house.action(key)
    assert (house.latest(key).profile, house.latest(key).branch, heard.read_text()) == (Profile.DRAFT, None, "[]")
    assert house.status(key) is Status.ACTIONED


def test_a_chantier_without_a_tenant_is_a_plan_in_the_recap(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, "result_file(routes=['/']); end()"))
    key = house.take_in(letter("Un chantier", "Sans client.\n"), Intent.CHANTIER)
    house.action(key)
    assert (house.status(key), house.state(key).reason_code) == (Status.ACTIONED, "plan_only")
    assert house.one("select count(*) from atlas.deployments") == 0


# What an agent leaves behind
# ---------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("end()", "contract_not_ok"),
        ("path.write_text('not json'); end()", "contract_not_ok"),
        ("result_file(status='partial'); end()", "contract_not_ok"),
        ("result_file(); end()", "chantier_without_commits"),
        ("commit('elsewhere/x.txt'); result_file(); end()", "commit_outside_zones"),
        ("commit('CLAUDE.md'); result_file(); end()", "commit_outside_zones"),
    ],
    ids=["no_contract", "no_json", "partial", "no_commits", "outside_the_zones", "own_configuration"],
)
def test_what_can_not_be_delivered_is_escalated_with_a_recap(
    bench: Bench, tmp_path: Path, body: str, code: str
) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, body))
    key = house.chantier()
    house.action(key)
    assert (house.status(key), house.state(key).reason_code) == (Status.ESCALATED, code)
    assert (len(house.recaps()), house.one("select count(*) from atlas.deployments")) == (1, 0)
    assert house.alarms() == [code]
    assert watching.follow_ups(house.parts, []) == []


def test_commits_where_only_reading_was_allowed_are_escalated(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, "commit('app.py'); result_file(); end()"))
    key = house.take_in(letter("Question", "menuiserie-lorme.example ?\n"), Intent.QUESTION)
    house.action(key)
    assert (house.status(key), len(house.latest(key).commits)) == (Status.ESCALATED, 1)
    assert house.latest(key).contract is not None
    assert "commit_without_right" in house.latest(key).contract.problems  # type: ignore[union-attr]


def test_an_agent_may_correct_the_intent_downwards_and_both_are_kept(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, "result_file(intent='question'); end()"))
    key = house.chantier()
    house.action(key)
    state = house.state(key)
    assert (state.status, state.intent, state.final_intent) == (Status.ACTIONED, Intent.CHANTIER, Intent.QUESTION)


def test_a_branch_that_the_agent_destroyed_is_a_failed_spawn_and_not_a_crash(bench: Bench, tmp_path: Path) -> None:
    body = (
        "name = subprocess.run(['git', 'branch', '--show-current'], capture_output=True, text=True).stdout.strip()\n"
        "subprocess.run(['git', 'checkout', '--quiet', '--detach'], check=True)\n"
        "subprocess.run(['git', 'branch', '--quiet', '-D', name], check=True)\nresult_file(); end()"
    )
    house = bench.again(agent_bin=write_agent(tmp_path, body))
    key = house.chantier()
    assert house.spawn(key) == StageFailed("spawn_result", key, "git_failed")
    assert (house.status(key), house.latest(key).status) == (Status.CLASSIFIED, "failed")
    assert house.one("select cost_usd::float from atlas.spawns") == 0.25


# Deploying and checking
# ----------------------


def test_a_deployment_that_fails_is_tried_again_with_its_reason_and_then_escalated(
    bench: Bench, tmp_path: Path
) -> None:
    heard = tmp_path / "prompt.txt"
    agent = write_agent(tmp_path, f"pathlib.Path({str(heard)!r}).write_text(prompt); {COMMITS}")
    house = bench.again(agent_bin=agent, max_attempts=2)
    deploys_with(house, sys.executable, "-c", "print('disk full'); raise SystemExit(3)")
    key = house.chantier()
    house.action(key, 1)
    assert (house.status(key), house.state(key).reason_code) == (Status.QA_FAILED, "deploy_exit_nonzero")
    assert house.codes(key, "deploy_failed") == ["deploy_exit_nonzero"]
    house.action(key, 2)
    assert "disk full" in heard.read_text()
    assert (house.status(key), house.state(key).reason_code) == (Status.ESCALATED, "deploy_exit_nonzero")
    assert len(house.recaps()) == 1


def test_the_same_failure_again_without_a_new_commit_ends_the_loop_early(bench: Bench, tmp_path: Path) -> None:
    """The branch still holds the commits of the attempt before: they are none of this one's."""
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS))
    deploys_with(house, "/bin/false")
    key = house.chantier()
    house.action(key, 1)
    assert (house.status(key), house.state(key).reason_code) == (Status.QA_FAILED, "deploy_exit_nonzero")
    idle = house.again(agent_bin=write_agent(tmp_path, "result_file(routes=['/']); end()"))
    idle.action(key, 2)
    assert (house.status(key), house.state(key).reason_code) == (Status.ESCALATED, "same_failure_no_new_commit")
    assert house.one("select count(*) from atlas.deployments") == 2
    (recap,) = house.recaps()
    assert "Tentative 2 : aucun commit" in str(recap.get_body(("plain",)))


def test_a_deployment_that_hangs_is_ended_and_counts_as_failed(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS), deploy_timeout_seconds=1, max_attempts=1)
    deploys_with(house, "sleep", "600.123")
    key = house.chantier()
    started = time.monotonic()
    house.action(key)
    assert time.monotonic() - started < 15
    assert (house.status(key), house.state(key).reason_code) == (Status.ESCALATED, "deploy_timeout")
    left = subprocess.run(["pgrep", "-f", "sleep 600.123"], capture_output=True, text=True, check=False)
    assert left.stdout == ""


def test_a_tenant_without_a_deploy_command_calls_a_human_at_once(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS))
    deploys_with(house)
    key = house.chantier()
    house.action(key)
    assert (house.status(key), house.state(key).reason_code) == (Status.ESCALATED, "deploy_not_configured")


def test_a_site_that_does_not_say_that_it_serves_the_commit_was_not_deployed(
    bench: Bench, site: str, tmp_path: Path
) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS), qa_timeout_seconds=1.0)
    house.change("update atlas.tenants set deploy_command = '{/bin/true}'")
    key = house.chantier()
    house.action(key)
    assert (house.status(key), house.state(key).reason_code) == (Status.QA_FAILED, "deploy_version_mismatch")


def test_a_site_that_does_not_answer_fails_its_checks(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS), max_attempts=1, qa_timeout_seconds=3.0)
    deploys_with(house, "/bin/true")
    key = house.chantier()
    house.action(key)
    assert (house.status(key), house.state(key).reason_code) == (Status.ESCALATED, "qa_failed_max_attempts")


def test_a_browser_that_is_missing_fails_the_checks_and_not_the_run(bench: Bench, site: str, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS), chromium="/nowhere/chromium", max_attempts=1)
    key = house.chantier()
    house.action(key)
    assert house.status(key) is Status.ESCALATED
    assert {row["level"]: row["ok"] for row in house.rows("select level, ok from atlas.qa_checks")} == {
        "http": True,
        "browser": False,
    }


def test_a_tenant_without_pre_production_can_not_pass(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS), max_attempts=1)
    deploys_with(house, "/bin/true", preprod=None)
    key = house.chantier()
    house.action(key)
    assert (house.status(key), house.state(key).reason_code) == (Status.ESCALATED, "qa_failed_max_attempts")


# Crashes after the agent
# -----------------------


def test_a_crash_after_the_agent_ended_well_resumes_with_the_release_and_starts_no_second_agent(
    bench: Bench, tmp_path: Path
) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS))
    deploys_with(house, "/bin/true", preprod=None)
    key = house.chantier()
    assert isinstance(house.spawn(key), StageDone)
    assert house.status(key) is Status.SPAWNING
    house.later()
    (due,) = watching.follow_ups(house.parts, [])
    assert (due.message_key, due.attempt) == (key, 1)
    reports = house.action(key, 1)
    assert outcomes(reports[:2], key) == ["unchanged", "done"]
    assert (house.status(key), house.one("select count(*) from atlas.spawns")) == (Status.QA_FAILED, 1)


def test_a_crash_inside_the_deployment_deploys_again_and_a_settled_one_is_not_repeated(
    bench: Bench, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS), qa_timeout_seconds=2.0)
    deploys_with(house, sys.executable, "-c", f"open({str(count)!r}, 'a').write('x'); import time; time.sleep(3)")
    key = house.chantier()
    assert isinstance(house.spawn(key), StageDone)
    with killed_at_the_end(house.worker("release", key, "1")) as worker:
        wait_until(count.exists, 20)
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=10)
    assert house.one("select status from atlas.deployments") == "started"
    (pid,) = [row["pid"] for row in house.rows("select pid from atlas.deployments")]
    os.kill(pid, signal.SIGKILL)
    deploys_with(house, sys.executable, "-c", f"open({str(count)!r}, 'a').write('x')", preprod=None)
    wait_until(lambda: _lock_is_free(house, key))
    releasing.release(house.parts, key, 1)
    assert (house.one("select status from atlas.deployments"), count.read_text()) == ("ok", "xx")
    assert house.status(key) is Status.QA_FAILED
    house.change("update atlas.inbox set status = 'spawning'")
    releasing.release(house.parts, key, 1)
    assert count.read_text() == "xx"


def test_a_deploy_command_that_outlived_its_worker_is_ended_before_the_next_begins(
    bench: Bench, tmp_path: Path
) -> None:
    """With what came out of it, a session of its own or not; a process that only has its number is left alone."""
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS), qa_timeout_seconds=2.0)
    wrote = tmp_path / "wrote"
    deploys_with(house, "sh", "-c", f"setsid sh -c 'while :; do echo old > {wrote}; sleep 0.1; done'")
    key = house.chantier()
    assert isinstance(house.spawn(key), StageDone)
    with killed_at_the_end(house.worker("release", key, "1")) as worker:
        wait_until(wrote.exists, 20)
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=10)
    deploys_with(house, "sh", "-c", f"echo new > {wrote}; sleep 0.5", preprod=None)
    wait_until(lambda: _lock_is_free(house, key))
    releasing.release(house.parts, key, 1)
    assert (house.one("select status from atlas.deployments"), wrote.read_text()) == ("ok", "new\n")
    assert house.actions(key).count("deploy_abandoned_ended") == 1
    house.change("update atlas.deployments set status = 'started', pid = %s", os.getpid())
    house.change("update atlas.inbox set status = 'spawning'")
    releasing.release(house.parts, key, 1)
    assert house.actions(key).count("deploy_abandoned_ended") == 1


def _lock_is_free(bench: Bench, key: str) -> bool:
    with bench.parts.db.transaction() as conn:
        return bench.state(key).seq not in {holder.seq for holder in holders(conn)}


def test_nothing_is_released_or_concluded_while_another_process_holds_the_message(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS))
    key = house.chantier()
    assert isinstance(house.spawn(key), StageDone)
    with message_lock(house.database_url, house.state(key).seq):
        assert code_of(releasing.release(house.parts, key, 1)) == "lock_held"
        assert code_of(recapping.recap(house.parts, key, 1)) == "lock_held"
    assert house.status(key) is Status.SPAWNING


def test_a_tenant_that_was_deleted_meanwhile_deploys_nowhere(bench: Bench, tmp_path: Path) -> None:
    house = bench.again(agent_bin=write_agent(tmp_path, COMMITS))
    key = house.chantier()
    assert isinstance(house.spawn(key), StageDone)
    house.change("update atlas.inbox set tenant = 'someone-else'")
    releasing.release(house.parts, key, 1)
    recapping.recap(house.parts, key, 1)
    assert (house.status(key), house.state(key).reason_code) == (Status.ACTIONED, "plan_only")
    with house.parts.db.transaction() as conn:
        assert [tenant.slug for tenant in tenants.all_tenants(conn)] == [SLUG]
