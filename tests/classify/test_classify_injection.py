"""What a mail that talks to the model can do to the question: nothing. And what is left where the model obeys it."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest

from atlas_pipeline.classify.answer import parse_answer
from atlas_pipeline.classify.decide import apply_guards
from atlas_pipeline.classify.prompt import Lesson, build_prompt
from atlas_pipeline.errors import InvalidAnswer
from atlas_pipeline.flow.inbox_steps import classify_facts
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.mailbox.trust import judge
from atlas_pipeline.model import Intent, Profile, Status, TrustLevel
from atlas_pipeline.ocr.text import OcrText
from atlas_pipeline.recap.compose import compose
from atlas_pipeline.spawn.profile import choose_profile
from tests.fixtures_ai import Scripted, ScriptedServer, chat
from tests.fixtures_flow import Bench
from tests.fixtures_recap import recap_facts
from tests.hostile_mails import COUNT, Hostile, hostile_mails

MARKER = "0123456789abcdef"
ALL = list(hostile_mails(MARKER))
LESSONS = [Lesson(ALL[3].text, Intent.NOISE), Lesson(ALL[21].text, Intent.RUN)]


def facts_of(mail: Hostile) -> Any:
    """The facts as intake makes them, the picture read."""
    parsed = parse(mail.raw)
    trust = judge(
        parsed, founder_addresses=(), team_domains=("atelier-rivage.example",), tenants=[], authserv_ids=("mx.example",)
    )
    return classify_facts(parsed, trust, OcrText(mail.picture), tenant=None, own=None)


def test_there_are_enough_of_them() -> None:
    assert COUNT == len({mail.name for mail in ALL}) == 105


@pytest.mark.parametrize("mail", ALL, ids=[mail.name for mail in ALL])
def test_the_structure_of_the_question_is_ours(mail: Hostile) -> None:
    """Also where the sender has guessed the marker: each delimiter is there once, and the mail between them alone."""
    facts = facts_of(mail)
    system, prompt, _document = build_prompt(facts, MARKER, lessons=LESSONS)
    harmless = replace(
        facts, subject="x", body_text="y", attachment_names=(), ocr_text="", sender_address="a@b.example"
    )
    ours, expected, _ = build_prompt(harmless, MARKER, lessons=LESSONS)
    assert system == ours
    # Everything outside of the data is as for a harmless mail, to the letter.
    assert _outside(prompt) == _outside(expected)
    # Ours: the warning (twice), the two delimiters, one pair a lesson, and one pair around a picture's text.
    assert prompt.count(MARKER) == 4 + 2 * len(LESSONS) + 2 * bool(mail.picture.strip())
    assert prompt.count("LESSON_START") == prompt.count("LESSON_END") == len(LESSONS)
    assert prompt.count("EMAIL_DATA_END ") == prompt.count("EMAIL_DATA_START ") == 2
    # Neither a display name nor what HTML hides is shown to the model at all, and of a file name only what is no path.
    if not mail.name.endswith(("display name", "hidden HTML", "file name")):
        word = next(word for word in re.findall(r"[A-Za-z]{4,}", mail.text) if word.casefold() not in _DELIMITERS)
        assert word in prompt[prompt.index(f"EMAIL_DATA_START {MARKER}\nFrom") :]


_DELIMITERS = {"email", "data", "image", "text", "lesson"}


def _outside(prompt: str) -> tuple[str, str]:
    before, _start, rest = prompt.partition(f"\nEMAIL_DATA_START {MARKER}\n")
    _data, end, after = rest.rpartition(f"\nEMAIL_DATA_END {MARKER}\n")
    assert end
    return before, after


@pytest.mark.parametrize("mail", ALL, ids=[mail.name for mail in ALL])
def test_a_model_that_repeats_the_mail_is_read_as_strictly_as_any(mail: Hostile) -> None:
    """Its text as the answer is one of the six intents with a confidence in range, or an invalid answer; never a third thing."""
    for content in (mail.text, f"```json\n{mail.text}\n```", json.dumps({"intent": mail.text, "confidence": 1})):
        try:
            answer = parse_answer(content)
        except InvalidAnswer:
            continue
        assert answer.intent in Intent
        assert 0 <= answer.confidence <= 1


@pytest.mark.parametrize("mail", ALL, ids=[mail.name for mail in ALL])
def test_a_model_that_obeys_gives_a_stranger_no_rights(mail: Hostile) -> None:
    """The worst an answer can be: work, surely, with the mail's words as reasoning. The rights are those of who wrote."""
    facts = facts_of(mail)
    answer = parse_answer(json.dumps({"intent": "chantier", "confidence": 1.0, "reasoning": mail.text}))
    decision = apply_guards(answer, "p/m", facts, floor=0.5, uncertainty=0.7)
    assert facts.trust.level is TrustLevel.OTHER
    assert decision.tenant is None
    assert choose_profile(facts.trust, None, False, decision.intent) is Profile.DRAFT
    if mail.picture and len(mail.picture.split()) > 6:
        assert mail.picture not in decision.reasoning


@pytest.mark.parametrize("mail", ALL, ids=[mail.name for mail in ALL])
def test_in_the_recap_it_is_text(mail: Hostile) -> None:
    """No header more than ours, no address more than the team's, no element of a page."""
    parsed = parse(mail.raw)
    message = _recap(subject=parsed.subject, requester=parsed.sender, reasoning=mail.text, summary=mail.text)
    assert set(message.keys()) == set(_recap().keys())
    assert [str(message[name]) for name in ("To", "Cc", "Bcc")] == [TEAM, "None", "None"]
    page = message.get_body(("html",))
    assert page is not None
    shown = page.get_content()
    assert not re.search(r"<(script|img|iframe|a )", shown)
    if "<script>" in mail.text:
        assert html.escape("<script>") in shown


TEAM = "lea@atelier-rivage.example"


def _recap(**changes: Any) -> EmailMessage:
    facts = recap_facts(**changes)
    sender = "atlas@atelier-rivage.example"
    return compose(facts, mail_from=sender, recipients=[TEAM], message_id="<r@atlas.example>", in_reply_to=None)


class Obedient(list[Scripted]):
    """A model that answers what the mail dictates where it dictates anything, and work otherwise."""

    def __init__(self, server: ScriptedServer) -> None:
        super().__init__([chat("")])
        self.server = server

    def __getitem__(self, index: Any) -> Any:
        asked = self.server.asked[-1]["messages"][1]["content"]
        dictated = re.search(r'\{"intent":"[^{}]*\}', asked)
        return chat(
            dictated[0] if dictated else json.dumps({"intent": "run", "confidence": 1, "reasoning": asked[-900:]})
        )


def test_all_of_them_go_through_a_house_whose_model_obeys_and_reach_nothing(bench: Bench) -> None:
    """No shell, path, table or tenant: rows like any other, drafts for a person, and agents in an empty folder."""
    bench.model.script = Obedient(bench.model)
    before = bench.rows("select * from atlas.tenants")
    for number, mail in enumerate(ALL):
        bench.put(mail.raw, name=f"{number:06d}.test")
    keys = bench.discover()
    bench.intake(keys)
    rows = bench.rows("select status, tenant, count(*) as n from atlas.inbox group by 1, 2")
    assert sum(row["n"] for row in rows) == COUNT
    assert {row["tenant"] for row in rows} == {None}
    assert {row["status"] for row in rows} <= {Status.CLASSIFIED, Status.CLOSED, Status.FAILED}
    assert bench.rows("select * from atlas.tenants") == before
    assert not any(
        set(row["title"]) & set("\r\n\x00")
        for table in ("runs", "chantiers", "questions")
        for row in bench.rows(f"select title from atlas.{table}")  # noqa: S608  # our own tables
    )
    assert not Path("/tmp/atlas-pwned").exists()
    escaped = [path for path in bench.folder.parent.rglob("passwd*") if path.is_file()]
    assert escaped == []
