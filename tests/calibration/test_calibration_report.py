"""The month's report: the specification's metrics on generated rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest

from atlas_pipeline.calibration.gate import gate
from atlas_pipeline.calibration.months import bounds, month_of
from atlas_pipeline.calibration.pictures import pictures
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow.calibrating import calibrate
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.model import Intent
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import figures, work
from tests.calibration_rows import MID_MONTH, Conn, a_message, audited, classified, internal_jobs


@pytest.fixture
def parts(database_url: str, tmp_path: Path) -> Iterator[Parts]:
    with opened(Settings(home=tmp_path), database_url) as made:
        yield made


def test_an_empty_month_has_no_rates_and_earns_nothing(parts: Parts) -> None:
    metrics, rendered = calibrate(parts, "2026-11")
    assert (metrics.classifications, metrics.intents, metrics.uncertain.value) == (0, (), None)
    assert metrics.gate == gate([])
    assert (metrics.gate.earned, metrics.gate.missing, metrics.errors.value) == (False, 30, None)
    assert "pas encore" in rendered


def test_one_case_has_a_mean_and_no_deviation(parts: Parts, conn: Conn) -> None:
    classified(conn, a_message(conn, 1), Intent.RUN, 0.8)
    metrics, rendered = calibrate(parts, "2026-11")
    (figures_,) = metrics.intents
    assert (figures_.name, figures_.volume, figures_.mean_confidence, figures_.deviation) == ("run", 1, 0.8, None)
    assert (figures_.drafts, figures_.success.value) == (0, None)
    assert "| run | 1 | 0.80 | – | 0.0% [0.0% – 79.3%] | 0 | 0 | – |" in rendered


def test_the_figures_of_a_month_are_the_specifications(parts: Parts, conn: Conn) -> None:
    for number, confidence in enumerate((0.6, 0.8, 1.0)):
        key = a_message(conn, number)
        classified(conn, key, Intent.QUESTION, confidence)
        work.create(conn, key, table="questions", title="t", tenant=None)
    work.decide(conn, key, "cancel", actor="lea")
    conn.execute("update atlas.questions set created_at = %s", (MID_MONTH,))
    noise = a_message(conn, 9)
    classified(conn, noise, Intent.NOISE, 0.95)
    audited(conn, noise, "intake_failed")
    audited(conn, noise, "blocked_unsafe")
    metrics, rendered = calibrate(parts, "2026-11")
    by_intent = {figures_.name: figures_ for figures_ in metrics.intents}
    question = by_intent["question"]
    assert (question.volume, question.mean_confidence, question.deviation) == (3, 0.8, 0.2)
    assert (question.drafts, question.cancelled, question.success.value) == (3, 1, 0.6667)
    assert (by_intent["noise"].volume, by_intent["noise"].drafts) == (1, 0)
    assert (metrics.classifications, metrics.uncertain.part, metrics.uncertain.value) == (4, 1, 0.25)
    assert (metrics.failed, metrics.blocked) == (1, 1)
    assert "| question | 3 | 0.80 | 0.20 | 33.3%" in rendered
    assert "| 3 | 1 | 66.7% [20.8%" in rendered


def test_a_superseded_record_is_out_of_the_metrics_and_its_decision_stays_in(parts: Parts, conn: Conn) -> None:
    key = a_message(conn, 1)
    classified(conn, key, Intent.QUESTION, 0.9)
    work.create(conn, key, table="questions", title="t", tenant=None)
    conn.execute("update atlas.questions set created_at = %s", (MID_MONTH,))
    work.supersede(conn, key)
    metrics, _ = calibrate(parts, "2026-11")
    assert [(figures_.volume, figures_.drafts) for figures_ in metrics.intents] == [(1, 0)]


def test_28_of_30_internal_jobs_earn_the_next_phase(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 30, cancelled=2)
    metrics, rendered = calibrate(parts, "2026-11")
    assert (metrics.gate.jobs, metrics.gate.kept, metrics.gate.success.value, metrics.gate.earned) == (
        30,
        28,
        0.9333,
        True,
    )
    assert (metrics.gate.success.low, metrics.gate.success.high) == (0.7868, 0.9815)
    assert "mérité, à confirmer par un humain" in rendered


def test_27_of_30_are_exactly_ninety_percent_and_earn_nothing(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 30, cancelled=3)
    metrics, rendered = calibrate(parts, "2026-11")
    assert (metrics.gate.success.value, metrics.gate.earned) == (0.9, False)
    assert "pas encore" in rendered


def test_jobs_of_clients_do_not_count_for_the_gate(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 30, cancelled=0, internal=False)
    assert calibrate(parts, "2026-11")[0].gate.jobs == 0


def test_a_draft_that_nobody_has_cancelled_counts_as_kept_and_a_superseded_one_not_at_all(
    parts: Parts, conn: Conn
) -> None:
    internal_jobs(conn, 3, cancelled=1)
    for number in (100, 101):
        key = a_message(conn, number)
        work.create(conn, key, table="chantiers", title="t", tenant="own")
    work.supersede(conn, key)
    conn.execute("update atlas.chantiers set created_at = %s", (MID_MONTH,))
    assert (calibrate(parts, "2026-11")[0].gate.jobs, calibrate(parts, "2026-11")[0].gate.kept) == (4, 3)


def test_jobs_of_earlier_months_count_for_the_gate_and_those_of_later_ones_do_not(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 5, cancelled=1)
    jobs = {month: calibrate(parts, month)[0].gate.jobs for month in ("2026-10", "2026-11", "2027-03")}
    assert jobs == {"2026-10": 0, "2026-11": 5, "2027-03": 5}


def test_a_month_begins_and_ends_in_paris(parts: Parts, conn: Conn) -> None:
    """Summer time: 31 July 22:00 UTC is midnight of 1 August in Paris; winter: 31 December 23:00 is 1 January."""
    moments = {
        datetime(2026, 7, 31, 21, 59, 59, tzinfo=UTC): "2026-07",
        datetime(2026, 7, 31, 22, 0, tzinfo=UTC): "2026-08",
        datetime(2026, 12, 31, 22, 59, 59, tzinfo=UTC): "2026-12",
        datetime(2026, 12, 31, 23, 0, tzinfo=UTC): "2027-01",
    }
    for number, moment in enumerate(moments):
        classified(conn, a_message(conn, number), Intent.RUN, 0.9, at=moment)
        assert month_of(moment, "Europe/Paris") == moments[moment]
    assert [calibrate(parts, month)[0].classifications for month in ("2026-07", "2026-08", "2026-12", "2027-01")] == [
        1
    ] * 4


def test_months_join_without_gap_or_overlap_over_the_change_of_the_clocks() -> None:
    starts = [bounds(f"2026-{month:02d}", "Europe/Paris") for month in range(1, 13)]
    assert all(one[1] == two[0] for one, two in pairwise(starts))
    october = bounds("2026-10", "Europe/Paris")
    assert (october[1].astimezone(UTC) - october[0].astimezone(UTC)).total_seconds() == 31 * 86400 + 3600


@pytest.mark.parametrize(
    "month", ["2026-13", "2026-00", "2026-1", "26-01", "", "2026-01-01", "２０２６-01", "0000-01", "9999-12"]
)
def test_a_month_that_is_none_is_refused(parts: Parts, month: str) -> None:
    with pytest.raises(Refused) as refused:
        calibrate(parts, month)
    assert refused.value.code == "month_malformed"


def test_the_same_rows_give_the_same_bytes_again_and_one_stored_report(parts: Parts, conn: Conn) -> None:
    for number in range(5):
        classified(conn, a_message(conn, number), Intent.RUN, 0.61 + number / 17)
    first = calibrate(parts, "2026-11")
    stored = conn.execute("select metrics::text as metrics, rendered from atlas.calibration_reports").fetchall()
    assert calibrate(parts, "2026-11") == first
    again = conn.execute("select metrics::text as metrics, rendered from atlas.calibration_reports").fetchall()
    assert (stored, len(again)) == (again, 1)
    report = figures.report(conn, "2026-11")
    assert report is not None
    assert report["rendered"] == first[1]
    assert figures.report(conn, "2026-10") is None


@pytest.mark.parametrize("language", ["fr", "en"])
def test_the_report_is_written_in_either_language(database_url: str, tmp_path: Path, language: str) -> None:
    with opened(Settings(home=tmp_path, language=language), database_url) as made:
        rendered = calibrate(made, "2026-11")[1]
    assert rendered.startswith(
        {"fr": "# Calibration du classifieur 2026-11", "en": "# Classifier calibration 2026-11"}[language]
    )


def test_euros_and_dollars_are_drawn_apart_and_a_models_name_is_whole(parts: Parts, conn: Conn) -> None:
    """A dollar is no euro: neither is added to nor measured against the other. Less than a cent is not shown as nothing."""
    key, model = a_message(conn, 1), "mistral/mistral-small-2506"
    conn.execute(
        "insert into atlas.ai_calls (at, message_key, task, provider, model, code, milliseconds, euros) "
        "values (%s, %s, 'classification', 'mistral', %s, 'ok', 5, 0.0042)",
        (MID_MONTH, key, model),
    )
    conn.execute(
        "insert into atlas.spawns (message_key, round, attempt, try, profile, agent, model, claimed_at, cost_usd) "
        "values (%s, 1, 1, 1, 'read', 'a', 'sonnet', %s, 12.5)",
        (key, MID_MONTH),
    )
    metrics, _ = calibrate(parts, "2026-11")
    (cost,) = (one.svg for one in pictures(metrics, "en") if one.name == "cost")
    calls, agents = cost.split("Agents, in dollars")
    assert "Calls of models, in euros" in calls
    assert f">classification, {model}</text>" in calls
    assert ("0.0042 €" in calls, "€" in agents, "12.50 $" in agents, "$" in calls) == (True, False, True, False)
    (width,) = {line.split('width="')[1].split('"')[0] for line in cost.splitlines() if 'fill-opacity="0.8"' in line}
    assert width == "340.0"
