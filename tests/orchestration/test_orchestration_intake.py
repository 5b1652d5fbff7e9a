"""Intake as a Dagster run: a range of mails, each with its own outcome, and nothing of a mail in Dagster's storage.

No postponed annotations here: Dagster reads those of the careless step that the search is proven with.
"""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from atlas_pipeline.embedded.clamd import eicar
from atlas_pipeline.flow.stage import INBOX_STAGES
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.store import claims
from tests.fixtures_ai import Scripted, ScriptedServer, chat
from tests.fixtures_flow import judged, letter
from tests.fixtures_orchestration import DagsterHouse, all_stages, failed_keys, words

CANARIES = ("KOBOLDSUBJECT", "koboldsender", "KOBOLDBODY", "KOBOLDFILE", "KOBOLDREASON")


class ByContent(list[Scripted]):
    """A script of one answer for ever: nonsense to a mail with ``marker`` in it, a question to every other."""

    def __init__(self, server: ScriptedServer, marker: str) -> None:
        super().__init__([chat("")])
        self._server, self._marker = server, marker

    def __getitem__(self, index: Any) -> Any:
        asked = json.dumps(self._server.asked[-1])
        return (
            chat("no JSON, KOBOLDREASON")
            if self._marker in asked
            else judged(Intent.QUESTION, reasoning="KOBOLDREASON")
        )


def put(house: DagsterHouse, *subjects: str, body: str = "Bonjour.\n") -> None:
    """Deliver mails in this order."""
    for number, subject in enumerate(subjects):
        house.bench.put(letter(subject, body), name=f"{number:06d}.test")


def keys_of(house: DagsterHouse) -> list[str]:
    """The ledger's keys in its order."""
    return [row["message_key"] for row in house.bench.rows("select message_key from atlas.mailbox_ledger order by seq")]


def test_with_three_bad_mails_of_twenty_exactly_these_fail(dagster_house: DagsterHouse) -> None:
    """Seventeen mails must not wait for three; the UI shows the three, and only where they broke."""
    bad = (3, 9, 17)
    put(dagster_house, *("MARKED" if number in bad else "Plain" for number in range(20)))
    dagster_house.bench.model.script = ByContent(dagster_house.bench.model, "MARKED")
    result = dagster_house.take_in()
    keys = keys_of(dagster_house)
    assert not result.success
    assert failed_keys(result) == [[keys[n], "classification", "answer_not_json"] for n in bad]
    outcomes = dagster_house.outcomes(result)
    for number, key in enumerate(keys):
        reached = INBOX_STAGES[:3] if number in bad else INBOX_STAGES
        assert [line.partition(":")[0] for line in outcomes[key]] == list(reached)
        assert dagster_house.bench.status(key) is (Status.FAILED if number in bad else Status.CLASSIFIED)
    shown = dagster_house.statuses("classification", keys)
    assert [key for key in keys if shown[key] == "FAILED"] == [keys[n] for n in bad]
    assert set(dagster_house.statuses("ocr_text", keys).values()) == {"MATERIALIZED"}


def test_a_retry_of_a_range_leaves_alone_what_is_done(dagster_house: DagsterHouse) -> None:
    """A backfill in the UI, a re-execution: the tables say what is done."""
    put(dagster_house, "One", "Two")
    dagster_house.bench.model.script = [judged(Intent.QUESTION)]
    dagster_house.take_in()
    asked = len(dagster_house.bench.model.asked)
    first, last = keys_of(dagster_house)
    again = dagster_house.intake(first, last)
    assert again.success
    assert dagster_house.outcomes(again) == {key: all_stages("unchanged") for key in (first, last)}
    assert len(dagster_house.bench.model.asked) == asked


def test_redo_runs_a_finished_range_again_and_supersedes_the_work_records(dagster_house: DagsterHouse) -> None:
    """The operator's way to a second opinion on many mails."""
    put(dagster_house, "One", "Two")
    dagster_house.bench.model.script = [judged(Intent.QUESTION)]
    dagster_house.take_in()
    first, last = keys_of(dagster_house)
    dagster_house.bench.model.script = [judged(Intent.NEGOCIATION)]
    again = dagster_house.intake(first, last, run_config={"ops": {"intake": {"config": {"redo": True}}}})
    assert again.success
    assert [lines[-1] for lines in dagster_house.outcomes(again).values()] == ["classification:done"] * 2
    assert dagster_house.bench.one("select count(*) from atlas.questions where superseded_at is not null") == 2
    assert dagster_house.bench.one("select count(*) from atlas.negociations where superseded_at is null") == 2


def test_a_single_partition_can_be_run_from_the_ui(dagster_house: DagsterHouse) -> None:
    """One key in the place of a range."""
    put(dagster_house, "One", "Two")
    dagster_house.tick("mailbox_sensor")
    dagster_house.bench.model.script = [judged(Intent.NOISE)]
    _first, last = keys_of(dagster_house)
    result = dagster_house.execute("intake_job", partition_key=last)
    assert result.success
    assert list(dagster_house.outcomes(result)) == [last]


def test_a_message_leased_to_another_run_is_passed_over(dagster_house: DagsterHouse) -> None:
    """A second run over the same range must not do the work twice."""
    put(dagster_house, "One", "Two")
    dagster_house.tick("mailbox_sensor")
    first, last = keys_of(dagster_house)
    with dagster_house.bench.parts.db.transaction() as conn:
        claims.lease(conn, [first], run_id="another", seconds=900)
    dagster_house.bench.model.script = [judged(Intent.NOISE)]
    result = dagster_house.intake(first, last)
    assert result.success
    assert dagster_house.outcomes(result)[first] == all_stages("waiting")
    assert dagster_house.outcomes(result)[last][-1] == "classification:done"


def test_a_blocked_mail_and_a_duplicate_end_with_all_four_stages(dagster_house: DagsterHouse) -> None:
    """A planned key without a new materialisation would show as failed."""
    same = letter("Twice")
    dagster_house.bench.put(
        letter("Infected", attachments=[("a.com", eicar(), "application/x-msdos-program")]), name="1"
    )
    dagster_house.bench.put(same, name="2")
    dagster_house.bench.put(same, name="3")
    dagster_house.bench.model.script = [judged(Intent.NOISE)]
    result = dagster_house.take_in()
    infected, _original, copy = keys_of(dagster_house)
    assert result.success
    assert dagster_house.outcomes(result)[infected] == ["raw_message:done", *(f"{s}:blocked" for s in INBOX_STAGES[1:])]
    assert dagster_house.outcomes(result)[copy] == all_stages("duplicate")
    shown = dagster_house.statuses("classification", keys_of(dagster_house))
    assert set(shown.values()) == {"MATERIALIZED"}


def test_without_a_scanner_the_run_fails_with_a_code_and_the_messages_wait(
    dagster_house: DagsterHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is opened unscanned, nothing is lost, and the next look waits a little longer."""
    put(dagster_house, "One")
    monkeypatch.setenv("ATLAS_CLAMD", "unix:/nonexistent/clamd.sock")
    result = dagster_house.take_in()
    (key,) = keys_of(dagster_house)
    ((failed, stage, _code),) = failed_keys(result)
    assert (failed, stage) == (key, "scan_verdict")
    assert dagster_house.bench.status(key) is Status.RECEIVED
    assert dagster_house.tick("unfinished_sensor").run_requests == []


def test_a_value_that_is_handed_to_dagster_is_refused(dagster_house: DagsterHouse) -> None:
    """The default IO manager would write it to a file."""

    @dg.asset
    def careless() -> str:
        return "KOBOLDVALUE"

    definitions = dg.Definitions(
        [careless], resources=dagster_house.defs.resources or {}, executor=dg.in_process_executor
    )
    job = definitions.resolve_implicit_global_asset_job_def()
    result = job.execute_in_process(instance=dagster_house.instance, raise_on_error=False)
    assert not result.success
    assert "io_manager_refuses_values" in words(dagster_house)
    assert "KOBOLDVALUE" not in words(dagster_house)


def test_nothing_of_a_mail_is_found_in_dagsters_storage(dagster_house: DagsterHouse) -> None:
    """Subject, address, text, file name and the model's words; of mails that went well, that failed, and that were blocked."""
    sender = "koboldsender@menuiserie-lorme.example"
    for number, subject in enumerate(("KOBOLDSUBJECT", "KOBOLDSUBJECT MARKED")):
        attachment = ("KOBOLDFILE.txt", b"KOBOLDBODY", "text/plain")
        dagster_house.bench.put(
            letter(subject, "KOBOLDBODY\n", sender=sender, attachments=[attachment]), name=f"{number}.test"
        )
    dagster_house.bench.put(
        letter("KOBOLDSUBJECT", "KOBOLDBODY\n", sender=sender, attachments=[("KOBOLDFILE.com", eicar(), "text/plain")])
    )
    dagster_house.bench.model.script = ByContent(dagster_house.bench.model, "MARKED")
    result = dagster_house.take_in()
    assert len(failed_keys(result)) == 1
    found = words(dagster_house)
    assert [canary for canary in CANARIES if canary in found] == []
    assert keys_of(dagster_house)[0] in found

    # The control: what a careless step would leave is found by the same search.
    @dg.op
    def careless(context: dg.OpExecutionContext) -> None:
        context.log.info("KOBOLDBODY")
        context.log_event(dg.AssetMaterialization("careless", metadata={"subject": "KOBOLDSUBJECT"}))
        raise ValueError("koboldsender")

    @dg.job(executor_def=dg.in_process_executor)
    def careless_job() -> None:
        careless()

    careless_job.execute_in_process(instance=dagster_house.instance, raise_on_error=False)
    found = words(dagster_house)
    assert [canary for canary in CANARIES if canary in found] == ["KOBOLDSUBJECT", "koboldsender", "KOBOLDBODY"]


def test_the_search_reads_compressed_columns_too(dagster_house: DagsterHouse, tmp_path: Path) -> None:
    """Dagster keeps snapshots of jobs compressed: a search of the plain bytes would find nothing there, ever."""
    dagster_house.execute("outbox_job")
    assert '"deliver_recaps"' in words(dagster_house)
