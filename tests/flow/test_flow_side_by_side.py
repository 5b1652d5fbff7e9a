"""Several messages whose model is asked at the same time: order, independence, and what a kill leaves."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import Any

import pytest

from atlas_pipeline.flow.stage import INBOX_STAGES, StageDone
from atlas_pipeline.model import Intent, Status
from tests.fixtures_ai import Scripted, ScriptedServer, chat
from tests.fixtures_flow import ROUTING, Bench, ended, failures, judged, killed_at_the_end, letter, outcomes
from tests.fixtures_release import wait_until

AT_ONCE = 4


class Slow(list[Scripted]):
    """Answers by what is asked, each after ``delay`` seconds; notes how many are asked at once."""

    def __init__(self, server: ScriptedServer, delay: float) -> None:
        super().__init__([chat("")])
        self.server, self.delay, self.inside, self.most, self.lock = server, delay, 0, 0, threading.Lock()

    def __getitem__(self, index: Any) -> Any:
        asked = json.dumps(self.server.asked[-1])
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(self.delay)
        with self.lock:
            self.inside -= 1
        return chat("no JSON") if "MARKED" in asked else judged(Intent.QUESTION)


@pytest.fixture
def wide(bench: Bench) -> Bench:
    """The bench with room for four questions at once."""
    file = bench.folder / "wide.yaml"
    file.write_text(ROUTING.replace("at_once: {mistral: 8", f"at_once: {{mistral: {AT_ONCE}"))
    return bench.again(ai_routing=file)


def test_models_are_asked_side_by_side_and_reports_come_in_the_ranges_order(wide: Bench) -> None:
    for number in range(12):
        wide.put(letter(f"MARKED {number}" if number == 5 else f"Question {number}"), name=f"{number:06d}.test")
    keys = wide.discover()
    slow = Slow(wide.model, 0.3)
    wide.model.script = slow
    started = time.monotonic()
    reports = wide.intake(keys)
    elapsed = time.monotonic() - started
    assert slow.most == AT_ONCE
    assert elapsed < 12 * 0.3 + 1  # one after the other, with one retry: 3.9 s and all the rest of the work
    assert [report.key for report in reports] == [key for key in keys for _stage in INBOX_STAGES]
    assert failures(reports) == [("classification", keys[5], "answer_not_json")]
    assert [wide.status(key) for key in keys] == [
        Status.FAILED if key == keys[5] else Status.CLASSIFIED for key in keys
    ]
    assert wide.one("select count(*) from atlas.inbox_claims") == 0


def test_every_call_stands_with_the_message_it_was_made_for(wide: Bench) -> None:
    for number in range(6):
        wide.put(letter(f"Question {number}"))
    keys = wide.discover()
    wide.model.script = Slow(wide.model, 0.05)
    wide.intake(keys)
    found = wide.rows("select message_key, count(*) as calls from atlas.ai_calls group by 1 order by 1")
    assert found == [{"message_key": key, "calls": 1} for key in sorted(keys)]


def test_a_kill_while_models_are_asked_is_held_against_no_message(wide: Bench) -> None:
    """Three kills, and all messages of the range are classified by the next run: none is taken for poison."""
    for number in range(AT_ONCE + 2):
        wide.put(letter(f"Question {number}"))
    keys = wide.discover()
    wide.model.script = Slow(wide.model, 60)
    for turn in range(3):
        before = len(wide.model.asked)
        with killed_at_the_end(wide.worker("intake", f"run-{turn}", *keys)) as worker:
            wait_until(lambda before=before: len(wide.model.asked) >= before + AT_ONCE, 60)  # type: ignore[misc]  # of this turn
            # The others of the range are ready and wait; one that is being read when the kill comes would count a try.
            wait_until(lambda: wide.one("select count(*) from atlas.inbox_claims where tries > 0") == 0, 55)
            os.kill(worker.pid, signal.SIGKILL)
            assert ended(worker)[0] == -signal.SIGKILL
        wide.change("update atlas.inbox_claims set until = now() - interval '1 second'")
    wide.model.script = Slow(wide.model, 0)
    reports = wide.intake(keys, run_id="last")
    assert failures(reports) == []
    assert {wide.status(key) for key in keys} == {Status.CLASSIFIED}


def test_a_message_that_needs_no_model_does_not_wait_for_those_that_do(wide: Bench) -> None:
    wide.put(letter("Question"), name="000001.test")
    wide.put(letter("Question"), name="000002.test")
    first, second = wide.discover()
    wide.model.script = [judged(Intent.QUESTION)]
    assert outcomes(wide.intake([first, second]), second) == ["done", "done", "not_needed", "done"]
    again = wide.intake([first, second], run_id="again")
    assert [report.outcome for report in again if isinstance(report, StageDone)] == ["unchanged"] * 8
