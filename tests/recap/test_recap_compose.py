"""The recap as a mail: exactly our headers, the same facts twice, and nothing that a mail can't carry."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from atlas_pipeline.embedded.mails.picture import error_page
from atlas_pipeline.errors import InvalidAnswer, NotConfigured, Refused
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import Address, Intent, RouteCheck, Status
from atlas_pipeline.recap.compose import (
    WIRE_POLICY,
    compose,
    compose_alert,
    facts_from_json,
    facts_to_json,
    headers_survive,
)
from atlas_pipeline.recap.facts import Attempt, Picture
from atlas_pipeline.recap.sections import duration, recap_sections
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
        "/equipe  http     passé    200      12 ms", "/devis   browser  ÉCHEC    200      340 ms", "– x is not defined",
        "Tentatives : 2", "0.42 USD", "75 s", "> C'est réparé.", "http://127.0.0.1:8099", "Vérifier la préproduction",
    ):  # fmt: skip
        assert expected in plain


def test_a_commit_is_a_link_where_the_client_says_where_it_can_be_read() -> None:
    """The one link of a recap: its beginning is a setting of the house, its end a commit as git names it."""
    plain, rich = both_texts(
        reread(made(commit_url="https://git.example/lorme/-/commit/", commits=("a" * 40, "x/../y")))
    )
    url = f"https://git.example/lorme/-/commit/{'a' * 40}"
    assert f"Commit : {url}" in plain
    assert f'<a href="{url}">{url}</a>' in rich
    assert rich.count("href") == 1
    for evil in ("javascript:alert(1)//", 'https://x"><script>', "https://x/ onclick="):
        assert "href" not in both_texts(reread(made(commit_url=evil)))[1]


def test_faults_are_told_apart_and_where_nobody_looked_before_it_says_so() -> None:
    """What the change brought, what was there, and what is nobody's fault here stand under titles of their own."""
    facts: dict[str, Any] = {
        "brought": ("GET /a answered 500",),
        "old_faults": ("GET /b answered 404",),
        "noted": ("x.example was blocked",),
    }
    plain, _ = both_texts(reread(made(language="en", compared=True, **facts)))
    order = [
        "Faults that the change brought", "– GET /a answered 500", "Faults that were there before", "– GET /b answered 404",
        "Notes that fail nothing", "– x.example was blocked",
    ]  # fmt: skip
    places = [plain.index(words) for words in order]
    assert places == sorted(places)
    assert "not measured before" not in plain
    assert "not measured before" in both_texts(reread(made(language="en", **facts)))[0]
    many = both_texts(reread(made(brought=tuple(f"fault {number}" for number in range(100)))))[0]
    assert "– fault 39\r\n+ 60 de plus" in many


def test_long_work_is_told_in_minutes() -> None:
    assert [duration(seconds) for seconds in (0.4, 119.4, 120, 725)] == ["0 s", "119 s", "2 min 00 s", "12 min 05 s"]


def test_markup_from_outside_is_shown_and_never_interpreted() -> None:
    """A mail's text in a markup page is an injection."""
    evil = '</pre><script>alert(1)</script><img src=x onerror="x">'
    message = made(
        subject=evil, summary=evil, draft_reply=evil, deploy_url='http://x"><script>', tenant=evil, brought=(evil,),
        old_faults=(evil,), noted=(evil,), history=(Attempt(1, (evil,), (evil,), (evil,)), Attempt(2)), code=evil,
        checks=(RouteCheck(evil, evil, ok=False, status=None, milliseconds=1),),
    )  # fmt: skip
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


def screens(folder: Path, *names: str, content: bytes | None = None) -> tuple[Picture, ...]:
    """Pictures of pages, one a name."""
    for name in names:
        (folder / f"{name}.png").write_bytes(content or error_page("QUARTZBISON"))
    return tuple(Picture(f"/{name}", "after", "desk", str(folder / f"{name}.png")) for name in names)


def images(message: EmailMessage) -> dict[str, bytes]:
    return {
        str(part.get_filename()): part.get_content()
        for part in message.walk()
        if part.get_content_maintype() == "image"
    }


def test_pictures_stand_in_the_page_and_are_files_beside_the_text(tmp_path: Path) -> None:
    """Nothing is fetched from anywhere: each is in the mail, named by the page through its Content-ID."""
    (before, after) = screens(tmp_path, "devis", "equipe")
    again = reread(made(pictures=(replace(before, when="before"), replace(after, width="phone"))))
    plain, rich = both_texts(again)
    assert "capture-01.jpg : /devis, avant, bureau\r\ncapture-02.jpg : /equipe, après, téléphone" in plain
    named = re.findall(r'src="cid:([^"]+)"', rich)
    carried = [str(part["Content-ID"]) for part in again.walk() if part.get_content_maintype() == "image"]
    assert [f"<{name}>" for name in named] == carried
    assert len(carried) == 2
    assert set(images(again)) == {"capture-01.jpg", "capture-02.jpg"}
    assert str(tmp_path) not in plain + rich
    assert [part.get_content_type() for part in again.walk()] == [
        "multipart/alternative", "text/plain", "multipart/related", "text/html", "image/jpeg", "image/jpeg",
    ]  # fmt: skip


def test_what_is_no_picture_does_not_travel_and_is_only_counted(tmp_path: Path) -> None:
    """A recap must carry no file that is none of its business, nor fail because one is gone."""
    whole = screens(tmp_path, "good")
    picture = Path(whole[0].path).read_bytes()
    bad = {
        "secret": b"not a picture", "cut": picture[:100], "bomb": picture[:16] + b"\xff" * 8 + picture[24:], "none": picture[:8],
    }  # fmt: skip
    others = [screens(tmp_path, name, content=content)[0] for name, content in bad.items()]
    paths = (str(tmp_path / "gone.png"), "\x00", str(tmp_path))
    others += [Picture("/x", "after", "desk", path) for path in paths]
    again = reread(made(pictures=(*others, *whole)))
    assert list(images(again)) == ["capture-01.jpg"]
    assert "capture-01.jpg : /good, après, bureau" in both_texts(again)[0]
    assert "+ 7 non jointes" in both_texts(again)[0]


def test_a_mail_stays_small_whatever_the_pages_are(tmp_path: Path) -> None:
    """Noise is the worst a page can show: 20 of them in their full height were 300 MB."""
    noise = Image.effect_noise((1280, 4000), 100).convert("RGB")
    noise.save(tmp_path / "noise.png", compress_level=1)
    widths = ("desk", "phone") * 10
    pictures = tuple(Picture(f"/{n}", "after", width, str(tmp_path / "noise.png")) for n, width in enumerate(widths))
    message = made(pictures=pictures)
    assert len(wire(message)) < 6_000_000
    found = [Image.open(BytesIO(content)) for content in images(reread(message)).values()]
    assert 4 <= len(found) <= 12
    assert {image.size for image in found} == {(800, 1000), (390, 858)}
    assert f"+ {20 - len(found)} non jointes" in both_texts(reread(message))[0]


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
    facts = recap_facts(
        pictures=(Picture("/x", "before", "phone", "/x/1.png"),),
        history=(Attempt(1, ("timed_out",), ("a" * 40,), ("x",)),),
    )
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
    facts = replace(facts, old_faults=("geheim",), history=(Attempt(1, failed=("geheim",)),))
    for secret in ("geheim", "Claire", "cassées", "app.py", "Bonjour", "Léa", "réparer"):
        assert secret not in repr(facts)
        assert secret not in repr(recap_sections(facts))


def test_every_label_has_two_languages() -> None:
    """A missing one would show an empty title."""
    assert all(french.strip() and english.strip() for french, english in [*LABELS.values(), *STATUSES.values()])
