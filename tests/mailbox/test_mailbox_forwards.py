"""Finding the mail inside a forward, over public cases and the ones that broke the library behind it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from atlas_pipeline.mailbox.forwards import find_forward
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import Forward


def inline(subject: str | None, text: str) -> Forward:
    return find_forward(subject, text, None, ())


def cases(corpus: Path, folder: str) -> list[dict[str, object]]:
    lines = (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    return [case for case in map(json.loads, lines) if case["path"].startswith(folder)]


OUTLOOK_FR = """Pour info

De\xa0: Durand, Paul <paul.durand@client.example>
Envoyé\xa0: jeudi 6 avril 2026 16:17
À\xa0: Ann <ann@client.example>
Objet\xa0: export KO

L’export ne marche plus.
________________________________
This email is confidential...
"""
GMAIL = """FYI

---------- Forwarded message ---------
De : Jean Petit <jean@client.example>
Date: jeu. 6 avr. 2026 à 16:17
Subject: Devis
To: <ann@client.example>

Bonjour,

un devis ?
"""
APPLE_FR = """Voir ci-dessous

Début du message réexpédié :

> De: Jean Petit <jean@client.example>
> Objet: Devis
> Date: 6 avril 2026 à 16:17:00 UTC+2
> À: ann@client.example
>
> Bonjour
"""


def test_outlook_without_a_separator_in_french() -> None:
    """Labels before a no-break space, and a rule that belongs to the footer."""
    found = inline("TR: export KO", OUTLOOK_FR)
    assert (found.sender.name, found.sender.address) == ("Durand, Paul", "paul.durand@client.example")
    assert found.subject == "export KO"
    assert found.body is not None
    assert "export ne marche plus" in found.body
    assert (found.method, found.confidence) == ("inline_text", 0.9)


@pytest.mark.parametrize("text", [GMAIL, APPLE_FR])
@pytest.mark.parametrize("subject", ["Fwd: Devis", "TR : Devis", "Devis", None, "Re: Devis"])
def test_a_block_that_only_a_forward_has_counts_under_any_subject(text: str, subject: str | None) -> None:
    """The prefix is a hint, never the only test: people change subjects."""
    found = inline(subject, text)
    assert (found.found, found.sender.address, found.subject) == (True, "jean@client.example", "Devis")


@pytest.mark.parametrize("subject", ["RE: Devis", "Re: TR: Devis", None])
def test_an_answer_that_quotes_is_no_forward(subject: str | None) -> None:
    """Outlook quotes an answer with the same block that it forwards with."""
    quoted = "Merci !\n\nDe : Jean <jean@client.example>\nEnvoyé : jeudi\nÀ : Ann\nObjet : Devis\n\nBonjour"
    assert not inline(subject, quoted).found


def test_the_first_of_two_nested_forwards_is_the_one() -> None:
    """Who sent it to the forwarder asks; the deeper mail is history."""
    found = inline("Fwd: Devis", GMAIL + "\n" + GMAIL.replace("jean@", "old@"))
    assert found.sender.address == "jean@client.example"
    assert found.body is not None
    assert "old@client.example" in found.body


def test_long_lines_come_back_whole() -> None:
    """They are hidden from the library, whose patterns are cubic in a line."""
    line = "mot =?utf-8?q?x?= " * 200
    found = inline("Fwd: x", GMAIL + line + "\nfin")
    assert found.body is not None
    assert line.strip() in found.body
    assert found.body.endswith("fin")


def test_html_alone_gives_the_same_answer_and_two_answers_lower_the_confidence() -> None:
    """Outlook writes the labels in bold and a rule of its own."""
    html = "<p>voir</p><hr><b>From:</b> Jean &lt;jean@client.example&gt;<br><b>Sent:</b> jeudi<br><b>To:</b> Ann<br>"
    html += "<b>Subject:</b> Devis<br><br>Bonjour"
    found = find_forward("FW: Devis", "", html, ())
    assert (found.method, found.sender.address, found.subject) == ("inline_html", "jean@client.example", "Devis")
    conflict = find_forward("FW: Devis", GMAIL.replace("jean@", "other@"), html, ())
    assert (conflict.sender.address, conflict.confidence) == ("other@client.example", 0.5)


def test_an_answer_with_a_mail_enclosed_is_no_forward() -> None:
    """It answers; the enclosure is a document."""
    raw = b"From: a@b.example\r\nSubject: %s\r\nContent-Type: message/rfc822\r\n\r\n"
    raw += b"From: x@y.example\r\nSubject: in\r\n\r\nt"
    assert parse(raw % b"Fwd: in").forward.sender.address == "x@y.example"
    assert not parse(raw % b"Re: in").forward.found


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 200_000,
        " " * 200_000,
        " \n" * 100_000,
        "> \n" * 60_000,
        "From: " + "<" * 200_000,
        "\xa0" * 200_000,
        "From: a <a@b.example>\n" * 9_000,
        ("On " + "<[>]" * 90 + "\n") * 500,
        "=?bogus?q?x?= \n" * 9_000,
        "\u2003\n" * 90_000,
    ],
)
def test_no_text_keeps_the_library_busy(text: str) -> None:
    """20 kB of blank lines took it 80 seconds."""
    started = time.monotonic()
    for subject in ("Fwd: x", None):
        inline(subject, text)
    assert time.monotonic() - started < 10


def test_public_forwards_name_their_original_sender(corpus: Path) -> None:
    """149 of the 153 at the time of writing; the library alone 144."""
    named = exact = total = 0
    for case in cases(corpus, "forward_crisp/"):
        expected = case["expected"]
        assert isinstance(expected, dict)
        subject_path = case["subject_path"]
        subject = (corpus / str(subject_path)).read_text(encoding="utf-8") if subject_path else None
        found = inline(subject, (corpus / str(case["path"])).read_text(encoding="utf-8"))
        if "original_from" not in expected:
            assert not found.found, case["path"]
            continue
        total += 1
        named += found.sender.address == expected["original_from"]["address"]
        exact += (found.body or "").strip() == str(expected.get("original_body_exact", "")).strip()
    assert total > 0
    assert named / total >= 0.96
    assert exact / total >= 0.88


def test_public_replies_are_not_taken_for_forwards(corpus: Path) -> None:
    """A wrong requester sends work to a wrong client."""
    wrong = []
    for case in [*cases(corpus, "reply_talon/"), *cases(corpus, "reply_zapier/")]:
        path = corpus / str(case["path"])
        if path.suffix == ".eml":
            mail = parse(path.read_bytes())
            found = mail.forward
        else:
            text = path.read_text(encoding="utf-8", errors="replace")
            is_html = path.suffix == ".html"
            found = find_forward(None, "" if is_html else text, text if is_html else None, ())
        if found.found:
            wrong.append(path.name)
    assert len(wrong) <= 2, wrong
