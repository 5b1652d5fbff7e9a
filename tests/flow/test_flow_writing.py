"""Reply drafts and the dialogue of agents: who is asked, what is stored, and that nothing leaves the house."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atlas_pipeline.ai.gateway import TenantAi
from atlas_pipeline.errors import ProviderUnavailable, Refused
from atlas_pipeline.flow import operator, writing
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.store import tenants
from tests.fixtures_ai import Scripted, chat, said
from tests.fixtures_flow import CLIENT, SLUG, Bench, failures, judged, letter

DRAFT = (
    "Madame,\n\nNous avons bien reçu votre demande. La modification a été réalisée sur la pré-production. "
    "Nous vous invitons à la vérifier. Nous restons à votre disposition."
)


@pytest.fixture
def house(bench: Bench) -> Bench:
    """The bench with keys of all three providers."""
    key = "test-key-not-a-secret"
    url = bench.values["mistral_url"]
    return bench.again(ANTHROPIC_API_KEY=key, OPENAI_API_KEY=key, anthropic_url=url, openai_url=url)


def finished(house: Bench) -> str:
    """A message of the client that is done with."""
    key = house.take_in(letter("Horaires", "Merci de changer nos horaires.\n", sender=CLIENT), Intent.QUESTION)
    house.change("update atlas.inbox set status = 'actioned' where message_key = %s", key)
    house.model.asked.clear()
    house.model.paths.clear()
    return key


def test_a_draft_is_written_signed_and_stored_and_nothing_is_sent(house: Bench) -> None:
    key = finished(house)
    house.model.script = [chat(DRAFT)]
    written = writing.reply_draft(house.parts, key, actor="operator:lea")
    assert written.content == f"{DRAFT}\n\nL'équipe"
    assert (written.provider, written.model) == ("mistral", "mistral-small-2506")
    asked = house.model.asked[0]
    assert asked["model"] == "mistral-small-latest"
    system, prompt = (message["content"] for message in asked["messages"])
    assert "registre formel" in system
    assert "trois à six phrases" in system
    marker = prompt.partition("MESSAGE_START ")[2][:16]
    assert prompt.index("changer nos horaires") > prompt.index(f"MESSAGE_START {marker}")
    assert house.rows("select message_key, author, body from atlas.reply_drafts") == [
        {"message_key": key, "author": "mistral/mistral-small-2506", "body": written.content}
    ]
    assert house.actions(key)[-1] == "reply_drafted"
    assert house.recaps() == []
    assert house.rows("select task, message_key from atlas.ai_calls where task = 'generation'") == [
        {"task": "generation", "message_key": key}
    ]


def test_the_question_takes_the_draft_up_and_so_does_one_that_is_recorded_later(house: Bench) -> None:
    key = finished(house)
    house.model.script = [chat(DRAFT)]
    writing.reply_draft(house.parts, key, actor="operator:lea")
    (draft,) = house.rows("select id from atlas.reply_drafts")
    assert house.one("select draft_id from atlas.questions where live_key = %s", key) == draft["id"]
    operator.reprocess(house.parts.db, key, actor="operator:lea", force=True)
    house.model.script = [judged(Intent.QUESTION)]
    assert failures(house.intake([key], run_id="again")) == []
    assert (
        house.rows("select draft_id from atlas.questions where message_key = %s order by id", key)
        == [{"draft_id": draft["id"]}] * 2
    )


@pytest.mark.parametrize(
    ("config", "active", "path", "model"),
    [
        ({}, True, "/v1/chat/completions", "mistral-small-latest"),
        (
            {"provider": "mistral", "model": "mistral-large-latest"},
            True,
            "/v1/chat/completions",
            "mistral-large-latest",
        ),
        ({"provider": "anthropic"}, True, "/v1/messages", "claude-sonnet-4-6"),
        ({"provider": "anthropic"}, False, "/v1/chat/completions", "mistral-small-latest"),
        ({"provider": "acme"}, True, "/v1/chat/completions", "mistral-small-latest"),
    ],
)
def test_a_clients_own_provider_writes_its_drafts(
    house: Bench, config: dict[str, object], active: bool, path: str, model: str
) -> None:
    key = finished(house)
    with house.parts.db.transaction() as conn:
        tenants.upsert(conn, replace(house.tenant, ai_config=config, active=active))
    house.model.script = [said(DRAFT) if path == "/v1/messages" else chat(DRAFT)]
    writing.reply_draft(house.parts, key, actor="operator:lea")
    assert (house.model.paths, house.model.asked[0]["model"]) == ([path], model)


@pytest.mark.parametrize(
    "bad", ["Oui.", " ".join(["Nous avons fait ceci."] * 7), "Bonjour Madame,\nNous avons fait ceci. Et cela."]
)
def test_a_draft_too_short_or_too_long_is_asked_for_again(house: Bench, bad: str) -> None:
    key = finished(house)
    house.model.script = [chat(bad), chat(DRAFT)]
    assert writing.reply_draft(house.parts, key, actor="operator:lea").content.startswith(DRAFT)
    assert len(house.model.asked) == 2


def test_without_any_provider_there_is_no_draft_and_one_clear_error(house: Bench) -> None:
    key = finished(house)
    house.model.script = [Scripted(503, headers={"Retry-After": "99"})]
    with pytest.raises(ProviderUnavailable) as caught:
        writing.reply_draft(house.parts, key, actor="operator:lea")
    assert caught.value.detail["tried"] == 3
    assert house.one("select count(*) from atlas.reply_drafts") == 0


def test_a_message_that_is_not_finished_gets_no_reply(house: Bench) -> None:
    key = house.take_in(letter(sender=CLIENT), Intent.QUESTION)
    assert house.status(key) is Status.CLASSIFIED
    with pytest.raises(Refused) as caught:
        writing.reply_draft(house.parts, key, actor="operator:lea")
    assert caught.value.code == "message_not_finished"


def test_in_a_dialogue_mistral_notes_and_anthropic_answers(house: Bench) -> None:
    names = [row["codename"] for row in house.rows("select codename from atlas.agents order by codename limit 3")]
    house.model.script = [chat("Premier regard."), chat("Second regard."), said("La réponse.")]
    found = writing.dialogue(house.parts, "Le client appelle trois fois par jour.", lead=names[0], others=names[1:])
    assert [(name, note.content) for name, note in found.notes] == [
        (names[1], "Premier regard."),
        (names[2], "Second regard."),
    ]
    assert (found.answer.content, found.answer.provider) == ("La réponse.", "anthropic")
    assert house.model.paths == ["/v1/chat/completions"] * 2 + ["/v1/messages"]
    assert [asked["model"] for asked in house.model.asked] == ["mistral-small-latest"] * 2 + ["claude-sonnet-4-6"]
    last = house.model.asked[-1]["messages"][0]["content"]
    assert "Premier regard." in last
    assert "trois fois par jour" in last
    with pytest.raises(Refused):
        writing.dialogue(house.parts, "x", lead="nobody", others=names)
    with pytest.raises(Refused):
        writing.dialogue(house.parts, "x", lead=names[0], others=[])


def test_a_tenants_choice_survives_the_table(house: Bench) -> None:
    with house.parts.db.transaction() as conn:
        tenants.upsert(conn, replace(house.tenant, ai_config={"provider": "openai", "model": "gpt-4.1"}))
    assert writing.tenant_ai(house.parts, SLUG) == TenantAi("openai", "gpt-4.1")
    assert writing.tenant_ai(house.parts, "nobody").model == "mistral-small-latest"
