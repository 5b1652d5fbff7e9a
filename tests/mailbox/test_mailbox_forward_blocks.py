"""The reader of label blocks: what it takes for a block, where a mail ends, and that no text keeps it busy."""

from __future__ import annotations

import re
import time

import pytest
from emailforwardparser import regexs
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_pipeline.mailbox.forward_blocks import Separator, read_block
from atlas_pipeline.mailbox.forward_labels import LABELS, folded
from atlas_pipeline.mailbox.forward_mailbox import mailbox
from atlas_pipeline.model import Address

JEAN = Address("Jean Petit", "jean@client.example")


def block(*lines: str) -> tuple[Address, str | None, str | None, str] | None:
    """What is read from lines."""
    found = read_block("\n".join(lines))
    return None if found is None else (found.sender, found.subject, found.date, found.body)


@pytest.mark.parametrize("name", [name for name in dir(regexs) if name.startswith("ORIGINAL_")])
def test_every_label_of_the_library_is_known(name: str) -> None:
    """The reader replaces it wherever labels stand on lines of their own."""
    for pattern in getattr(regexs, name):
        bare = re.sub(r"^(?:\(\?\w+\)|\^|\(|\\\*\?|\\s\*)*", "", pattern.pattern)
        label = re.split(r"\\s|:|\uff1a|`", bare)[0].replace("\\", "")
        assert folded(label) in LABELS, pattern.pattern


@pytest.mark.parametrize(
    "labels",
    [
        ("From", "Date", "Subject", "To"),
        ("*From", "*Sent", "*Subject", "*To"),
        ("**Von", "**Gesendet", "**Betreff", "**An"),
        ("Expéditeur", "Date", "Objet", "Destinataire"),
        ("Від кого", "Дата", "Тема", "Кому"),
        ("De la", "Dată", "Subiect", "Către"),
        ("Από", "Ημερομηνία", "Θέμα", "Προς"),
        ("מאת", "תאריך", "נושא", "אל"),
        ("보낸 사람", "보낸 날짜", "제목", "받는 사람"),
        ("발신", "날짜", "제목", "수신"),
        ("GÖNDEREN", "TARİH", "KONU", "KİME"),
    ],
)
@pytest.mark.parametrize("colon", [":", " :", "\xa0:", "\uff1a"])
@pytest.mark.parametrize("mark", ["", "> ", ">> ", "  ", "\u200e"])
def test_labels_of_many_languages(labels: tuple[str, ...], colon: str, mark: str) -> None:
    """Bold or quoted, with a French space or a wide colon before the value."""
    quote = mark.strip("\u200e")
    values = ("Jean Petit <jean@client.example>", "lundi : 10:00", "Devis : urgent", "Ann <ann@client.example>")
    lines = [f"{mark}{label}{colon} {value}" for label, value in zip(labels, values, strict=True)]
    assert block("Voir", "", *lines, quote, f"{quote}Bonjour") == (
        JEAN,
        "Devis : urgent",
        "lundi : 10:00",
        "Bonjour",
    )


@pytest.mark.parametrize(
    "line",
    [
        "---------- Forwarded message ---------",
        "-----Weitergeleitete Nachricht-----",
        "============ Forwarded message ============",
        "-------- Přeposlaná zpráva --------",
        "---------- 转发的邮件 ----------",
        "Forwarded message:",
        "> Begin forwarded message:",
        "Début du message transféré\xa0:",
        "**Anfang der weitergeleiteten Nachricht:**",
    ],
)
def test_a_line_that_announces_a_forward(line: str) -> None:
    """Between dashes a stem is enough; on a line of words the whole wording counts."""
    found = read_block(f"Voir\n\n{line}\n\nFrom: jean@client.example\nSubject: Devis\n\nBonjour")
    assert found is not None
    assert (found.separator, found.sender.address, found.body) == (Separator.FORWARD, "jean@client.example", "Bonjour")


@pytest.mark.parametrize(
    "text",
    [
        "I forwarded this to you:\n\nbye",
        "From: here\nto there",
        "Subject: x\n\nDate: y",
        "-- \nFrom: me\nTel: 1",
        "De : Paris",
        "",
    ],
)
def test_sentences_are_no_blocks(text: str) -> None:
    """Labels count together only."""
    assert read_block(text) is None


def test_values_wrap_and_labels_stand_apart() -> None:
    """Lists end with a comma, subjects go on before another label, blank lines stand between labels of some programs."""
    wrapped = (
        "From: Jean Petit",
        "<jean@client.example>",
        "Subject: a long",
        " one",
        "To: a@b.example,",
        " c@d.example,",
        " e@f.example",
        "",
        "Hi",
    )
    assert block("-----Original Message-----", *wrapped) == (JEAN, "a long one", None, "Hi")
    apart = (
        "From: Jean Petit <jean@client.example>",
        "",
        "Date: lundi",
        "To:<a@b.example>",
        "",
        "",
        "Subject: x",
        "",
        "",
        "Hi",
    )
    assert block("-----Original Message-----", *apart) == (JEAN, "x", "lundi", "Hi")
    assert block(*wrapped[:2], "Date: lundi", "To: a", "Subject: x", "Hi", "you") == (JEAN, "x", "lundi", "Hi\nyou")


def test_a_quoted_mail_ends_with_its_quotation() -> None:
    """What the forwarder wrote below is not the original's; a line that lost its mark when it was wrapped is."""
    labels = ("> From: Jean Petit <jean@client.example>", "> Date: lundi", "> To: a", "> Subject: x", ">")
    assert block(*labels, "> Bonjour", "le monde", ">", "> > cité", "", "Merci d'avance") == (
        JEAN,
        "x",
        "lundi",
        "Bonjour\nle monde\n\n> cité",
    )
    plain = [line.removeprefix("> ") for line in labels[:-1]]
    assert block(*plain, "", "> Bonjour", "> le monde") == (JEAN, "x", "lundi", "Bonjour\nle monde")


def test_announcing_lines_around_a_mail_are_not_its_body() -> None:
    """Zoho repeats the line below the labels, Gnus closes with one, Yandex has no labels at all."""
    line = "============ Forwarded message ============"
    labels = ("From: Jean Petit <jean@client.example>", "Date: lundi", "Subject: x")
    assert block(line, *labels, line, "", "Bonjour") == (JEAN, "x", "lundi", "Bonjour")
    assert block(line, *labels, "", "Bonjour", "--- End of forwarded message ---") == (JEAN, "x", "lundi", "Bonjour")
    assert block(line, *labels, "", line, *labels, "", "x") == (JEAN, "x", "lundi", "\n".join([line, *labels, "", "x"]))
    yandex = (
        "-------- Пересылаемое сообщение --------",
        '14.06.2026, 15:19, "Jean Petit" <jean@client.example>:',
        "",
        "Bonjour",
    )
    assert block(*yandex) == (JEAN, None, "14.06.2026, 15:19", "Bonjour")


def test_the_header_of_a_pasted_source_is_no_block() -> None:
    """Every mail's own header has the labels."""
    head = ("MIME-Version: 1.0", "From: Jean <jean@client.example>", "To: a", "Subject: x", "Date: y")
    assert block(*head, "", "Bonjour") is None


@pytest.mark.parametrize(
    ("value", "name", "address"),
    [
        ("Jean Petit <jean@c.example>", "Jean Petit", "jean@c.example"),
        ("'Petit, Jean' [mailto:jean@c.example]", "Petit, Jean", "jean@c.example"),
        (
            "Jean<mailto:jean@c.example> <jean@c.example<mailto:jean@c.example>> on behalf of x@y.example",
            "Jean",
            "jean@c.example",
        ),
        ("jean@c.example <jean@c.example>", None, "jean@c.example"),
        ("jean@c.example (Jean)", "Jean", "jean@c.example"),
        ("[Jean](mailto:jean@c.example)", "Jean", "jean@c.example"),
        ("Jean [<jean@c.example>](mailto:jean@c.example)", "Jean", "jean@c.example"),
        ("\u00ab Jean \u00bb <jean@c.example>", "Jean", "jean@c.example"),
        ("Jean Petit", "Jean Petit", None),
        ("", None, None),
    ],
)
def test_who_wrote_as_programs_show_it(value: str, name: str | None, address: str | None) -> None:
    """Names in quotes, addresses as links, both twice."""
    assert mailbox(value) == Address(name, address)


PIECES = st.sampled_from(
    [
        "From:",
        "De :",
        "To: a@b.example,",
        "Subject:",
        "Date: 3",
        "Sent:",
        "Jean <j@c.example>",
        "---------- Forwarded message ---------",
        "_" * 32,
        "On 3, a@b.example wrote:",
        "\n",
        "\n",
        "\n\n",
        "> ",
        "\t",
        "\r\n",
        "\ufeff",
        "[x](mailto:y)",
        ":",
        "\uff1a",
        "--",
        "*",
        "Received: x",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES | st.text(max_size=8), max_size=60).map("".join))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Whatever it is made of."""
    found = read_block(text)
    assert found is None or found.separator in Separator


@pytest.mark.parametrize(
    "unit",
    [
        "From:\n",
        "To: a@b.example,\n",
        "Subject: a\nb\nc\n",
        "---- a ----\n",
        "Date: x\nSent: y\n",
        "a@",
        "> ",
        "[",
        "-",
        "_" * 32 + "\n\n",
        "---------- Forwarded message ---------\n",
        "From: a\nTo: b,\n" + "c@d.example,\n" * 30,
        "On 3 a@b.example wrote:\n",
    ],
)
def test_time_grows_with_the_text_alone(unit: str) -> None:
    """200 kB of what looks most like a block; a quadratic reader takes minutes."""
    text = "From: " + unit * (200_000 // len(unit))
    started = time.monotonic()
    read_block(text)
    read_block("Subject: x\nTo: y\nFrom: z\n\n" + text)
    assert time.monotonic() - started < 4
