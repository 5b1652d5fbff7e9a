"""Finding the mail inside a forward, over public cases and the ones that broke the library behind it."""

from __future__ import annotations

import time
from email.message import EmailMessage

import pytest

from atlas_pipeline.mailbox.forwards import find_forward
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.mailbox.trust import requester
from atlas_pipeline.model import Forward


def inline(subject: str | None, text: str) -> Forward:
    return find_forward(subject, text, None, ())


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
        ("_" * 32 + "\n\n") * 5_900,
    ],
)
def test_no_text_keeps_the_library_busy(text: str) -> None:
    """20 kB of blank lines took it 80 seconds."""
    started = time.monotonic()
    for subject in ("Fwd: x", None):
        inline(subject, text)
    assert time.monotonic() - started < 10


def test_two_parts_that_disagree_are_a_conflict_and_a_remark() -> None:
    """Somebody has to look: a wrong requester sends work to a wrong client."""
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "ann@client.example", "Fwd: Devis"
    mail.set_content(GMAIL)
    mail.add_alternative(GMAIL.replace("jean@", "other@").replace("<", "&lt;").replace("\n", "<br>"), subtype="html")
    parsed = parse(mail.as_bytes())
    assert (parsed.forward.sender.address, parsed.forward.confidence) == ("jean@client.example", 0.5)
    assert parsed.forward.conflict
    assert "forward_conflict" in parsed.remarks


def test_a_mail_in_the_text_goes_before_one_attached_to_it() -> None:
    """Mails are forwarded with their attachments; the two senders are a conflict all the same."""
    enclosed = EmailMessage()
    enclosed["From"], enclosed["Subject"] = "old@client.example", "vieux"
    enclosed.set_content("x")

    def forwarded(text: str) -> Forward:
        mail = EmailMessage()
        mail["From"], mail["Subject"] = "ann@client.example", "Fwd: Devis"
        mail.set_content(text)
        mail.add_attachment(enclosed)
        return parse(mail.as_bytes()).forward

    found = forwarded(GMAIL)
    assert (found.sender.address, found.method, found.conflict) == ("jean@client.example", "inline_text", True)
    found = forwarded("voir ci-joint")
    assert (found.sender.address, found.method, found.conflict) == ("old@client.example", "attachment", False)


RULE = b"From: Jean <jean@client.example>\nTo: bob@team.example\nSubject: Re: Devis\nDate: Mon, 2 Nov 2026 10:00:00 +0100\n"


def test_automatic_forwarding_names_who_forwarded_and_changes_nothing_else() -> None:
    """From is the original already; the header is anyone's to write, so neither trust nor the requester follow it."""
    mail = parse(
        RULE + b"X-Forwarded-To: atlas@inbox.example\nX-Forwarded-For: bob@team.example atlas@inbox.example\n\nOui\n"
    )
    forward = mail.forward
    assert (forward.method, forward.confidence) == ("automatic", 0.9)
    assert (forward.sender, forward.forwarder.address) == (mail.sender, "bob@team.example")
    assert (forward.subject, forward.date) == ("Re: Devis", "Mon, 2 Nov 2026 10:00:00 +0100")
    assert (forward.body or "").strip() == "Oui"
    assert requester(mail) == (mail.sender, False)
    alone = parse(RULE + b"X-Forwarded-To: <atlas@inbox.example>\n\nOui\n").forward
    assert (alone.method, alone.forwarder.address) == ("automatic", None)


@pytest.mark.parametrize("value", [b"10.0.0.7", b"", b"unknown, 10.1.1.1"])
def test_a_proxys_header_of_the_same_name_is_no_forwarding(value: bytes) -> None:
    """Webmail gateways write the browser's address there."""
    assert not parse(RULE + b"X-Forwarded-For: " + value + b"\n\nOui\n").forward.found


def test_a_persons_forward_that_a_rule_passed_on_is_the_persons() -> None:
    """The founder forwards to a group, and the group's rule to the mailbox: the client still asks."""
    mail = RULE.replace(b"Re: Devis", b"Fwd: Devis") + b"X-Forwarded-For: group@team.example\n\n" + GMAIL.encode()
    assert parse(mail).forward.method == "inline_text"


@pytest.mark.parametrize("subject", ["Re: Devis", "AW: Devis", "回复: Devis", "[EXTERNE] Re: Devis"])
def test_an_answer_to_a_forward_is_an_answer(subject: str) -> None:
    """What it quotes was forwarded once."""
    quoted = "\n".join("> " + line for line in GMAIL.splitlines())
    assert not inline(subject, f"Merci\n\nLe 6 avr. 2026 à 17:00, Ann <ann@client.example> a écrit :\n{quoted}").found


@pytest.mark.parametrize(
    "subject", ["[EXTERNE] TR : Devis", "FW : Devis", "转发：Devis", "Devis (fwd)", "İLT: Devis", "Redir.: Devis"]
)
def test_a_subject_says_forward_in_many_ways(subject: str) -> None:
    """Gateways put tags in front, programs a space before the colon."""
    assert inline(subject, OUTLOOK_FR).confidence == 0.9


def test_a_bare_block_counts_unless_answers_have_it() -> None:
    """People change subjects, so the block is what is left to go by."""
    block = "De : Jean <jean@client.example>\nDate : jeudi\nÀ : Ann\nObjet : Devis\n\nBonjour"
    assert (inline("Devis", "Voir\n\n" + block).confidence, inline("Re: Devis", "Voir\n\n" + block).found) == (
        0.6,
        False,
    )
    outlook = block.replace("Date :", "Envoyé :")
    assert not inline("Devis", "Voir\n\n" + outlook).found
    assert inline("Devis", outlook).found
    assert inline("TR: Devis", "Voir\n\n" + outlook).confidence == 0.9
    assert not inline(None, "De : Paris\nÀ : Lyon\nDate : 3 mai\nObjet : train\n\nMerci").found


def test_a_forward_without_a_sender_is_found_all_the_same() -> None:
    """It is a forward; who wrote stays unknown."""
    found = inline("Devis", "Begin forwarded message:\nBonjour")
    assert (found.found, found.confidence, found.sender.address, found.body) == (True, 0.3, None, "Bonjour")


@pytest.mark.parametrize("above", ["", "Voir ci-dessous\n\n"])
@pytest.mark.parametrize(
    "line",
    [
        'On 28/10/2026 12:46, "Jean Petit" <jean@client.example> wrote:',
        '28/10/2026 12:46 пользователь "Jean Petit" <jean@client.example> написал:',
    ],
)
def test_outlooks_single_line_names_the_sender_with_words_above_it_too(above: str, line: str) -> None:
    """The library looks for the sender at the very beginning of a text only."""
    found = inline("FW: Devis", f"{above}{line}\n\n    Bonjour\n")
    assert (found.sender.name, found.sender.address, found.body) == ("Jean Petit", "jean@client.example", "Bonjour")


def test_yahoos_labels_on_one_line_are_read_in_turkish() -> None:
    """A capital dotted I is two letters once its case is folded."""
    text = '   ----- İletilmiş Mesaj ----- Kimden: Jean Petit <jean@client.example>Kime: "a@b.example" <a@b.example>'
    found = inline(None, text + "Gönderilen: 2 Kasım 2026Konu: Devis\n Bonjour")
    assert (found.sender.address, found.subject, found.body) == ("jean@client.example", "Devis", "Bonjour")


HTML = {
    "gmail": "voir<br><div class=gmail_attr>---------- Forwarded message ---------<br>De : <strong>Jean Petit</strong> "
    '<span>&lt;<a href="mailto:jean@client.example">jean@client.example</a>&gt;</span><br>Date: lundi<br>Subject: Devis'
    "<br>To: &lt;ann@client.example&gt;<br></div><br><div>Bonjour</div>",
    "outlook": "<p>voir</p><div style='border-top:solid #E1E1E1 1pt'><p><b>De&nbsp;:</b> Jean Petit &lt;jean@client.example&gt;<br>"
    "<b>Envoyé&nbsp;:</b> lundi<br><b>À&nbsp;:</b> Ann<br><b>Objet&nbsp;:</b> Devis</p></div><p>Bonjour</p>",
    "thunderbird": "voir<br>-------- Message transféré --------<table><tr><th>Sujet : </th><td>Devis</td></tr><tr><th>Date : </th>"
    '<td>lundi</td></tr><tr><th>De : </th><td>Jean Petit <a href="mailto:jean@client.example">&lt;jean@client.example&gt;</a>'
    "</td></tr><tr><th>Pour : </th><td>ann@client.example</td></tr></table><br>Bonjour",
    "apple": "voir<blockquote type=cite><div>Début du message réexpédié :</div><br><div><b>De: </b>Jean Petit &lt;"
    '<a href="mailto:jean@client.example">jean@client.example</a>&gt;</div><div><b>Objet: </b>Devis</div><div><b>Date: </b>lundi</div>'
    "<div><b>À: </b>ann@client.example</div><br><div>Bonjour</div></blockquote>",
    "windows mail": "<div><b>De :</b> <a href='mailto:jean@client.example'>Jean Petit</a><br><b>Envoyé :</b> lundi<br><b>À :</b> Ann<br>"
    "<b>Objet :</b> Devis</div><br>Bonjour",
}


@pytest.mark.parametrize("client", HTML)
def test_each_programs_html_gives_sender_subject_date_and_body(client: str) -> None:
    """Tables, bold labels, links around addresses and rules drawn as borders."""
    found = find_forward("TR: Devis", "", HTML[client], ())
    assert (found.sender.name, found.sender.address) == ("Jean Petit", "jean@client.example")
    assert (found.subject, found.date, found.body, found.method) == ("Devis", "lundi", "Bonjour", "inline_html")
