"""Who gets an agent, how one ends badly, and that there are never two."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.errors import DatabaseUnavailable, Refused
from atlas_pipeline.flow import operator, spawning, watching
from atlas_pipeline.flow.spawning import Report
from atlas_pipeline.flow.stage import Outcome, StageDone, StageFailed
from atlas_pipeline.model import Intent, Profile, Status
from atlas_pipeline.spawn.environment import SPAWN_ID
from atlas_pipeline.spawn.processes import marked
from atlas_pipeline.spawn.select import Live
from atlas_pipeline.store import spawns
from atlas_pipeline.store.locks import holders, message_lock
from tests.fixtures_flow import SLUG, Bench, killed_at_the_end, letter, write_agent
from tests.fixtures_release import wait_until

SetMode = Callable[[str], None]


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> SetMode:
    """How the stand-in agent behaves: a variable that it reads."""
    return lambda name: monkeypatch.setenv("ATLAS_STANDIN_MODE", name)


def processes(bench: Bench, spawn_id: int) -> list[psutil.Process]:
    """Everything that runs for this spawn of this house."""
    return marked(spawning.marker_of(bench.parts, spawn_id))


def refused(report: Report) -> str:
    assert isinstance(report, StageDone)
    assert report.outcome is Outcome.REFUSED
    return str(report.facts["code"])


def question(bench: Bench, number: int = 1, tenant: bool = True) -> str:
    """A question of the founder, about the tenant or about nobody."""
    about = "menuiserie-lorme.example" if tenant else "rien"
    return bench.take_in(letter(f"Question {number}", f"{number} : {about} ?\n"), Intent.QUESTION)


def another_live(bench: Bench, tenant: str | None = None) -> str:
    """Another message with an agent that lives."""
    key = question(bench, 99, tenant=False)
    with bench.parts.db.transaction() as conn:
        spawns.claim(
            conn, key, round_=1, attempt=1, try_=1, profile=Profile.READ, tenant=tenant, agent="atlas", model="m", run_id="other"
        )  # fmt: skip
        conn.execute("update atlas.inbox set status = 'spawning', attempt = 1 where message_key = %s", (key,))
    return key


def guarded(bench: Bench) -> dict[str, int]:
    """What the lock guard found, without what it did not find."""
    return {name: n for name, n in watching.guard_locks(bench.parts).items() if n}


# The rules
# ---------


@pytest.mark.parametrize("intent", [Intent.NOISE, Intent.CONSEIL])
def test_what_is_closed_gets_no_agent_even_when_a_run_asks_for_one(bench: Bench, intent: Intent) -> None:
    """A backfill of "missing" from the UI must not start an agent for every noise mail."""
    key = bench.take_in(letter(proven=False, sender="x@elsewhere.example"), intent)
    assert refused(bench.spawn(key)) == "intent_not_spawned"
    assert (bench.codes(key, "spawn_refused"), bench.status(key)) == (["intent_not_spawned"], Status.CLOSED)


def test_a_key_without_a_tracking_row_gets_no_agent(bench: Bench) -> None:
    assert refused(bench.spawn("20200101-000001")) == "no_tracking_row"


def test_an_attempt_that_is_not_due_is_refused(bench: Bench) -> None:
    key = question(bench)
    assert refused(bench.spawn(key, 2)) == "attempt_not_due"
    assert bench.status(key) is Status.CLASSIFIED


def test_the_kill_switch_makes_rows_wait_in_classified(bench: Bench) -> None:
    key = question(bench)
    off = bench.again(spawn_enabled=False)
    assert (watching.spawns_due(off.parts, []), refused(off.spawn(key))) == ([], "spawn_disabled")
    assert bench.status(key) is Status.CLASSIFIED
    assert [due.message_key for due in watching.spawns_due(bench.parts, [])] == [key]


def test_the_kill_switch_holds_a_next_attempt_and_not_what_is_under_way(bench: Bench) -> None:
    failed, under_way = question(bench, 1), question(bench, 2)
    bench.change("update atlas.inbox set status = 'qa_failed', attempt = 1 where message_key = %s", failed)
    bench.change("update atlas.inbox set status = 'spawning', attempt = 1 where message_key = %s", under_way)
    off = bench.again(spawn_enabled=False)
    assert [due.message_key for due in watching.follow_ups(off.parts, [])] == [under_way]


def test_within_the_quiet_hour_of_a_spawn_there_is_no_candidate_unless_an_operator_asks(
    bench: Bench, mode: SetMode
) -> None:
    mode("die")
    key = question(bench)
    assert bench.spawn(key) == StageFailed("spawn_result", key, "killed_by_signal")
    assert (watching.spawns_due(bench.parts, []), refused(bench.spawn(key))) == ([], "spawned_recently")
    # The audit is append-only, so the hour passes by the setting.
    later = bench.again(spawn_quiet_seconds=0)
    assert [due.message_key for due in watching.spawns_due(later.parts, [])] == [key]
    operator.request_spawn(bench.parts.db, key, actor="lea")
    assert [due.message_key for due in watching.follow_ups(bench.parts, [])] == [key]
    mode("ok")
    assert isinstance(bench.spawn(key), StageDone)
    assert bench.latest(key, round_=2).status == "ok"


def test_a_cycle_takes_three_of_different_tenants_oldest_first(bench: Bench) -> None:
    keys = [question(bench, number, tenant=number < 3) for number in range(1, 7)]
    due = [one.message_key for one in watching.spawns_due(bench.parts, [])]
    assert due == [keys[0], keys[2], keys[3]]
    queued = [Live(keys[0], SLUG), Live(keys[2], None)]
    assert [one.message_key for one in watching.spawns_due(bench.parts, queued)] == [keys[3]]


def test_no_agent_above_the_limit_of_live_ones(bench: Bench) -> None:
    key = question(bench)
    another_live(bench)
    assert refused(bench.again(spawn_max_live=1).spawn(key)) == "too_many_live"
    assert watching.spawns_due(bench.again(spawn_max_live=1).parts, []) == []


def test_no_second_agent_for_a_tenant_that_has_one(bench: Bench) -> None:
    key = question(bench)
    another_live(bench, SLUG)
    assert refused(bench.spawn(key)) == "tenant_busy"
    assert watching.spawns_due(bench.parts, []) == []


def test_while_another_process_holds_the_message_nothing_is_started(bench: Bench) -> None:
    key = question(bench)
    with message_lock(bench.database_url, bench.state(key).seq):
        assert refused(bench.spawn(key)) == "lock_held"
    assert bench.actions(key)[-1] == "spawn_skipped_lock_held"
    assert bench.one("select count(*) from atlas.spawns") == 0


def test_two_runs_of_one_message_at_once_start_one_agent(bench: Bench) -> None:
    key = question(bench)
    reports: list[Report] = []
    houses = [bench.again(), bench.again()]
    threads = [threading.Thread(target=lambda house=house: reports.append(house.spawn(key))) for house in houses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(report.outcome.value for report in reports if isinstance(report, StageDone)) == ["done", "refused"]
    assert bench.one("select count(*) from atlas.spawns") == 1


def test_two_messages_at_once_do_not_both_take_the_last_place(bench: Bench) -> None:
    keys = [question(bench, number, tenant=False) for number in (1, 2)]
    reports: list[Report] = []
    houses = [bench.again(spawn_max_live=1) for _ in keys]
    threads = [
        threading.Thread(target=lambda house=house, key=key: reports.append(house.spawn(key)))
        for house, key in zip(houses, keys, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(report.outcome.value for report in reports if isinstance(report, StageDone)) == ["done", "refused"]


@pytest.mark.parametrize(
    "changes", [{"agent_bin": None}, {"agent_bin": Path("/nowhere/claude")}], ids=["not_configured", "missing"]
)
def test_without_an_agent_messages_wait_and_no_run_is_asked_for(bench: Bench, changes: dict[str, object]) -> None:
    key = question(bench)
    house = bench.again(**changes)
    report = house.spawn(key)
    assert isinstance(report, StageDone)
    assert report.outcome is Outcome.WAITING
    assert house.codes(key, "spawn_waiting") == [report.facts["code"]]
    assert (house.status(key), house.one("select count(*) from atlas.spawns")) == (Status.CLASSIFIED, 0)
    assert watching.spawns_due(house.parts, []) == []
    assert house.alarms() == [report.facts["code"]]
    assert [due.message_key for due in watching.spawns_due(bench.parts, [])] == [key]


def test_without_the_persona_that_is_to_act_the_message_waits_with_a_code(bench: Bench) -> None:
    key = question(bench)
    bench.change("update atlas.agents set active = 0")
    report = bench.spawn(key)
    bench.change("update atlas.agents set active = 1")
    assert isinstance(report, StageDone)
    assert (report.outcome, report.facts["code"]) == (Outcome.WAITING, "agent_unknown")
    assert (bench.status(key), bench.codes(key, "spawn_waiting"), bench.alarms()) == (
        Status.CLASSIFIED, ["agent_unknown"], ["agent_unknown"],
    )  # fmt: skip


# Ends
# ----


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("api_error", "api_unavailable"),
        ("die", "killed_by_signal"),
        ("no_result", "no_result"),
        ("empty", "no_output"),
        ("not_logged_in", "not_logged_in"),
    ],
)
def test_an_agent_that_ends_badly_puts_the_message_back_among_the_candidates(
    bench: Bench, mode: SetMode, how: str, code: str
) -> None:
    mode(how)
    key = question(bench)
    assert bench.spawn(key) == StageFailed("spawn_result", key, code)
    assert (bench.status(key), bench.codes(key, "spawn_failed")) == (Status.CLASSIFIED, [code])
    spawn = bench.latest(key)
    assert (spawn.status, spawn.code, processes(bench, spawn.id)) == ("failed", code, [])
    assert bench.rows("select spawn_count, error_count from atlas.agents where codename = %s", spawn.agent) == [
        {"spawn_count": 1, "error_count": 1}
    ]


def test_after_three_failed_starts_a_human_is_called_with_a_recap(bench: Bench, mode: SetMode) -> None:
    mode("die")
    key = question(bench)
    house = bench.again(spawn_quiet_seconds=0)
    for number in (1, 2, 3):
        assert house.status(key) is Status.CLASSIFIED
        house.spawn(key)
        assert house.latest(key).try_ == number
    assert (house.status(key), house.state(key).reason_code) == (Status.ESCALATED, "spawn_tries_exhausted")
    assert (house.alarms(), house.one("select count(*) from atlas.notifications")) == (["spawn_tries_exhausted"], 1)
    assert refused(house.spawn(key)) == "status_escalated"


def test_while_the_agents_model_can_not_be_had_messages_wait_and_no_try_is_counted(bench: Bench, mode: SetMode) -> None:
    """A login that expired stops every run alike: one alarm, nobody escalated, and one look at a time finds it mended."""
    house = bench.again(spawn_quiet_seconds=0)
    keys = [question(house, number, tenant=False) for number in (1, 2)]
    mode("not_logged_in")
    for _ in range(5):
        house.spawn(keys[0])
        house.change("update atlas.spawns set ended_at = ended_at - interval '16 minutes'")
    assert house.status(keys[0]) is Status.CLASSIFIED
    assert house.alarms() == ["agent_not_logged_in"]
    house.spawn(keys[0])
    assert watching.spawns_due(house.parts, []) == []
    waits = house.spawn(keys[1])
    assert isinstance(waits, StageDone)
    assert (waits.outcome, waits.facts["code"]) == (Outcome.WAITING, "agent_not_logged_in")
    operator.request_spawn(house.parts.db, keys[1], actor="lea")
    assert [due.message_key for due in watching.follow_ups(house.parts, [])] == [keys[1]]
    mode("ok")
    assert isinstance(house.spawn(keys[1]), StageDone)
    assert [due.message_key for due in watching.spawns_due(house.parts, [])] == [keys[0]]


def test_a_spawn_that_has_spent_its_money_goes_to_a_human_at_once(bench: Bench, mode: SetMode) -> None:
    mode("over_budget")
    key = question(bench)
    assert bench.spawn(key) == StageFailed("spawn_result", key, "budget_of_spawn_spent")
    assert (bench.status(key), bench.state(key).reason_code) == (Status.ESCALATED, "spawn_budget_spent")
    assert bench.one("select cost_usd::float from atlas.spawns") == 5.02


def test_when_the_days_money_is_spent_messages_wait_for_the_next_day(bench: Bench, mode: SetMode) -> None:
    mode("over_budget")
    first, second = question(bench, 1, tenant=False), question(bench, 2, tenant=False)
    bench.spawn(first)
    poor = bench.again(spawn_day_budget_euros=10.0)
    assert watching.spawns_due(poor.parts, []) == []
    waits = poor.spawn(second)
    assert isinstance(waits, StageDone)
    assert (waits.outcome, waits.facts["code"]) == (Outcome.WAITING, "spawn_budget_of_day_spent")
    assert "spawn_budget_of_day_spent" in poor.alarms()
    assert [due.message_key for due in watching.spawns_due(bench.parts, [])] == [second]
    bench.change("update atlas.spawns set ended_at = ended_at - interval '25 hours'")
    assert [due.message_key for due in watching.spawns_due(poor.parts, [])] == [second]


def test_mail_from_anybody_spends_no_more_than_the_drafts_budget(bench: Bench) -> None:
    """Without a tenant a question gets a draft; a client's own, which may read, goes on."""
    stranger, client = question(bench, 1, tenant=False), question(bench, 2)
    poor = bench.again(draft_day_budget_euros=4.0)
    assert [due.message_key for due in watching.spawns_due(poor.parts, [])] == [client]
    waits = poor.spawn(stranger)
    assert isinstance(waits, StageDone)
    assert waits.facts["code"] == "spawn_budget_of_drafts_spent"
    assert isinstance(poor.spawn(client), StageDone)


def test_a_silent_agent_is_ended_by_its_time_limits(bench: Bench, mode: SetMode) -> None:
    mode("hang")
    key = question(bench)
    assert bench.again(spawn_idle_timeout_seconds=1).spawn(key) == StageFailed("spawn_result", key, "timeout_idle")
    assert processes(bench, bench.latest(key).id) == []


def test_a_repository_that_is_gone_is_a_failed_spawn(bench: Bench) -> None:
    key = question(bench)
    bench.change("update atlas.tenants set repository = '/nowhere/site.git'")
    assert bench.spawn(key) == StageFailed("spawn_result", key, "git_failed")
    assert bench.status(key) is Status.CLASSIFIED


def test_events_are_stored_while_the_agent_runs_and_without_gaps(bench: Bench, mode: SetMode) -> None:
    mode("noise")
    key = question(bench)
    bench.spawn(key)
    rows = bench.rows("select seq, event_type from atlas.spawn_events order by seq")
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert {"system.init", "result.success", "node_pty_exit", "wrapper_raw"} <= {row["event_type"] for row in rows}


# Interrupts and deaths
# ---------------------


def interrupted(bench: Bench, key: str, *, cancelled: bool) -> None:
    """The run is interrupted while its agent works, as Dagster does it: an exception in the main thread."""
    timer = threading.Timer(0, lambda: _interrupt_when_running(bench))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        spawning.spawn(bench.parts, key, 1, run_id="run", was_cancelled=lambda: cancelled)
    timer.join()


def _interrupt_when_running(bench: Bench) -> None:
    watcher = bench.again()
    wait_until(lambda: watcher.one("select count(*) from atlas.spawn_events") > 0, 20)
    signal.raise_signal(signal.SIGINT)


def test_a_run_that_an_operator_cancels_ends_its_agent_and_is_escalated(bench: Bench, mode: SetMode) -> None:
    mode("slow")
    key = question(bench)
    interrupted(bench, key, cancelled=True)
    spawn = bench.latest(key)
    assert (bench.status(key), bench.state(key).reason_code) == (Status.ESCALATED, "cancelled_by_hand")
    assert (spawn.status, processes(bench, spawn.id)) == ("cancelled", [])
    assert bench.one("select count(*) from atlas.notifications") == 1
    assert watching.follow_ups(bench.parts, []) == []


def test_a_run_that_a_shutdown_interrupts_is_asked_for_again(bench: Bench, mode: SetMode) -> None:
    mode("slow")
    key = question(bench)
    interrupted(bench, key, cancelled=False)
    spawn = bench.latest(key)
    assert (bench.status(key), bench.state(key).reason_code) == (Status.CLASSIFIED, "interrupted")
    assert (spawn.status, processes(bench, spawn.id)) == ("lost", [])
    (due,) = watching.follow_ups(bench.parts, [])
    assert (due.message_key, due.attempt) == (key, 1)
    mode("ok")
    assert isinstance(bench.spawn(key), StageDone)
    assert bench.latest(key).try_ == 2


def test_a_worker_killed_under_its_agent_is_noticed_and_the_agent_is_started_again_once(
    bench: Bench, mode: SetMode
) -> None:
    key = question(bench)
    with killed_at_the_end(bench.worker("spawn", key, "1", ATLAS_STANDIN_MODE="hang")) as worker:
        wait_until(lambda: bench.one("select count(*) from atlas.spawn_events") > 0, 30)
        spawn = bench.latest(key)
        assert processes(bench, spawn.id) != []
        # While the owner lives nobody else starts one, and nobody asks for one.
        assert refused(bench.spawn(key)) == "lock_held"
        assert watching.follow_ups(bench.parts, []) == []
        assert guarded(bench) == {"live": 1}
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=10)
    bench.later()
    (due,) = watching.follow_ups(bench.parts, [])
    assert (due.message_key, due.attempt) == (key, 1)
    assert isinstance(bench.spawn(key), StageDone)
    assert bench.rows("select try, status, code from atlas.spawns order by try") == [
        {"try": 1, "status": "lost", "code": "owner_died"},
        {"try": 2, "status": "ok", "code": "ok"},
    ]
    assert processes(bench, spawn.id) == []
    assert bench.codes(key, "spawn_failed") == ["owner_died"]


def test_the_agents_of_another_house_on_the_machine_are_left_alone(bench: Bench, tmp_path: Path, mode: SetMode) -> None:
    """Its spawns are numbered from one as well."""
    key = question(bench)
    mode("ok")
    assert isinstance(bench.spawn(key), StageDone)
    spawn_id = bench.latest(key).id
    other = bench.again(home=tmp_path / "other")
    with subprocess.Popen(["sleep", "60"], env={SPAWN_ID: spawning.marker_of(other.parts, spawn_id)}) as theirs:
        bench.change("update atlas.spawns set status = 'running'")
        assert spawning.settle_lost(bench.parts, key)
        assert theirs.poll() is None
        theirs.kill()


def test_the_lock_guard_reaps_an_agent_without_an_owner_and_raises_one_alarm(bench: Bench) -> None:
    key = question(bench)
    with killed_at_the_end(bench.worker("spawn", key, "1", ATLAS_STANDIN_MODE="ignore_sigterm")) as worker:
        wait_until(lambda: bench.one("select count(*) from atlas.spawn_events") > 0, 30)
        spawn = bench.latest(key)
        assert spawn.pid is not None
        psutil.Process(spawn.pid).suspend()  # a wrapper that can't notice that its parent is gone
        worker.send_signal(signal.SIGKILL)
        worker.wait(timeout=10)
    assert processes(bench, spawn.id) != []
    bench.later()
    psutil.Process(spawn.pid).kill()
    wait_until(lambda: not psutil.pid_exists(spawn.pid or 0) or psutil.Process(spawn.pid).status() == "zombie")
    assert guarded(bench) == {"live": 1, "reaped": 1}
    assert processes(bench, spawn.id) == []
    assert (bench.status(key), bench.alarms()) == (Status.CLASSIFIED, ["spawn_owner_died"])
    assert guarded(bench) == {}


def test_a_lock_whose_holder_shows_no_life_is_an_alarm_and_is_not_broken(bench: Bench) -> None:
    key = another_live(bench)
    bench.later()
    with message_lock(bench.database_url, bench.state(key).seq):
        for _ in range(2):
            assert guarded(bench) == {"live": 1, "zombies": 1}
    assert (bench.alarms(), bench.status(key)) == (["zombie_lock"], Status.SPAWNING)


def test_a_lock_whose_session_is_frozen_is_ended_and_its_owner_settles_nothing_when_it_wakes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A suspended worker holds its lock for ever; nobody's else is touched."""
    key = question(bench)
    with killed_at_the_end(bench.worker("spawn", key, "1", ATLAS_STANDIN_MODE="hang")) as worker:
        wait_until(lambda: bench.one("select count(*) from atlas.spawn_events") > 0, 30)
        first = bench.latest(key)
        worker.send_signal(signal.SIGSTOP)
        bench.later()
        time.sleep(3)
        with message_lock(bench.database_url, 999_999):
            with bench.parts.db.transaction() as conn:
                (mine,) = (holder for holder in holders(conn) if holder.seq == 999_999)
            monkeypatch.setattr(watching, "SILENT_SECONDS", mine.silent_seconds + 2)
            assert guarded(bench) == {"live": 1, "reaped": 1, "ended": 1}
            with bench.parts.db.transaction() as conn:
                assert {holder.seq for holder in holders(conn)} == {999_999}
        assert (bench.status(key), processes(bench, first.id)) == (Status.CLASSIFIED, [])
        assert bench.alarms() == ["lock_ended", "spawn_owner_died"]
        monkeypatch.setenv("ATLAS_STANDIN_MODE", "ok")
        assert isinstance(bench.spawn(key), StageDone)
        worker.send_signal(signal.SIGCONT)
        assert worker.wait(timeout=30) == 0
    assert [start["status"] for start in bench.rows("select status from atlas.spawns order by try")] == ["lost", "ok"]
    assert (bench.status(key), bench.actions(key).count("spawn_overtaken")) == (Status.SPAWNING, 1)


def test_an_agent_whose_owner_lost_only_its_lock_is_not_taken_for_dead(bench: Bench) -> None:
    """A restart of PostgreSQL ends the lock and not the agent; an operator's order meanwhile must not kill it."""
    key = another_live(bench)
    assert refused(bench.spawn(key)) == "owner_lives"
    assert (bench.status(key), bench.latest(key).status) == (Status.SPAWNING, "claimed")
    assert bench.codes(key, "spawn_skipped_lock_held") == ["owner_lives"]


def test_a_message_in_spawning_without_any_start_goes_back_among_the_candidates(bench: Bench) -> None:
    """However it came to be so: a row changed by hand, a fault of ours. One alarm; what was only just moved is left alone."""
    key = question(bench)
    bench.change("update atlas.inbox set status = 'spawning', attempt = 1")
    assert guarded(bench) == {}
    hour_ago(bench, key)
    with message_lock(bench.database_url, bench.state(key).seq):
        assert guarded(bench) == {}
    assert guarded(bench) == {"unattended": 1}
    assert guarded(bench) == {}
    assert (bench.status(key), bench.state(key).reason_code) == (Status.CLASSIFIED, "no_agent_live")
    assert bench.alarms() == ["spawning_without_agent"]
    assert isinstance(bench.spawn(key), StageDone)


def test_an_agent_that_ended_ok_and_that_nobody_concludes_is_told_and_not_started_again(
    bench: Bench, mode: SetMode
) -> None:
    mode("ok")
    key = question(bench)
    assert isinstance(bench.spawn(key), StageDone)
    hour_ago(bench, key)
    for _ in range(2):
        assert guarded(bench) == {"unattended": 1}
    assert (bench.status(key), bench.latest(key).status) == (Status.SPAWNING, "ok")
    assert bench.alarms() == ["release_unattended"]


def test_an_agents_hook_notes_its_event_while_the_agent_runs_and_a_drafts_has_nothing_to_note_with(
    bench: Bench, tmp_path: Path
) -> None:
    """Through everything between the setting and the program: the wrapper's allow-list of variables, the role, the token."""
    bench.change("alter role atlas_agent password 'not-a-secret'")
    seen = tmp_path / "seen.txt"
    body = (
        f"pathlib.Path({str(seen)!r}).write_text(' '.join(sorted(name for name in os.environ if name[:2] == 'PG' or 'HOOK' in name)))\n"
        "if 'PGUSER' in os.environ:\n"
        "    import psycopg\n"
        "    with psycopg.connect(autocommit=True) as hook:\n"
        "        hook.execute('select atlas.note_hook(%s, %s)', (os.environ['ATLAS_HOOK_TOKEN'], 'Stop'))\n"
        "result_file(); end()"
    )
    url = make_conninfo(bench.database_url, user="atlas_agent", password="not-a-secret")
    house = bench.again(agent_bin=write_agent(tmp_path, body), agent_database_url=SecretStr(url))
    key = question(house)
    assert isinstance(house.spawn(key), StageDone)
    assert house.rows("select spawn_id, event_type from atlas.hook_events") == [
        {"spawn_id": house.latest(key).id, "event_type": "Stop"}
    ]
    assert seen.read_text().split() == ["ATLAS_HOOK_TOKEN", "PGDATABASE", "PGHOST", "PGPASSWORD", "PGPORT", "PGUSER"]
    stranger = house.take_in(letter(sender="x@elsewhere.example", proven=False), Intent.NEGOCIATION)
    assert isinstance(house.spawn(stranger), StageDone)
    assert (house.latest(stranger).profile, seen.read_text()) == (Profile.DRAFT, "")


def hour_ago(bench: Bench, key: str) -> None:
    """The message last moved an hour ago, and nothing was said of it since."""
    bench.change("update atlas.inbox set status_at = status_at - interval '1 hour'")
    bench.change("alter table atlas.audit_log disable trigger all")
    bench.change("update atlas.audit_log set at = at - interval '1 hour'")
    bench.change("alter table atlas.audit_log enable trigger all")


def test_an_agent_marked_live_of_a_message_that_was_escalated_does_not_block_its_tenant_for_ever(bench: Bench) -> None:
    key = another_live(bench, SLUG)
    due = watching.ActionDue(key, SLUG, 1, 1)
    watching.give_up(bench.parts, due)
    watching.give_up(bench.parts, due)  # the second look finds it escalated and leaves it alone
    assert (bench.status(key), bench.actions(key).count("escalated")) == (Status.ESCALATED, 1)
    bench.later()
    assert guarded(bench)["reaped"] == 1
    assert (bench.status(key), bench.latest(key).status) == (Status.ESCALATED, "lost")
    assert isinstance(bench.spawn(question(bench)), StageDone)


def test_postgresql_restarted_under_an_agent_does_not_end_it(
    bench: Bench, postgres_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    body = "[(say(type='assistant', message={'content': []}), time.sleep(0.2)) for _ in range(8)]; result_file(); end()"
    house = bench.again(agent_bin=write_agent(tmp_path, body))
    key = question(house)

    def restart() -> None:
        wait_until(lambda: _events(bench) > 0, 20)
        postgres_server.stop()
        postgres_server.ensure()

    thread = threading.Thread(target=restart)
    thread.start()
    report = house.spawn(key)
    thread.join()
    assert isinstance(report, StageDone)
    assert (house.latest(key).status, _events(bench) >= 9) == ("ok", True)


def _events(bench: Bench) -> int:
    try:
        return int(bench.one("select count(*) from atlas.spawn_events"))
    except DatabaseUnavailable:
        return 0


# Orders
# ------


def test_a_fresh_round_starts_the_whole_action_over_and_keeps_the_old_one(bench: Bench) -> None:
    key = question(bench)
    bench.action(key)
    assert bench.status(key) is Status.ACTIONED
    assert operator.request_spawn(bench.parts.db, key, actor="lea") == 2
    (due,) = watching.follow_ups(bench.parts, [])
    assert (due.round, due.attempt) == (2, 1)
    bench.action(key)
    assert [
        (row["round"], row["status"]) for row in bench.rows("select round, status from atlas.spawns order by id")
    ] == [(1, "ok"), (2, "ok")]
    assert len({recap["Message-ID"] for recap in bench.recaps()}) == 2
    assert bench.state(key).spawn_requested_at is None
    assert watching.follow_ups(bench.parts, []) == []


def test_a_round_whose_runs_were_used_up_without_an_agent_is_over_too(bench: Bench) -> None:
    """Else the runs counted for the old round would give the new order up at once, and its recap would be the old one's."""
    key = question(bench)
    watching.give_up(bench.parts, watching.ActionDue(key, SLUG, 1, 1))
    assert bench.status(key) is Status.ESCALATED
    assert operator.request_spawn(bench.parts.db, key, actor="lea") == 2


def test_a_first_order_for_a_message_that_waits_keeps_its_round(bench: Bench) -> None:
    key = question(bench)
    assert operator.request_spawn(bench.parts.db, key, actor="lea") == 1
    assert bench.actions(key)[-1] == "spawn_requested"


def test_orders_that_make_no_sense_are_refused_with_a_code(bench: Bench) -> None:
    closed = bench.take_in(letter(proven=False, sender="x@elsewhere.example"), Intent.NOISE)
    live = another_live(bench)
    codes = []
    for key in (closed, live, "20200101-000001"):
        with pytest.raises(Refused) as answer:
            operator.request_spawn(bench.parts.db, key, actor="lea")
        codes.append(answer.value.code)
    assert codes == ["nothing_to_spawn", "spawn_is_live", "message_unknown"]
    assert bench.status(closed) is Status.CLOSED


def test_reprocessing_is_refused_once_an_agent_was_started_unless_forced(bench: Bench) -> None:
    key = question(bench)
    bench.action(key)
    with pytest.raises(Refused) as answer:
        operator.reprocess(bench.parts.db, key, actor="lea", force=False)
    assert answer.value.code == "spawn_has_started"
    operator.reprocess(bench.parts.db, key, actor="lea", force=True)
    state = bench.state(key)
    assert (state.status, state.round, state.attempt, state.work_kind) == (Status.RECEIVED, 2, 0, None)
    assert bench.one("select count(*) from atlas.questions where superseded_at is not null") == 1
    live = another_live(bench)
    with pytest.raises(Refused) as answer:
        operator.reprocess(bench.parts.db, live, actor="lea", force=True)
    assert answer.value.code == "spawn_is_live"


@pytest.mark.parametrize(("verb", "status"), [("accept", "accepted"), ("cancel", "cancelled")])
def test_a_draft_is_decided_and_the_decision_audited(bench: Bench, verb: str, status: str) -> None:
    key = question(bench)
    assert operator.decide_draft(bench.parts.db, key, verb, actor="lea") == "questions"
    assert bench.one("select status from atlas.questions") == status
    assert bench.actions(key)[-1] == f"work_{status}"


def test_a_cycle_ordered_by_hand_marks_its_candidates_for_the_sensor(bench: Bench) -> None:
    keys: Sequence[str] = [question(bench, 1), question(bench, 2, tenant=False)]
    assert watching.request_due(bench.parts, actor="lea") == keys
    assert [due.message_key for due in watching.follow_ups(bench.parts, [])] == keys
