"""A made-up year: the month's figures against the same rows counted the long way, and the cases at the edges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean, stdev

import psycopg
import pytest
from psycopg.rows import dict_row

from atlas_pipeline.calibration.months import before, bounds
from atlas_pipeline.calibration.page import page
from atlas_pipeline.embedded.postgres import EmbeddedPostgres
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow.calibrating import calibrate
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.model import Intent
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import verdicts, work
from atlas_pipeline.store.migrate import migrate
from tests.calibration_rows import MID_MONTH, Conn, a_message, classified
from tests.generated_year import generate

MONTH = "2024-07"


@pytest.fixture(scope="module")
def year(postgres_server: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parts]:
    """A year of 3000 mails; nobody may change it."""
    url = postgres_server.ensure_database("calibration_year")
    migrate(url)
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        generate(connection, cases=3000)
    with opened(Settings(home=tmp_path_factory.mktemp("year"), language="en"), url) as made:
        yield made
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute("drop database calibration_year with (force)")


@pytest.fixture
def parts(database_url: str, tmp_path: Path) -> Iterator[Parts]:
    with opened(Settings(home=tmp_path), database_url) as made:
        yield made


# A whole year
# ------------


def test_the_months_figures_are_those_of_its_rows_counted_one_by_one(year: Parts) -> None:
    start, end = bounds(MONTH, "Europe/Paris")
    with year.db.transaction() as conn:
        decided = [row for row in conn.execute("select * from atlas.classifications") if start <= row["at"] < end]
        corrected = {row["message_key"]: row["intent"] for row in conn.execute("select * from atlas.corrections")}
        records = {
            row["message_key"]: row["status"]
            for table in work.TABLES
            for row in conn.execute(f"select message_key, status from atlas.{table}".encode())  # noqa: S608
        }
    metrics, _ = calibrate(year, MONTH)
    assert metrics.classifications == metrics.messages == len(decided)
    for group in metrics.intents:
        mine = [row for row in decided if row["intent"] == group.name]
        values = [row["confidence"] for row in mine]
        assert group.volume == len(mine)
        assert group.mean_confidence == pytest.approx(mean(values), abs=6e-5)
        assert group.deviation == pytest.approx(stdev(values), abs=6e-5)
        fates = Counter(records.get(row["message_key"]) for row in mine)
        assert (group.cancelled, group.drafts) == (fates["cancelled"], len(mine) - fates[None])
    outcomes = []
    for row in decided:
        key, good = row["message_key"], None
        if key in corrected:
            good = row["classifier_intent"] == corrected[key]
        elif records.get(key) == "accepted":
            good = row["classifier_intent"] == row["intent"]
        elif records.get(key) == "cancelled" and row["classifier_intent"] == row["intent"]:
            good = False
        if good is not None and not row["model"].startswith("rule/"):
            outcomes.append((row["confidence"], good))
    found = metrics.reliability
    assert (found.right.whole, found.right.part) == (len(outcomes), sum(good for _stated, good in outcomes))
    assert found.brier == pytest.approx(mean((stated - good) ** 2 for stated, good in outcomes), abs=6e-5)
    said = Counter(one.source for one in metrics.confusion for _ in range(one.count))
    assert said["operator"] == sum(row["message_key"] in corrected for row in decided)


def test_a_month_computed_again_gives_the_same_bytes_however_the_database_goes_about_it(year: Parts) -> None:
    """Several workers add in another order each time; the sums are exact."""
    first, rendered = calibrate(year, MONTH)
    with opened(year.settings, f"{year.database_url}?options=-cmin_parallel_table_scan_size%3D0%20-cenable_indexscan%3Doff%20"
                "-cparallel_setup_cost%3D0%20-cparallel_tuple_cost%3D0") as other:  # fmt: skip
        again, rendered_again = calibrate(other, MONTH)
    assert json.dumps(first.as_json()) == json.dumps(again.as_json())
    assert (rendered, page(first, "fr")) == (rendered_again, page(again, "fr"))


def test_the_month_in_which_the_prompt_changed_says_so(year: Parts) -> None:
    drift = calibrate(year, MONTH)[0].drift
    assert (drift.explained, drift.new_prompts) == (True, ("classify-2",))
    assert drift.confidence.level in {"moved", "changed"}
    assert drift.intents.level == "stable"
    quiet = calibrate(year, "2024-05")[0].drift
    assert (quiet.explained, quiet.confidence.level) == (False, "stable")


def test_the_first_month_has_no_drift_and_the_parts_add_up_to_the_whole(year: Parts) -> None:
    months = [calibrate(year, f"2024-{month:02d}")[0] for month in range(1, 13)]
    assert (months[0].drift.intents.level, months[0].drift.explained) == ("too_few", False)
    assert sum(one.classifications for one in months) == 3000
    for one in months:
        for groups in (one.intents, one.tenants, one.models):
            assert sum(group.volume for group in groups) == one.classifications
        assert sum(count for _attempt, count in one.attempts.by_attempt) == one.attempts.success.part
    jobs = [one.gate.jobs for one in months]
    assert jobs == sorted(jobs)


def test_the_months_of_the_clock_changes_are_an_hour_shorter_and_longer(year: Parts) -> None:
    """Every decision lies in exactly one month of Paris, those of the hour that comes twice too."""
    march, october = (bounds(month, "Europe/Paris") for month in ("2024-03", "2024-10"))
    hours = [(end.astimezone(UTC) - start.astimezone(UTC)) / timedelta(hours=1) for start, end in (march, october)]
    assert hours == [31 * 24 - 1, 31 * 24 + 1]
    assert (before("2024-02", 3), before("2024-12", 0)) == ("2023-11", "2024-12")
    with pytest.raises(Refused, match="month_malformed"):
        before("2024-13", 1)


# At the edges
# ------------


def drafted(conn: Conn, number: int, intent: Intent, at: datetime = MID_MONTH) -> str:
    """A message with its decision and its record, both of one moment."""
    key = a_message(conn, number)
    classified(conn, key, intent, 0.9, at=at)
    table = {Intent.QUESTION: "questions", Intent.CHANTIER: "chantiers"}[intent]
    work.create(conn, key, table=table, title="t", tenant=None)
    conn.execute(f"update atlas.{table} set created_at = %s where message_key = %s".encode(), (at, key))  # noqa: S608
    return key


def test_what_is_cancelled_in_march_counts_for_the_month_it_was_drafted(parts: Parts, conn: Conn) -> None:
    key = drafted(conn, 1, Intent.QUESTION)
    early, _ = calibrate(parts, "2026-11")
    work.decide(conn, key, "cancel", actor="operator:lea")
    conn.execute("update atlas.questions set decided_at = '2027-03-05'")
    late, _ = calibrate(parts, "2026-11")
    assert (early.success.part, early.success.whole, early.reliability.right.whole) == (1, 1, 0)
    assert (late.success.part, late.success.whole) == (0, 1)
    assert (late.reliability.right.part, late.reliability.right.whole) == (0, 1)
    march, _ = calibrate(parts, "2027-03")
    assert (march.success.whole, march.reliability.right.whole) == (0, 0)


def test_a_message_classified_again_is_two_decisions_and_each_is_judged_by_what_was_said_of_it(
    parts: Parts, conn: Conn
) -> None:
    """A correction is of the decision that stood; the second one, which may have learnt from it, is not judged by it."""
    key = a_message(conn, 1)
    classified(conn, key, Intent.QUESTION, 0.9)
    with conn.transaction():
        conn.execute("set local session_replication_role = replica")
        verdicts.add_correction(conn, key, "run", actor="operator:lea")
        conn.execute("update atlas.corrections set at = %s", (MID_MONTH + timedelta(hours=1),))
    first, _ = calibrate(parts, "2026-11")
    with conn.transaction():
        conn.execute("set local session_replication_role = replica")
        conn.execute(
            "insert into atlas.classifications (at, message_key, intent, classifier_intent, confidence, uncertain, model, prompt_version) "
            "values (%s, %s, 'run', 'run', 0.99, false, 'm', '1')",
            (MID_MONTH + timedelta(hours=2), key),
        )
    second, _ = calibrate(parts, "2026-11")
    assert (second.classifications, second.messages) == (2, 1)
    assert first.reliability == second.reliability
    assert [(one.said, one.meant, one.count) for one in second.confusion] == [("question", "run", 1)]


def test_a_correction_outweighs_an_acceptance(parts: Parts, conn: Conn) -> None:
    key = drafted(conn, 1, Intent.QUESTION)
    work.decide(conn, key, "accept", actor="operator:lea")
    assert calibrate(parts, "2026-11")[0].reliability.right.part == 1
    verdicts.add_correction(conn, key, "chantier", actor="operator:lea")
    conn.execute("update atlas.questions set decided_at = now()")
    found = calibrate(parts, "2026-11")[0].reliability.right
    assert (found.part, found.whole) == (0, 1)


def test_nothing_is_known_of_the_model_where_a_guards_intent_was_cancelled(parts: Parts, conn: Conn) -> None:
    key = drafted(conn, 1, Intent.QUESTION)
    with conn.transaction():
        conn.execute("set local session_replication_role = replica")
        conn.execute(
            "update atlas.classifications set classifier_intent = 'noise', guards = '{noise_override_founder_attachment}'"
        )
    work.decide(conn, key, "cancel", actor="operator:lea")
    metrics, _ = calibrate(parts, "2026-11")
    assert metrics.reliability.right.whole == 0
    assert [(one.said, one.became, one.count) for one in metrics.overrides] == [("noise", "question", 1)]
    assert metrics.overridden.value == 1.0


def test_an_outcome_given_before_the_decision_is_none_of_it(parts: Parts, conn: Conn) -> None:
    key = a_message(conn, 1)
    classified(conn, key, Intent.QUESTION, 0.9, at=datetime(2026, 11, 20, tzinfo=UTC))
    with conn.transaction():
        conn.execute("set local session_replication_role = replica")
        verdicts.add_correction(conn, key, "run", actor="operator:lea")
        conn.execute("update atlas.corrections set at = '2026-11-19'")
    metrics, _ = calibrate(parts, "2026-11")
    assert (metrics.reliability.right.whole, metrics.confusion) == (0, ())
