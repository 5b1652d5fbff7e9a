"""The gate's decisions, and the phase that a person enters on them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from atlas_pipeline.errors import Refused
from atlas_pipeline.flow import promoting
from atlas_pipeline.flow.calibrating import calibrate
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import phases, work
from tests.calibration_rows import Conn, internal_jobs

MARCH = datetime(2024, 3, 10, 12, tzinfo=UTC)


@pytest.fixture
def parts(database_url: str, tmp_path: Path) -> Iterator[Parts]:
    with opened(Settings(home=tmp_path), database_url) as made:
        yield made


def cancel(conn: Conn, count: int) -> None:
    """An operator thinks again about so many jobs that were accepted."""
    kept = conn.execute(
        "select message_key from atlas.chantiers where status = 'accepted' limit %s", (count,)
    ).fetchall()
    for row in kept:
        work.decide(conn, row["message_key"], "cancel", actor="operator:lea")


def test_the_gate_writes_its_decision_with_its_evidence_and_only_news_is_written(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 30, cancelled=2, at=MARCH)
    calibrate(parts, "2024-03")
    calibrate(parts, "2024-03")
    (decision,) = phases.decisions(conn)
    assert (decision["month"], decision["earned"]) == ("2024-03", True)
    evidence = decision["evidence"]
    assert evidence["success"] == {"part": 28, "whole": 30, "value": 0.9333, "low": 0.7868, "high": 0.9815}
    assert evidence["tenants"] == [{"tenant": "own", "jobs": 30, "kept": 28, "undecided": 0}]
    assert (evidence["more_than"], evidence["at_least"], evidence["before"]) == (0.9, 30, "2024-04-01T00:00:00+02:00")
    assert conn.execute("select count(*) as n from atlas.phase_decisions").fetchone() == {"n": 1}


def test_passing_the_gate_changes_nothing_until_an_operator_promotes(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 30, cancelled=0, at=MARCH)
    decision = promoting.judge_now(parts)
    assert (decision["earned"], promoting.standing(parts).phase) == (True, 2)
    assert promoting.promote(parts, decision["id"], actor="operator:lea") == 3
    found = promoting.standing(parts)
    assert (found.phase, found.actor) == (3, "operator:lea")
    row = conn.execute("select actor, detail from atlas.audit_log where action = 'phase_promoted'").fetchone()
    assert row == {"actor": "operator:lea", "detail": {"phase": 3, "month": decision["month"]}}
    with pytest.raises(Refused, match="phase_reached"):
        promoting.promote(parts, decision["id"], actor="operator:lea")


def test_a_promotion_is_refused_while_the_gate_is_not_passed(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 30, cancelled=3, at=MARCH)
    decision = promoting.judge_now(parts)
    with pytest.raises(Refused) as refused:
        promoting.promote(parts, decision["id"], actor="operator:lea")
    assert (refused.value.code, refused.value.detail["jobs"], refused.value.detail["rate"]) == (
        "gate_not_passed", 30, 0.9)  # fmt: skip
    assert promoting.standing(parts).phase == 2


def test_a_decision_that_came_while_the_operator_was_asked_is_not_promoted_unseen(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 31, cancelled=0, at=MARCH)
    shown = promoting.judge_now(parts)
    cancel(conn, 1)
    promoting.judge_now(parts)
    with pytest.raises(Refused, match="gate_decided_anew"):
        promoting.promote(parts, shown["id"], actor="operator:lea")


def test_the_gate_is_lost_again_and_with_it_the_phase(parts: Parts, conn: Conn) -> None:
    """Late cancellations count; coming back takes a person again."""
    internal_jobs(conn, 30, cancelled=0, at=MARCH)
    promoting.promote(parts, promoting.judge_now(parts)["id"], actor="operator:lea")
    cancel(conn, 3)
    assert promoting.judge_now(parts)["earned"] is False
    assert (promoting.standing(parts).phase, promoting.standing(parts).actor) == (2, "calibration")
    assert conn.execute("select code from atlas.alerts").fetchall() == [{"code": "phase_lost"}]
    conn.execute("update atlas.chantiers set status = 'accepted'")
    assert promoting.judge_now(parts)["earned"] is True
    assert promoting.standing(parts).phase == 2


def test_a_report_of_an_older_month_made_anew_changes_no_phase(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 30, cancelled=0, at=MARCH)
    promoting.promote(parts, promoting.judge_now(parts)["id"], actor="operator:lea")
    calibrate(parts, "2024-02")
    assert [row["earned"] for row in phases.decisions(conn)] == [True, False]
    assert promoting.standing(parts).phase == 3


def test_a_month_that_has_not_begun_decides_nothing(parts: Parts, conn: Conn) -> None:
    """Its decision would be the newest for ever, and hide what the months until then say."""
    internal_jobs(conn, 30, cancelled=0, at=MARCH)
    calibrate(parts, "2999-01")
    assert phases.newest_decision(conn) is None


def test_the_database_lets_nobody_but_an_operator_into_phase_3(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 30, cancelled=0, at=MARCH)
    decision = promoting.judge_now(parts)
    with pytest.raises(psycopg.errors.CheckViolation):
        phases.promote(conn, decision, actor="calibration")
