"""The registry that comes with Atlas, the tiers it is rendered in, and who is designated."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

from atlas_pipeline.agents.designate import DOMAINS, Designation, agents_for_domain, designate
from atlas_pipeline.agents.load import COLUMNS, FAMILIES, load_registry, read_registry
from atlas_pipeline.agents.persona import BUDGETS, TIERS, Persona, format_briefing, format_full, format_metier
from atlas_pipeline.agents.reactor import DISPLAY_RING, reactor_svg
from atlas_pipeline.errors import NotConfigured, Refused
from atlas_pipeline.model import Intent

NAMED = {
    "direction": {"Atlas", "Hill", "Colbert", "Winnicott"},
    "cadrage": {"Montesquieu", "Gauss", "Clausewitz", "Marco Polo", "Socrate"},
    "validation": {"Otlet", "Mitnick", "Itten"},
}


# Ring column and family: how many there are.
DISTRIBUTION = {
    (1, "direction"): 4,
    (1, "cadrage"): 3,
    (2, "cadrage"): 2,
    (2, "validation"): 8,
    (3, "execution"): 12,
    (3, "validation"): 1,
}


def test_thirty_agents_are_distributed_as_the_specification_lists_them() -> None:
    agents = load_registry()
    assert Counter((agent["orbite"], agent["group_name"]) for agent in agents) == DISTRIBUTION
    for family, names in NAMED.items():
        assert names <= {agent["nickname"] for agent in agents if agent["group_name"] == family}
    rings = {agent["nickname"]: agent["orbite"] for agent in agents}
    assert {name for name, ring in rings.items() if ring == 1} == NAMED["direction"] | {
        "Montesquieu", "Gauss", "Clausewitz",
    }  # fmt: skip
    assert len(rings) == 30
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


@pytest.fixture(scope="module")
def tokens() -> Callable[[str], int]:
    """Counts as a real tokenizer does: Mistral's, which its wheel brings along."""
    data = files("mistral_common").joinpath("data/tekken_240911.json")
    tokenizer = Tekkenizer.from_file(str(data))
    return lambda text: len(tokenizer.encode(text, bos=False, eos=False))


@pytest.mark.parametrize("language", ["fr", "en"])
def test_each_tier_begins_with_the_smaller_one_and_keeps_its_budget(
    language: str, tokens: Callable[[str], int]
) -> None:
    over = {}
    for agent in load_registry():
        persona = Persona.from_row({**agent, "id": 7, "active": 1}, language)
        core, metier, full = (TIERS[tier](persona) for tier in ("core", "metier", "full"))
        assert metier.startswith(core)
        assert full.startswith(metier)
        assert core.index(persona.cognitive_frame) < core.index(persona.nickname)
        assert persona.job_mission in metier
        assert persona.job_mission not in core
        assert persona.quote in full
        assert TIERS["full"](Persona.from_row(agent, language)) == full
        for tier, text in (("core", core), ("metier", metier), ("full", full)):
            if tokens(text) > 1.1 * BUDGETS[tier]:
                over[agent["codename"], tier] = tokens(text)
    assert over == {}
    assert format_briefing is format_metier


def test_the_english_persona_is_english_where_there_is_a_twin() -> None:
    row = {**load_registry()[0], "proof_en": None}
    text = format_full(Persona.from_row(row, "en"))
    assert "Way of thinking" in text
    assert str(row["job_mission_en"]) in text
    assert str(row["proof"]) in text
    assert "Façon de penser" not in text


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
    agents = load_registry()
    codenames = {agent["codename"] for agent in agents}
    for intent in set(Intent) - {Intent.NOISE}:
        for tenant in (None, "menuiserie-lorme"):
            chosen = designate(intent, tenant, agents)
            assert chosen.codename in codenames
            assert chosen.reason.isidentifier()
    assert designate(Intent.CHANTIER, "menuiserie-lorme") == Designation("backend", "code_of_tenant")
    assert designate(Intent.RUN, None) == Designation("backend", "plan_without_tenant")
    assert designate(Intent.QUESTION, None).codename == "orchestrator"
    assert designate(Intent.NEGOCIATION, None).codename == "commerce"
    with pytest.raises(Refused, match="no_agent_for_noise"):
        designate(Intent.NOISE, None)


def test_an_agent_that_is_not_active_is_stood_in_for_by_its_family() -> None:
    agents = [agent for agent in load_registry() if agent["codename"] not in ("orchestrator", "commerce")]
    chosen = designate(Intent.QUESTION, None, agents)
    assert chosen.reason == "opinion_asked_stand_in"
    assert next(agent for agent in agents if agent["codename"] == chosen.codename)["group_name"] == "direction"
    with pytest.raises(Refused, match="no_agent_active"):
        designate(Intent.CHANTIER, "x", [agent for agent in agents if agent["group_name"] != "execution"])


def test_a_question_about_a_prompt_domain_goes_to_who_writes_for_it() -> None:
    agents = load_registry()
    chosen = designate(Intent.QUESTION, None, agents, frozenset({"une", "faq", "pour", "le", "site"}))
    assert chosen.reason == "domain_faq"
    assert chosen.codename in agents_for_domain(agents, "faq")
    assert designate(Intent.CHANTIER, "x", agents, frozenset({"faq"})).codename == "backend"
    assert designate(Intent.QUESTION, None, agents, frozenset({"faquin"})).codename == "orchestrator"


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_prompt_domain_has_an_executing_agent_first(domain: str) -> None:
    agents = load_registry()
    found = agents_for_domain(agents, domain)
    families = {agent["codename"]: agent["group_name"] for agent in agents}
    assert families[found[0]] == "execution"
    with pytest.raises(Refused):
        agents_for_domain(agents, domain.upper())


def test_the_reactor_shows_every_agent_on_the_ring_of_its_family() -> None:
    agents = [*load_registry(), {"codename": "x", "nickname": "<b>&", "group_name": "validation"}]
    svg = reactor_svg(agents, {"backend": 40, "orchestrator": 10})
    picture = ElementTree.fromstring(svg)  # noqa: S314  # our own
    names = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {agent["nickname"] for agent in agents} <= set(names)
    circles = list(picture.iter("{http://www.w3.org/2000/svg}circle"))
    dots = [circle for circle in circles if circle.get("fill-opacity")]
    assert len(dots) == len(agents)
    middle = float(str(picture.get("viewBox")).split()[2]) / 2
    away = [round(math.dist((float(str(dot.get("cx"))), float(str(dot.get("cy")))), (middle, middle))) for dot in dots]
    rings = sorted(set(away))
    assert len(rings) == 3
    wanted = [DISPLAY_RING[str(agent["group_name"])] for agent in agents]
    assert sorted(rings.index(one) + 1 for one in away) == sorted(wanted)
    sizes = sorted({float(str(dot.get("r"))) for dot in dots})
    assert len(sizes) == 3
