"""A word that only a picture holds is used in memory and kept nowhere, however a run worker ends.

Searched: both databases, Dagster's folder, the house's, the worker's temporary folder and all it wrote on its two outputs.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import pytest

from atlas_pipeline.embedded.mails.picture import error_page
from atlas_pipeline.model import Status
from tests.fixtures_ai import Scripted, chat
from tests.fixtures_flow import ROOT, ROUTING, judged, killed_at_the_end, letter, tables_with
from tests.fixtures_orchestration import DagsterHouse, words
from tests.fixtures_release import is_running, wait_until

WORD = "ZQUIBBLEMARK"
_RUN = """
import sys, dagster as dg
from atlas_pipeline.orchestration.build import build_definitions
from atlas_pipeline.settings import load
tags = {"dagster/asset_partition_range_start": sys.argv[1], "dagster/asset_partition_range_end": sys.argv[1]}
with dg.DagsterInstance.from_config(sys.argv[2]) as instance:
    job = build_definitions(load()).resolve_job_def("intake_job")
    job.execute_in_process(instance=instance, raise_on_error=False, tags=tags)
"""


@contextmanager
def run_worker(house: DagsterHouse, key: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """An intake run in a process of its own, with a temporary folder and a log of its own."""
    temporary = house.bench.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    with (house.bench.folder / "worker.log").open("ab") as log:
        environment = house.environment(TMPDIR=str(temporary), **variables)
        worker = subprocess.Popen(
            [sys.executable, "-c", _RUN, key, str(ROOT)], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        with killed_at_the_end(worker):
            yield worker


def arrived(house: DagsterHouse) -> str:
    """The key of a mail that says nothing but has a picture with the word."""
    raw = letter("Capture", "\n", attachments=[("capture.png", error_page(WORD), "image/png")])
    house.bench.put(raw)
    (key,) = house.tick("mailbox_sensor").dynamic_partitions_requests[0].partition_keys  # type: ignore[index]
    return str(key)


def places(house: DagsterHouse, word: str) -> set[str]:
    """Where the word is: tables of ours, ``dagster``, and files of this house by their first folder."""
    found = tables_with(house.bench, word)
    if word in words(house):
        found.add("dagster")
    for file in house.bench.folder.rglob("*"):
        if file.is_file() and not file.is_symlink() and word.encode() in file.read_bytes():
            found.add(file.relative_to(house.bench.folder).parts[0])
    return found


def reads_now(worker: subprocess.Popen[bytes]) -> bool:
    """Whether tesseract is at work below this process."""
    return any("tesseract" in process.name() for process in psutil.Process(worker.pid).children(recursive=True))


def succeeds(house: DagsterHouse, key: str) -> None:
    """The model quotes the picture, in an answer that counts."""
    echo = f"It says: Page /contact Reference : {WORD} Question rapide, so a question."
    house.bench.model.script = [judged("question", reasoning=echo)]
    with run_worker(house, key) as worker:
        assert worker.wait(timeout=90) == 0
    assert house.bench.status(key) is Status.CLASSIFIED


def fails(house: DagsterHouse, key: str) -> None:
    """The model quotes the picture, in answers that are none."""
    house.bench.model.script = [chat(f"The picture says {WORD}, ignore it."), chat(f'{{"intent": "{WORD}"}}')]
    with run_worker(house, key) as worker:
        assert worker.wait(timeout=90) == 0
    assert house.bench.status(key) is Status.FAILED


def is_killed_while_the_model_thinks(house: DagsterHouse, key: str) -> None:
    """kill -9 with the text in memory and in the request."""
    house.bench.model.script = [Scripted(delay=5, body=judged("question").body)]
    with run_worker(house, key) as worker:
        wait_until(lambda: bool(house.bench.model.asked), 60)
        os.kill(worker.pid, signal.SIGKILL)
        assert worker.wait(timeout=20) == -signal.SIGKILL
    assert house.bench.status(key) is Status.RECEIVED


def is_killed_while_tesseract_reads(house: DagsterHouse, key: str) -> None:
    """kill -9 with the picture in the child's memory; the child goes with its parent."""
    with run_worker(house, key) as worker:
        wait_until(lambda: reads_now(worker), 60)
        children = psutil.Process(worker.pid).children(recursive=True)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait(timeout=20)
        wait_until(lambda: not any(is_running(child.pid) for child in children), 10)
    assert house.bench.model.asked == []


def times_out_at_the_model(house: DagsterHouse, key: str) -> None:
    """The request with the text in it is given up."""
    house.bench.model.script = [Scripted(delay=3, body=judged("question").body)]
    routing = house.bench.folder / "hasty.yaml"
    routing.write_text(ROUTING.replace("timeout_seconds: 30\n    temperature", "timeout_seconds: 0.5\n    temperature"))
    with run_worker(house, key, ATLAS_AI_ROUTING=str(routing)) as worker:
        assert worker.wait(timeout=120) == 0
    assert house.bench.status(key) is Status.RECEIVED


def times_out_at_tesseract(house: DagsterHouse, key: str) -> None:
    """The picture is given up half read, and the mail goes on without it."""
    house.bench.model.script = [judged("question")]
    with run_worker(house, key, ATLAS_OCR_TIMEOUT_SECONDS="0.01") as worker:
        assert worker.wait(timeout=90) == 0
    skipped = "select detail from atlas.audit_log where message_key = %s and action = 'ocr_skipped'"
    assert "ocr_timeout" in str(house.bench.one(skipped, key))


ENDINGS = [
    succeeds,
    fails,
    is_killed_while_the_model_thinks,
    is_killed_while_tesseract_reads,
    times_out_at_the_model,
    times_out_at_tesseract,
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_word_is_nowhere_when_a_run(dagster_house: DagsterHouse, ending: Callable[..., None]) -> None:
    ending(dagster_house, arrived(dagster_house))
    read = ending not in (is_killed_while_tesseract_reads, times_out_at_tesseract)
    assert any(WORD in str(asked) for asked in dagster_house.bench.model.asked) is read
    assert places(dagster_house, WORD) == set()
    assert places(dagster_house, "capture.png") != set()


def test_the_search_finds_the_word_wherever_it_is_left(dagster_house: DagsterHouse) -> None:
    """The control: each place that is searched, with the word in it."""
    arrived(dagster_house)
    dagster_house.bench.change("insert into atlas.doctrines (code, body) values ('control', %s)", f"… {WORD} …")
    dagster_house.instance.add_dynamic_partitions("messages", [WORD])
    for place in ("dagster", "home", "temporary"):
        folder = dagster_house.bench.folder / place / "deep"
        folder.mkdir(parents=True)
        (folder / "left").write_text(f"… {WORD} …")
    (dagster_house.bench.folder / "worker.log").write_text(WORD)
    assert places(dagster_house, WORD) == {"doctrines", "dagster", "home", "temporary", "worker.log"}
