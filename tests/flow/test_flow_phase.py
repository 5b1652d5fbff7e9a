"""What the phase changes: until a person has entered phase 3, nothing is changed or deployed for a client by itself."""

from __future__ import annotations

import pytest

from atlas_pipeline.flow import promoting
from atlas_pipeline.flow.briefing import brief
from atlas_pipeline.model import Profile, Status
from atlas_pipeline.store import phases, work
from tests.calibration_rows import internal_jobs
from tests.fixtures_flow import SLUG, Bench


@pytest.fixture
def client_job(bench: Bench) -> str:
    """A chantier, asked for by the founder, for a tenant that is a client."""
    bench.change("update atlas.tenants set internal = false where slug = %s", SLUG)
    return bench.chantier()


def profile(bench: Bench, key: str) -> Profile:
    """What an agent would be allowed now."""
    state = bench.state(key)
    with bench.parts.db.transaction() as conn:
        return brief(conn, state, 1, language="en").profile


def promoted(bench: Bench) -> None:
    """Thirty jobs of the agency's own were kept, and an operator enters phase 3."""
    with bench.parts.db.transaction() as conn:
        internal_jobs(conn, 30, cancelled=0)
    decision = promoting.judge_now(bench.parts)
    assert promoting.promote(bench.parts, decision["id"], actor="operator:lea") == phases.OPEN


def test_a_clients_chantier_is_planned_and_nothing_of_it_deployed_while_the_house_is_confined(
    bench: Bench, client_job: str
) -> None:
    """The agent reads, the team is told its plan; no commit, no deployment."""
    bench.action(client_job)
    assert bench.latest(client_job).profile == Profile.READ
    assert bench.latest(client_job).commits == ()
    assert bench.rows("select from atlas.deployments") == []
    assert bench.status(client_job) is Status.ACTIONED
    assert len(bench.recaps()) == 1


def test_an_internal_tenants_chantier_is_written_in_both_phases(bench: Bench) -> None:
    """Or the thirty jobs that the gate asks for could never be done."""
    key = bench.chantier()
    assert profile(bench, key) is Profile.WRITE
    promoted(bench)
    assert profile(bench, key) is Profile.WRITE


def test_phase_3_opens_the_house_to_clients_and_the_lost_gate_closes_it_by_a_recorded_decision(
    bench: Bench, client_job: str
) -> None:
    """Earning alone opens nothing; losing closes at once, and the row says on which decision."""
    assert profile(bench, client_job) is Profile.READ
    promoted(bench)
    assert profile(bench, client_job) is Profile.WRITE
    with bench.parts.db.transaction() as conn:
        kept = conn.execute("select message_key from atlas.chantiers where status = 'accepted' limit 4").fetchall()
        for row in kept:
            work.decide(conn, row["message_key"], "cancel", actor="operator:lea")
    assert profile(bench, client_job) is Profile.WRITE
    assert promoting.judge_now(bench.parts)["earned"] is False
    assert profile(bench, client_job) is Profile.READ
    rows = bench.rows(
        "select p.phase, p.actor, d.earned from atlas.phases p join atlas.phase_decisions d on d.id = p.decision_id order by p.id"
    )
    assert [tuple(row.values()) for row in rows] == [(3, "operator:lea", True), (2, "calibration", False)]
    assert bench.alarms() == ["phase_lost"]
    bench.change("update atlas.chantiers set status = 'accepted' where status = 'cancelled'")
    assert promoting.judge_now(bench.parts)["earned"] is True
    assert profile(bench, client_job) is Profile.READ
