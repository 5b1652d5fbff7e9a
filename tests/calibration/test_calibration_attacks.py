"""What the report meets that nobody planned: hostile names, two of it at once, rows that are written while it reads."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import psycopg
import pytest
from psycopg.rows import dict_row

from atlas_pipeline.calibration.page import page
from atlas_pipeline.calibration.pictures import pictures
from atlas_pipeline.errors import Refused
from atlas_pipeline.flow.calibrating import calibrate
from atlas_pipeline.flow.parts import Parts, opened
from atlas_pipeline.settings import Settings
from atlas_pipeline.store import figures, locks, replays
from tests.calibration_rows import MID_MONTH, Conn, internal_jobs
from tests.fixtures_release import wait_until

MONTH = "2026-11"
HOSTILE = (
    "<script>alert(1)</script>", "a|b\n|c|d|", "\x1b[31mred", "[x](javascript:alert(1))", "<img src=x onerror=alert(1)>",
    "`code`", "\u202eevil", "é 🜁 ]]>", '" onload="alert(1)', "&lt;b&gt;",
)  # fmt: skip


_CALL = (
    "insert into atlas.ai_calls (at, message_key, task, provider, model, code, milliseconds) "
    "values (%s, 'k', 'classification', 'p', %s, 'ok', 5)"
)


@pytest.fixture
def parts(database_url: str, tmp_path: Path) -> Iterator[Parts]:
    with opened(Settings(home=tmp_path), database_url) as made:
        yield made


class Tags(HTMLParser):
    """The elements of a page, and the attributes they have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _value in attrs}


def decided(conn: Conn, number: int, model: str = "m/1", guards: tuple[str, ...] = ()) -> None:
    """A decision, without the message it is about."""
    conn.execute(
        "insert into atlas.classifications (at, message_key, intent, classifier_intent, confidence, uncertain, model, prompt_version, guards) "
        "values (%s, %s, 'run', 'run', 0.9, false, %s, %s, %s)",
        (MID_MONTH, f"20261115-{number:06d}", model, model, list(guards)),
    )


def test_names_from_outside_are_text_wherever_the_report_is_shown(parts: Parts, conn: Conn) -> None:
    """A model's name is its provider's to choose. In the page, the pictures, the Markdown of the UI."""
    for number, name in enumerate(HOSTILE):
        decided(conn, number, name, (name,))
        conn.execute(_CALL, (MID_MONTH, name))
    metrics, rendered = calibrate(parts, MONTH)
    plain = Tags(page(metrics, "fr"))
    assert plain.names.isdisjoint({"script", "img", "a", "b", "link", "iframe"})
    assert plain.attributes.isdisjoint({"onerror", "onload", "src", "href"})
    assert "&lt;script&gt;" in page(metrics, "fr")
    for picture in pictures(metrics, "en"):
        root = ElementTree.fromstring(picture.svg)  # noqa: S314  # our own picture: that it is XML is what is asked
        assert {one.tag.rpartition("}")[2] for one in root.iter()} <= {"svg", "rect", "text", "line", "circle"}
    assert all(word not in rendered for word in ("<script", "<img", "\x1b", "`", "\u202e"))
    assert rendered.count("[x](") == rendered.count("\\[x](") > 0
    models = rendered[rendered.index("## Par modèle") : rendered.index("## Versions")].strip().splitlines()
    assert len(models) == 4 + len(HOSTILE)
    assert {line.count(" | ") for line in models[4:]} == {6}
    json.loads(json.dumps(metrics.as_json()))


def test_a_report_waits_for_another_of_its_month_and_then_reads(parts: Parts, conn: Conn) -> None:
    """Of two at once the one that read first could have written last, and an older decision of the gate been the newest."""
    found: list[int] = []
    with figures.alone(parts.database_url, MONTH):
        waiting = threading.Thread(target=lambda: found.append(calibrate(parts, MONTH)[0].gate.jobs), daemon=True)
        waiting.start()
        wait_until(
            lambda: bool(conn.execute("select from pg_locks where locktype = 'advisory' and not granted").fetchall()),
            20,
        )
        assert calibrate(parts, "2026-10")[0].gate.jobs == 0
        internal_jobs(conn, 30, cancelled=0)
    waiting.join(timeout=30)
    assert found == [30]
    newest = conn.execute("select earned from atlas.phase_decisions where month = %s", (MONTH,)).fetchall()
    assert newest == [{"earned": True}]


def test_many_reports_at_once_leave_one_report_and_one_decision(parts: Parts, conn: Conn) -> None:
    internal_jobs(conn, 3, cancelled=1)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _number: calibrate(parts, MONTH)[1], range(8)))
    assert len(set(made)) == 1
    assert conn.execute("select rendered from atlas.calibration_reports").fetchall() == [{"rendered": made[0]}]
    assert conn.execute("select count(*) as n from atlas.phase_decisions").fetchone() == {"n": 1}


def test_a_report_read_while_rows_are_written_is_of_one_moment(parts: Parts, conn: Conn, database_url: str) -> None:
    """Decisions, drafts and calls are written together; no report sees one of them without the others."""
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(database_url, row_factory=dict_row) as writer:
            number = 0
            while not stop.is_set():
                with writer.transaction():
                    writer.execute("set local session_replication_role = replica")
                    decided(writer, number)
                    writer.execute(
                        "insert into atlas.runs (message_key, title, created_at) values (%s, 't', %s)",
                        (f"20261115-{number:06d}", MID_MONTH),
                    )
                    writer.execute(_CALL, (MID_MONTH, "m"))
                number += 1

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    seen = []
    try:
        for _ in range(12):
            metrics, _rendered = calibrate(parts, MONTH)
            drafts, calls = sum(one.drafts for one in metrics.intents), sum(one.calls for one in metrics.calls)
            assert metrics.classifications == metrics.messages == drafts == calls
            seen.append(metrics.classifications)
    finally:
        stop.set()
        thread.join(timeout=20)
    assert seen == sorted(seen)
    assert seen[-1] > seen[0]


def test_locks_of_different_things_are_of_different_classes() -> None:
    """A replay's number and a client's pre-production once shared one."""
    classes = [locks.LOCK_CLASS, locks.TENANT_CLASS, replays.REPLAY_CLASS, figures.REPORT_CLASS]
    assert len(set(classes)) == len(classes)


@pytest.mark.parametrize("month", ["9" * 10_000, "2026-11\n", " 2026-11", "2026-11; drop table atlas.inbox", "-001-01", "２０２６-11"],
                         ids=["huge", "newline", "space", "sql", "negative", "fullwidth"])  # fmt: skip
def test_a_month_that_is_none_is_refused_whatever_it_is(parts: Parts, conn: Conn, month: str) -> None:
    with pytest.raises(Refused, match="month_malformed"):
        calibrate(parts, month)
    assert conn.execute("select from atlas.calibration_reports").fetchall() == []


@pytest.mark.parametrize("month", ["1001-01", "2026-11", "2999-12"])
def test_a_database_without_rows_has_a_report_of_any_month(parts: Parts, month: str) -> None:
    metrics, rendered = calibrate(parts, month)
    assert (metrics.classifications, metrics.gate.earned) == (0, False)
    assert "rien ce mois-ci" in rendered
    assert page(metrics, "en").count("<svg ") == 6
