"""``atlas agents``, ``atlas scar`` and what an agent would be told."""

from __future__ import annotations

import json

import pytest

from atlas_pipeline.model import Intent
from tests.cli.test_cli_verbs import failed
from tests.fixtures_flow import Bench, letter
from tests.fixtures_orchestration import Atlas


def test_the_agents_are_listed_and_those_of_a_domain(house_env: Bench, atlas: Atlas) -> None:
    found = json.loads(atlas("agents", "--json").out)
    assert len(found) == house_env.one("select count(*) from atlas.agents where active = 1")
    assert {"codename", "nickname", "role", "spawn_count"} <= set(found[0])
    (first, *_) = json.loads(atlas("agents", "--domain", "contenu", "--json").out)
    assert (first["domain"], first["from"], first["code"]) == ("contenu", "local", None)
    assert atlas("agents", "--domain", "cuisine").status == 2
    manifest = json.loads(atlas("agents", "--manifest").out)
    assert manifest["tables"]["agents"] == "personas"


def test_a_lesson_is_added_listed_and_expired_by_a_person(house_env: Bench, atlas: Atlas) -> None:
    number = atlas("scar", "add", "Vider le cache avant de juger.", "--agent", "backend", "--days", "30").out.strip()
    (row,) = json.loads(atlas("scar", "list", "--json").out)
    assert (str(row["id"]), row["codename"], row["lesson"]) == (number, "backend", "Vider le cache avant de juger.")
    assert row["author"].startswith("operator:")
    assert atlas("scar", "expire", number).out == f"{number}: expired\n"
    assert json.loads(atlas("scar", "list", "--json").out) == []
    assert len(json.loads(atlas("scar", "list", "--expired", "--json").out)) == 1
    assert failed(atlas("scar", "expire", number)).startswith("no_such_scar")
    assert house_env.one("select count(*) from atlas.scars") == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((" ",), "lesson_empty"),
        (("\u200b\x01",), "lesson_empty"),
        (("x" * 1001,), "lesson_too_long"),
        (("x", "--agent", "nobody"), "agent_unknown"),
        (("x", "--tenant", "nobody"), "tenant_unknown"),
    ],
)
def test_a_lesson_for_nobody_is_refused(house_env: Bench, atlas: Atlas, arguments: tuple[str, ...], code: str) -> None:
    assert failed(atlas("scar", "add", *arguments)).startswith(code)


def test_what_an_agent_would_be_told_is_shown_and_nothing_is_started(house_env: Bench, atlas: Atlas) -> None:
    key = house_env.chantier()
    before = house_env.actions(key)
    said = atlas("spawn", key, "--dry-run")
    assert said.status == 0
    assert said.out.startswith("agent: backend (code_of_tenant); profile: write; lessons: 0 by none\n")
    for told in ("# Your part", "# Mission brief", "Chantier ", "Zones: ", "An e-mail was forwarded to Atlas"):
        assert told in said.out
    assert house_env.actions(key) == before
    assert house_env.one("select count(*) from atlas.spawns") == 0
    assert house_env.state(key).intent is Intent.CHANTIER
    assert atlas("spawn", "--dry-run", "--due").status == 2
    assert failed(atlas("spawn", house_env.take_in(letter("Non", "Rien.\n"), Intent.NOISE), "--dry-run")).startswith(
        "no_agent_for_noise"
    )
