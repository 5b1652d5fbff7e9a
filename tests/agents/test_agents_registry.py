"""The registry that comes with Atlas, the tiers it is rendered in, and who is designated."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from atlas_pipeline.agents.designate import designate
from atlas_pipeline.agents.load import COLUMNS, FAMILIES, load_registry, read_registry
from atlas_pipeline.agents.persona import Persona, format_briefing, format_core, format_metier
from atlas_pipeline.errors import NotConfigured, Refused
from atlas_pipeline.model import Intent

NAMED = {
    "direction": {"Atlas", "Hill", "Colbert", "Winnicott"},
    "cadrage": {"Montesquieu", "Gauss", "Clausewitz", "Marco Polo", "Socrate"},
    "validation": {"Otlet", "Mitnick", "Itten"},
}


def test_the_agents_of_the_specification_are_there_in_their_families_and_rings() -> None:
    """Twelve are named there; one executes."""
    agents = load_registry()
    for family, names in NAMED.items():
        assert {agent["nickname"] for agent in agents if agent["group_name"] == family} == names
    assert [agent["codename"] for agent in agents if agent["group_name"] == "execution"] == ["backend"]
    assert len(agents) == 13
    rings = {agent["nickname"]: agent["orbite"] for agent in agents}
    assert {name for name, ring in rings.items() if ring == 1} == NAMED["direction"] | {
        "Montesquieu", "Gauss", "Clausewitz",
    }  # fmt: skip
    assert agents[0]["codename"] == "orchestrator"


def test_every_agent_is_written_out_and_distinct() -> None:
    """A persona that says nothing of its own changes nothing in an answer."""
    agents = load_registry()
    for name in COLUMNS:
        values = [
            agent[name] for agent in agents if name not in {"group_name", "prompt_domains", "heritage", "heritage_en"}
        ]
        assert len(set(values)) == len(values)
    assert {agent["group_name"] for agent in agents} == FAMILIES
    assert all(agent["cognitive_frame"].count("\n") == 3 for agent in agents)  # the four dimensions


def test_each_tier_contains_the_smaller_one_and_keeps_its_budget() -> None:
    """About 150 and 350 tokens; counted at three characters each, which is pessimistic for French."""
    for agent in load_registry():
        persona = Persona.from_row({**agent, "id": 7, "active": 1})
        core, metier = format_core(persona), format_metier(persona)
        assert metier.startswith(core)
        assert core.index(persona.cognitive_frame) < core.index(persona.nickname)
        assert persona.job_mission in metier
        assert persona.job_mission not in core
        assert len(core) <= 450
        assert len(metier) <= 1050
    assert format_briefing is format_metier


def test_an_agent_without_a_scope_renders_without_empty_titles() -> None:
    """NULL columns are allowed in the table."""
    row = {**load_registry()[0], "job_mission": None, "job_perimeter": None, "job_key_checks": None}
    assert "Mission" not in format_metier(Persona.from_row(row))


def _entry(**changes: Any) -> dict[str, Any]:
    return {**load_registry()[0], **changes}


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "registry_empty"),
        ({"a": 1}, "registry_empty"),
        (["x"], "registry_columns_differ"),
        ([{"codename": "x"}], "registry_columns_differ"),
        ([_entry(surprise="x")], "registry_columns_differ"),
        ([_entry(), _entry()], "registry_codename_twice"),
        ([_entry(codename="Not Kebab")], "registry_codename_invalid"),
        ([_entry(codename="x\n")], None),
        ([_entry(group_name="cuisine")], "registry_family_unknown"),
        ([_entry(orbite=4)], "registry_orbite_invalid"),
        ([_entry(orbite=True)], "registry_orbite_invalid"),
        ([_entry(role=" ")], "registry_text_missing"),
        ([_entry(role=7)], "registry_text_missing"),
        ([_entry(role="x" * 256)], "registry_text_too_long"),
    ],
)
def test_a_wrong_registry_is_refused_with_a_code(entries: object, code: str | None) -> None:
    """Better at the door than half of it in the table."""
    text = yaml.safe_dump(entries)
    if code is None:
        assert read_registry(text)[0]["codename"] == "x"
        return
    with pytest.raises(NotConfigured) as caught:
        read_registry(text)
    assert caught.value.code == code


@pytest.mark.parametrize("text", ["{", "!!python/object:os.system x", "- &a [*a]", "2020-99-99", "[" * 1500])
def test_garbage_is_no_registry(text: str) -> None:
    """Never an exception of the library."""
    with pytest.raises(NotConfigured):
        read_registry(text)


def test_every_intent_that_acts_has_an_agent_of_the_registry() -> None:
    """A designated agent that does not exist would leave the spawn without a persona."""
    codenames = {agent["codename"] for agent in load_registry()}
    for intent in set(Intent) - {Intent.NOISE}:
        for tenant in (None, "menuiserie-lorme"):
            codename, reason = designate(intent, tenant)
            assert codename in codenames
            assert reason.isidentifier()
    assert designate(Intent.CHANTIER, "menuiserie-lorme") == ("backend", "code_of_tenant")
    assert designate(Intent.RUN, None) == ("backend", "plan_without_tenant")
    assert designate(Intent.QUESTION, None)[0] == "orchestrator"
    assert designate(Intent.NEGOCIATION, None)[0] == "commerce"
    with pytest.raises(Refused, match="no_agent_for_noise"):
        designate(Intent.NOISE, None)
