"""The recap as a mail: exactly our headers, the same facts twice, and nothing that a mail can't carry."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_pipeline.embedded.mails.picture import error_page
from atlas_pipeline.errors import InvalidAnswer, NotConfigured, Refused
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import Address, Intent, Status
from atlas_pipeline.recap.compose import (
    WIRE_POLICY,
    compose,
    compose_alert,
    facts_from_json,
    facts_to_json,
    headers_survive,
)
from atlas_pipeline.recap.sections import recap_sections
from atlas_pipeline.recap.words import ALERTS, LABELS, STATUSES, next_step
from tests.fixtures_recap import FROM, MESSAGE_ID, TEAM, recap_facts

OURS = [
    "From", "To", "Subject", "Date", "Message-ID", "In-Reply-To", "References", "Auto-Submitted",
    "X-Auto-Response-Suppress", "X-Atlas-Key", "MIME-Version", "Content-Type",
]  # fmt: skip
NOW = datetime(2026, 12, 1, 10, 0, tzinfo=UTC)


def made(reply_to: str | None = "<m1@client.example>", **changes: object) -> EmailMessage:
    return compose(
        recap_facts(**changes), mail_from=FROM, recipients=TEAM, message_id=MESSAGE_ID, in_reply_to=reply_to, now=NOW
    )


def wire(message: EmailMessage) -> bytes:
    return message.as_bytes(policy=WIRE_POLICY)


def reread(message: EmailMessage) -> EmailMessage:
    again = message_from_bytes(wire(message), policy=policy.default)
    assert isinstance(again, EmailMessage)
    return again


def header_names(message: EmailMessage) -> list[str]:
    raw = message_from_bytes(wire(message), policy=policy.compat32)
    assert raw.defects == []
    return [name for name, _ in raw.raw_items()]


def both_texts(message: EmailMessage) -> tuple[str, str]:
    plain, rich = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert rich is not None
    return plain.get_content(), rich.get_content()


def test_a_recap_has_exactly_the_headers_that_identify_it_and_stop_loops() -> None:
    """C90: an autoresponder must not answer, and a recap that comes back must be known."""
    again = reread(made())
    assert header_names(made()) == OURS
    assert again["Auto-Submitted"] == "auto-generated"
    assert again["X-Atlas-Key"] == "20261201-000042"
    assert again["Message-ID"] == MESSAGE_ID
    assert again["In-Reply-To"] == again["References"] == "<m1@client.example>"
    assert again["Subject"] == "[Atlas] traité – Deux pages cassées"
    assert again["To"] == ", ".join(TEAM)
    assert again["From"] == f"Atlas <{FROM}>"


def test_an_incoming_recap_is_known_as_automatic_by_our_own_parser() -> None:
    """The two ends of the loop guard must agree."""
    assert parse(wire(made())).automatic == "auto_submitted"


@pytest.mark.parametrize("language", ["fr", "en"])
@pytest.mark.parametrize("status", list(Status))
def test_every_status_composes_in_both_languages(status: Status, language: str) -> None:
    """A recap that fails to compose for one status would never be sent."""
    again = reread(made(status=status, language=language))
    word = STATUSES[status][language == "en"]
    assert word in again["Subject"]
    plain, rich = both_texts(again)
    assert word in plain
    assert f'lang="{language}"' in rich


def test_text_and_html_hold_the_same_facts_in_the_same_order() -> None:
    """Whoever reads one of them has read the other."""
    for language in ("fr", "en"):
        plain, rich = both_texts(reread(made(language=language)))
        stripped = html.unescape(re.sub(r"<[^>]+>", " ", rich))
        words = [line.lstrip("> ") for line in plain.splitlines() if not re.fullmatch(r"-+ ?", line)]
        assert " ".join(stripped.split()) == " ".join(" ".join(words).split())


def test_every_fact_reaches_the_reader() -> None:
    """Each field is in the mail, the claim of the requester with the word that it is one."""
    plain, _ = both_texts(reread(made()))
    for expected in (
        "actioned", "qa_passed", "20261201-000042", "Deux pages cassées", "<claire.lorme@menuiserie-lorme.example>",
        "déclaré, non prouvé", "Léa Martin <lea.martin@atelier-rivage.example>", "Menuiserie Lorme", "chantier", "0.93",
        "> Deux pages à réparer & à vérifier.", "> - `app.py` : clé <corrigée>", "a" * 40, "b" * 40,
        "/equipe [http] passé 200, 12 ms", "/devis [browser] ÉCHEC 200, 340 ms", "– x is not defined", "Tentatives : 2",
        "0.42 USD", "75 s", "> C'est réparé.", "http://127.0.0.1:8099", "Vérifier la préproduction",
    ):  # fmt: skip
        assert expected in plain


def test_markup_from_outside_is_shown_and_never_interpreted() -> None:
    """A mail's text in a markup page is an injection."""
    evil = '</pre><script>alert(1)</script><img src=x onerror="x">'
    message = made(subject=evil, summary=evil, draft_reply=evil, deploy_url='http://x"><script>', tenant=evil)
    _, rich = both_texts(reread(message))
    assert "<script" not in rich
    assert "<img" not in rich
    assert html.escape(evil) in rich
    assert "href" not in rich


@pytest.mark.parametrize(
    "subject",
    [
        "x\r\nBcc: victim@x.example",
        "x\nBcc: victim@x.example\n\nbody",
        "é =?UTF-8?Q?=0A?=Bcc: victim@x.example",
        "=?UTF-8?Q?=0D=0ABcc:_victim@x.example=0D=0A?= in export",
        "A 💩 subject=?UTF-8?Q?=0A?=Bcc:_injected@example.com",
        "x\u2028Bcc: victim@x.example\u2029y\x85z\x0bw\x0c",
        "R\udce9union \ud83d \ud83d\ude00",
        "\u202egpj.exe\u202c",
        "=?=?utf-8?q?=0A?=",
        "a" * 3000,
        "é" * 3000,
        " ".join(["=?x?q?y?="] * 50),
        "",
        "\x00\x1b[2J",
    ],
)
def test_no_subject_of_a_stranger_adds_a_header(subject: str) -> None:
    """C88 (CVE-2024-6923): measured on 3.11, the third and fifth of these wrote a real Bcc line."""
    message = made(subject=subject)
    assert header_names(message) == OURS
    shown = str(reread(message)["Subject"])
    assert shown.startswith("[Atlas] ")
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202e]", shown)
    assert max(len(line) for line in wire(message).split(b"\r\n")) <= 998


def test_a_strange_subject_is_still_recognised() -> None:
    """Broken up, not thrown away: the team has to see which mail is meant."""
    shown = str(reread(made(subject="é =?UTF-8?Q?=0A?=Bcc: victim@x.example"))["Subject"])
    assert shown == "[Atlas] traité – é = ?UTF-8?Q?=0A?=Bcc: victim@x.example"


def test_what_was_written_is_read_back() -> None:
    """The second line of defence: it says of a mail whether the library has written headers that nobody set."""
    message = EmailMessage(policy=WIRE_POLICY)
    message["Subject"] = "é =?UTF-8?Q?=0A?=Bcc: victim@x.example"
    written = message_from_bytes(wire(message), policy=policy.compat32)
    assert headers_survive(message) == (written["Bcc"] is None and "\n" not in str(reread(message)["Subject"]))
    assert headers_survive(made())


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(), max_size=300), st.text(max_size=60))
def test_any_text_anywhere_gives_a_mail_with_our_headers_alone(text: str, name: str) -> None:
    """Including lone surrogates (C92): they made a send task fail for ever elsewhere."""
    message = made(
        reply_to=text, subject=text, summary=text, reasoning=text, draft_reply=text, tenant=text, code=text,
        requester=Address(name, text), commits=(text,), deploy_url=text,
    )  # fmt: skip
    assert [name for name in header_names(message) if name not in ("In-Reply-To", "References")] == [
        name for name in OURS if name not in ("In-Reply-To", "References")
    ]
    assert message.as_bytes(policy=WIRE_POLICY).isascii()


def test_lines_of_any_length_and_bare_returns_stay_within_the_wire_limit() -> None:
    """C92: 998 bytes a line, and servers without 8BITMIME or SMTPUTF8."""
    raw = wire(made(summary="é" * 5000 + "\rnext\n.\n..\nFrom here\n", reasoning="x" * 5000))
    assert raw.isascii()
    assert max(len(line) for line in raw.split(b"\r\n")) <= 998
    assert b"\n" not in raw.replace(b"\r\n", b"")


def test_a_long_reference_is_written_whole_and_an_odd_one_left_out() -> None:
    """Folding an id into an encoded word breaks the thread; odd ids make CPython's parser raise (C21)."""
    long_id = "<PR3P192MB0554A0B1C2D3E4F5060718293A4B5C6D7E8F@PR3P192MB0554.EURP192.PROD.OUTLOOK.EXAMPLE>"
    raw = wire(made(reply_to=long_id))
    assert b"In-Reply-To: " + long_id.encode() + b"\r\n" in raw
    for odd in (
        "<[abc]@microsoft.example>",
        "<a@b>\r\nBcc: x@y.example",
        "no id",
        "<é@x.example>",
        "<=?utf-8?q?=0A?=@x>",
    ):
        assert "In-Reply-To" not in header_names(made(reply_to=odd))


def test_screenshots_travel_four_at_most_and_only_pictures(tmp_path: Path) -> None:
    """A recap must not be refused for its size, nor carry a file that is none of its business."""
    picture = error_page("QUARTZBISON")
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for path in paths:
        path.write_bytes(picture)
    secret, large = tmp_path / "secret.png", tmp_path / "large.png"
    secret.write_bytes(b"not a picture")
    large.write_bytes(picture + b"\0" * 1_000_000)
    shown = (str(secret), str(large), str(tmp_path / "gone.png"), "\x00", str(tmp_path), *map(str, paths))
    again = reread(made(screenshots=shown))
    attached = list(again.iter_attachments())
    assert [part.get_filename() for part in attached] == [f"capture-{number}.png" for number in (6, 7, 8, 9)]
    assert all(part.get_content() == picture for part in attached)
    plain, _ = both_texts(again)
    assert "capture-6.png (jointe)" in plain
    assert "capture-1.png (non jointe)" in plain
    assert str(tmp_path) not in plain


def test_a_missing_sender_or_recipient_is_a_code() -> None:
    """What is not set up is said with a code, before anything is sent."""
    facts = recap_facts()
    for sender in ("", "Atlas", "a@b@c", "é@x.example", "a@x.example\r\nBcc: b@y.example"):
        with pytest.raises(NotConfigured, match="mail_from_not_configured"):
            compose(facts, mail_from=sender, recipients=TEAM, message_id=MESSAGE_ID, in_reply_to=None)
    for recipients, message_id, code in (
        ((), MESSAGE_ID, "recipients_missing"),
        (("Léa <lea@x.example>",), MESSAGE_ID, "recipient_not_team"),
        (TEAM, "no id", "message_id_invalid"),
        (TEAM, "<a@b>\nBcc: x@y.example", "message_id_invalid"),
    ):
        with pytest.raises(Refused, match=code):
            compose(facts, mail_from=FROM, recipients=recipients, message_id=message_id, in_reply_to=None)
    with pytest.raises(Refused, match="message_key_invalid"):
        made(message_key="20261201-42\r\nBcc: x@y.example")


def test_an_alert_is_short_and_safe_too() -> None:
    """Alarms carry codes and numbers; whatever else gets in stays on its line."""
    message = compose_alert(
        code="mailbox_unavailable\r\nBcc: x@y.example", detail={"tries": 3, "zone\n": "a\nb"}, language="en",
        mail_from=FROM, recipients=TEAM, message_id="<alert.7@atlas.atelier-rivage.example>", now=NOW,
    )  # fmt: skip
    names = header_names(message)
    assert "Bcc" not in names
    assert "X-Atlas-Key" not in names
    plain, rich = both_texts(reread(message))
    assert "tries = 3" in plain
    assert "zone = a b" in plain
    assert "tries = 3" in rich


def test_a_known_alert_is_told_in_a_sentence_in_both_languages() -> None:
    """An operator reads it on a telephone at night."""
    detail: dict[str, str | float | bool | None] = {
        "mailbox": "imap://atlas@host/INBOX",
        "minutes": 12,
        "code": "imap_unreachable",
    }
    for code in ALERTS:
        for language in ("fr", "en"):
            message = compose_alert(
                code=code, detail=detail, language=language, mail_from=FROM, recipients=TEAM,
                message_id="<alert.7@atlas.atelier-rivage.example>", now=NOW,
            )  # fmt: skip
            for text in both_texts(reread(message)):
                assert "imap://atlas@host/INBOX" in text
                assert "12 minutes" in text
                assert "{" not in text


def test_facts_come_back_from_json_as_they_went() -> None:
    """They may wait in a jsonb column between the decision and the sending."""
    facts = recap_facts(screenshots=("/x/1.png",))
    assert facts_from_json(json.loads(json.dumps(facts_to_json(facts)))) == facts
    for broken in ({}, {"message_key": "k", "language": "fr", "status": "lost"}):
        with pytest.raises(InvalidAnswer, match="recap_facts_invalid"):
            facts_from_json(broken)


def test_the_next_step_follows_from_status_and_code() -> None:
    """One sentence a human can act on, with the key filled in, in both languages."""
    for language in ("fr", "en"):
        told = {
            code: next_step(Status.ESCALATED, code, language, key="20261201-000042")
            for code in (
                "commit_outside_zones", "contract_not_ok", "chantier_without_commits", "deploy_timeout",
                "qa_failed_max_attempts", "spawn_tries_exhausted", "cancelled_by_hand", "something_new", None,
            )
        }  # fmt: skip
        assert len(set(told.values())) == len(told) - 1  # the unknown code and none at all get the general sentence
        assert "atlas spawn 20261201-000042" in told["something_new"]
        assert all("{key}" not in sentence for sentence in told.values())
    done = {next_step(Status.ACTIONED, "no_code", "fr", intent=intent) for intent in (Intent.RUN, Intent.QUESTION)}
    assert len(done) == 2
    assert "plan" in next_step(Status.ACTIONED, "plan_only", "en", intent=Intent.CHANTIER)


def test_a_corrected_intent_shows_both() -> None:
    """The team sees what the classifier said and what the agent made of it."""
    plain, _ = both_texts(reread(made(final_intent=Intent.QUESTION)))
    assert "chantier, corrigée en question" in plain


def test_content_stays_out_of_repr() -> None:
    """A repr ends up in a log."""
    facts = recap_facts()
    for secret in ("Claire", "cassées", "app.py", "Bonjour", "Léa", "réparer"):
        assert secret not in repr(facts)
        assert secret not in repr(recap_sections(facts))


def test_every_label_has_two_languages() -> None:
    """A missing one would show an empty title."""
    assert all(french.strip() and english.strip() for french, english in [*LABELS.values(), *STATUSES.values()])
