"""The registry and the lessons: loaded and embedded once, and given to those they concern."""

from __future__ import annotations

from pathlib import Path

from atlas_pipeline.flow import teaching
from atlas_pipeline.flow.stage import StageDone
from atlas_pipeline.model import Intent
from tests.fixtures_ai import Scripted, vectors
from tests.fixtures_flow import SLUG, Bench, letter, write_agent


def scar(
    bench: Bench, lesson: str, *, codename: str | None = None, tenant: str | None = None, days: int | None = None
) -> None:
    bench.change(
        "insert into atlas.scars (codename, tenant, lesson, provenance, author, expires_at) "
        "values (%s, %s, %s, 'test', 'lea', now() + %s * interval '1 day')",
        codename, tenant, lesson, days,
    )  # fmt: skip


def an_agent(bench: Bench) -> str:
    return str(bench.one("select codename from atlas.agents where active = 1 order by id limit 1"))


def test_loading_the_registry_again_changes_nothing_and_keeps_the_counters(bench: Bench) -> None:
    codename = an_agent(bench)
    bench.change("update atlas.agents set spawn_count = 3 where codename = %s", codename)
    assert teaching.load_agents(bench.parts)[0] == 0
    bench.change("update atlas.agents set role = 'other' where codename = %s", codename)
    assert teaching.load_agents(bench.parts)[0] == 1
    assert bench.one("select spawn_count from atlas.agents where codename = %s", codename) == 3


def test_each_lesson_is_embedded_once_a_model(bench: Bench) -> None:
    scar(bench, "Un")
    scar(bench, "Deux")
    bench.model.script = [vectors((0, [1.0, 0.0]), (1, [0.0, 1.0]))]
    assert teaching.index_scars(bench.parts) == (2, "mistral/mistral-embed")
    assert teaching.index_scars(bench.parts) == (0, "mistral/mistral-embed")
    assert len(bench.model.asked) == 1
    assert bench.rows("select message_key, task, code from atlas.ai_calls") == [
        {"message_key": None, "task": "embedding", "code": "ok"}
    ]


def test_the_nearest_lessons_are_told_own_ones_first_and_none_of_another_tenant_or_out_of_date(bench: Bench) -> None:
    codename = an_agent(bench)
    bench.change("insert into atlas.tenants (slug, name) values ('autre', 'Autre')")
    lessons = {
        "globale": (None, None, None),
        "propre": (codename, None, None),
        "du client": (codename, SLUG, None),
        "d'un autre": (codename, "autre", None),
        "passée": (codename, None, -1),
    }
    for lesson, (owner, tenant, days) in lessons.items():
        scar(bench, lesson, codename=owner, tenant=tenant, days=days)
    bench.model.script = [vectors(*((number, [1.0, float(number)]) for number in range(len(lessons))))]
    teaching.index_scars(bench.parts)
    bench.model.script = [vectors((0, [1.0, 2.0]))]
    assert teaching.lessons(bench.parts, codename, SLUG, "about", key="k") == ("du client", "propre", "globale")
    assert teaching.lessons(bench.parts, codename, None, "about", key="k", limit=1) == ("propre",)


def test_without_a_lesson_no_model_is_asked(bench: Bench) -> None:
    assert teaching.lessons(bench.parts, an_agent(bench), None, "about", key="k") == ()
    assert bench.model.asked == []


def test_an_agent_is_told_its_lessons_and_the_call_that_found_them_is_on_record(bench: Bench, tmp_path: Path) -> None:
    heard = tmp_path / "system.txt"
    body = (
        "option = next(word for word in sys.argv if word.startswith('--append-system-prompt-file='))\n"
        f"pathlib.Path({str(heard)!r}).write_text(open(option.partition('=')[2]).read())"
    )
    house = bench.again(agent_bin=write_agent(tmp_path, f"{body}\nresult_file(); end()"))
    scar(house, "Toujours relire.")
    house.model.script = [vectors((0, [1.0, 0.0]))]
    teaching.index_scars(house.parts)
    key = house.take_in(letter(), Intent.QUESTION)
    house.model.script = [vectors((0, [1.0, 0.0]))]
    assert isinstance(house.spawn(key), StageDone)
    assert "- Toujours relire." in heard.read_text()
    calls = house.rows("select task from atlas.ai_calls where message_key = %s order by id", key)
    assert [call["task"] for call in calls] == ["classification", "embedding"]


def test_a_provider_that_is_down_costs_an_agent_its_lessons_and_not_its_start(bench: Bench) -> None:
    scar(bench, "Toujours relire.")
    key = bench.take_in(letter(), Intent.QUESTION)
    bench.model.script = [Scripted(status=401)]
    assert isinstance(bench.spawn(key), StageDone)
    assert bench.codes(key, "lessons_missing") == ["provider_access_refused"]
