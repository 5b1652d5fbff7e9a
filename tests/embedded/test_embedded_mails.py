"""The demo's mailbox: real-looking, delivered once, and read by the pipeline's own parts as expected."""

from __future__ import annotations

import json
import mailbox
import re
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

import atlas_pipeline
from atlas_pipeline.ai.local import Local
from atlas_pipeline.classify.document import document_of
from atlas_pipeline.classify.facts import ClassifyFacts
from atlas_pipeline.embedded.clamd import eicar
from atlas_pipeline.embedded.mails import DEMO_MAILS, FOUNDER, MAILBOX, TEAM_DOMAIN, DemoMail, Scene, write_demo_mails
from atlas_pipeline.embedded.mails.picture import error_page
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.mailbox.trust import judge, match_tenant, requester
from atlas_pipeline.model import CompletionRequest, Intent, ParsedMail, Status, Tenant, Trust, TrustLevel
from atlas_pipeline.ocr.engine import Tesseract
from atlas_pipeline.ocr.mail import read_images
from atlas_pipeline.ocr.reader import Reader

AUTHSERV = "mx.atelier-rivage.example"
CANARY = "QUARTZBISON"
START = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
SCENE = Scene(authserv_id=AUTHSERV, start=START, canary=CANARY)
LORME = Tenant(
    "menuiserie-lorme", "Menuiserie Lorme", active=True, internal=True, domains=("menuiserie-lorme.example",),
    contacts=("claire.lorme@menuiserie-lorme.example",),
)  # fmt: skip
NAMED = {mail.name: mail for mail in DEMO_MAILS}


@cache
def parsed(name: str) -> ParsedMail:
    return parse(NAMED[name].raw(SCENE))


def trust(name: str) -> Trust:
    return judge(
        parsed(name), founder_addresses=[FOUNDER], team_domains=[TEAM_DOMAIN], tenants=[LORME], authserv_ids=[AUTHSERV]
    )


@cache
def engine() -> Tesseract:
    return Tesseract("tesseract", languages="fra+eng", timeout_seconds=20.0)


def ocr(read: ParsedMail) -> str:
    return read_images(read.parts, Reader(engine(), max_pixels=40_000_000), max_images=10).text.reveal()


def deliver(folder: Path) -> list[str]:
    return write_demo_mails(folder, authserv_id=AUTHSERV, start=START, canary=CANARY)


def test_a_second_delivery_adds_nothing_even_after_mails_were_read(tmp_path: Path) -> None:
    """`make demo` goes on from where it was."""
    names = deliver(tmp_path)
    assert len(names) == len(DEMO_MAILS) == 12
    first = tmp_path / "new" / names[0]
    first.rename(tmp_path / "cur" / f"{names[0]}:2,S")
    assert write_demo_mails(tmp_path, authserv_id="other", start=START.replace(year=2027), canary="x") == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert len(mailbox.Maildir(tmp_path, create=False)) == 12


def test_names_contents_and_times_are_the_same_for_the_same_scene(tmp_path: Path) -> None:
    """A demo can be repeated and compared; file times are the order of arrival."""
    assert deliver(tmp_path / "a") == deliver(tmp_path / "b") == sorted(deliver(tmp_path / "c"))
    files_of = {x: sorted((tmp_path / x / "new").iterdir()) for x in "ab"}
    assert [f.read_bytes() for f in files_of["a"]] == [f.read_bytes() for f in files_of["b"]]
    times = [f.stat().st_mtime for f in files_of["a"]]
    assert times == sorted(set(times))
    assert times[0] == START.timestamp() + 9


@pytest.mark.parametrize("mail", DEMO_MAILS, ids=lambda mail: mail.name)
def test_every_mail_is_addressed_to_the_mailbox_and_has_one_id_of_its_own_domain(mail: DemoMail) -> None:
    """As a server stores it: LF line ends, trace headers on top, ASCII headers."""
    raw = mail.raw(SCENE)
    head = raw.partition(b"\n\n")[0]
    assert b"\r" not in raw
    assert head.isascii()
    assert head.startswith(b"Return-Path: ")
    assert max(map(len, raw.split(b"\n"))) <= 998
    read = parsed(mail.name)
    assert [address.address for address in read.recipients] == [MAILBOX]
    assert read.sender.address == mail.sender
    assert read.message_id is not None
    assert read.message_id.rstrip(">").endswith(f"@{mail.sender.rsplit('@', 1)[1]}")
    assert read.subject
    assert read.date is not None


def test_who_wrote_is_proven_for_ours_and_for_nobody_without_a_result() -> None:
    """The demo shows every level of trust that matters."""
    levels = {name: trust(name).level for name in NAMED}
    assert levels == {
        "run-telephone": TrustLevel.TENANT_CONTACT,
        "chantier-pages": TrustLevel.FOUNDER,
        "question-sauvegardes": TrustLevel.TEAM,
        "newsletter": TrustLevel.PROSPECT,
        "absence": TrustLevel.PROSPECT,
        "negociation-boulangerie": TrustLevel.PROSPECT,
        "conseil-maquette": TrustLevel.OTHER,
        "capture": TrustLevel.TENANT_CONTACT,
        "facture-jointe": TrustLevel.OTHER,
        "horaires": TrustLevel.FOUNDER,
        "question-encore": TrustLevel.TEAM,
        "structure-cassee": TrustLevel.TEAM,
    }


def test_the_local_classifier_agrees_with_every_expectation() -> None:
    """Of each mail that is not decided by a rule, from the text that the classifier is really given."""
    local = Local()
    for mail in DEMO_MAILS:
        read = parsed(mail.name)
        if mail.expected_status in {None, Status.BLOCKED} or read.automatic:
            continue
        pictures = ocr(read) if mail.name == "capture" else ""
        facts = ClassifyFacts(read.subject, read.body_text, read.forward, trust(mail.name), ocr_text=pictures)
        request = CompletionRequest("classification", system="", prompt="", document=document_of(facts))
        answer = json.loads(local.complete(request, model="", timeout_seconds=5).content)
        assert answer["intent"] in mail.expected_intents, mail.name
        assert answer["confidence"] >= 0.5, mail.name


def test_expectations_fit_the_rules_of_the_house() -> None:
    """Noise and conseil end closed, four intents spawn, a blocked mail and a repeat do neither."""
    for mail in DEMO_MAILS:
        quiet = mail.expected_intents <= {Intent.NOISE, Intent.CONSEIL}
        assert mail.spawns == (not quiet)
        if mail.expected_status is Status.CLOSED:
            assert mail.expected_intents
        assert (mail.expected_status is None) == (mail.duplicate_of is not None)
    intents = set().union(*(mail.expected_intents for mail in DEMO_MAILS))
    assert intents == set(Intent)


def test_the_second_delivery_of_a_mail_differs_in_trace_headers_alone() -> None:
    """One message, two ledger rows: fingerprint and Message-ID agree, the bytes don't."""
    first, second = parsed("question-sauvegardes"), parsed("question-encore")
    assert (first.fingerprint, first.message_id, first.date) == (second.fingerprint, second.message_id, second.date)
    one, two = NAMED["question-sauvegardes"].raw(SCENE), NAMED["question-encore"].raw(SCENE)
    assert one != two
    assert one.partition(b"\nFrom: ")[2] == two.partition(b"\nFrom: ")[2]
    assert len({parsed(mail.name).fingerprint for mail in DEMO_MAILS}) == 11


def test_the_forward_names_the_client_in_its_body_in_both_parts() -> None:
    """Forwarder and requester are two people; the requester is a claim."""
    read = parsed("horaires")
    assert read.forward.found
    assert read.forward.sender.address == "claire.lorme@menuiserie-lorme.example"
    assert requester(read) == (read.forward.sender, True)
    assert match_tenant(read.forward.sender, [LORME])[0] is LORME
    assert "claire.lorme@menuiserie-lorme.example" in (read.body_html or "")


def test_the_opinion_is_asked_by_nobody_the_house_knows() -> None:
    """The existing-client guard would make a run of it."""
    assert match_tenant(requester(parsed("conseil-maquette"))[0], [LORME])[0] is None


def test_the_screenshots_words_are_in_the_picture_and_nowhere_else() -> None:
    """The canary must be found by OCR alone, or the search for leaks proves nothing."""
    read = parsed("capture")
    [picture] = read.parts
    assert picture.is_image
    assert picture.inline
    assert picture.content == error_page(CANARY)
    assert read.body_text.strip() == ""
    for mail in DEMO_MAILS:
        raw = mail.raw(SCENE)
        assert CANARY.encode() not in raw
        assert CANARY not in parsed(mail.name).body_text
    assert CANARY in ocr(read)


def test_the_virus_is_whole_in_the_mail_and_nowhere_in_the_source() -> None:
    """A scanner on a developer's machine must not mind the repository."""
    [part] = parsed("facture-jointe").parts
    assert part.content == eicar()
    package = Path(atlas_pipeline.__file__).parent
    found = [
        f for f in package.rglob("*") if f.is_file() and f.suffix in {".py", ".yaml"} and eicar() in f.read_bytes()
    ]
    assert found == []


def test_the_broken_mail_is_understood_with_remarks() -> None:
    """No closing boundary, an unknown charset, base64 that is none."""
    read = parsed("structure-cassee")
    assert read.remarks
    assert "best way to host the videos" in read.body_text
    assert "Léa" in read.body_text


def test_the_newsletter_is_html_alone_and_says_how_to_leave() -> None:
    """Noise that a rule does not catch: the classifier has to."""
    read = parsed("newsletter")
    assert "list-unsubscribe" in {name.lower() for name in read.headers}
    assert read.automatic is None
    assert "Webinaire" in read.body_text
    assert parsed("absence").automatic == "auto_submitted"


def test_what_is_to_be_replaced_stands_on_the_site() -> None:
    """The mails and the demo site must not drift apart."""
    content = files("atlas_pipeline.embedded.site").joinpath("template/content.json").read_text("utf-8")
    values = set(json.loads(content).values())
    body = parsed("run-telephone").body_text
    assert len(values & set(re.findall(r"\d\d(?: \d\d){4}", body))) == 1
    [(old, new)] = re.findall(r"« (.+?) » par « (.+?) »", parsed("horaires").body_text)
    assert old in values
    assert new not in values
    for route in ("/equipe", "/devis"):
        assert route in parsed("chantier-pages").body_text
