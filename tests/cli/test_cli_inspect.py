"""``atlas inspect``: one JSON object a file, in the order given, whatever the files are."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from atlas_pipeline.embedded.clamd import eicar
from atlas_pipeline.embedded.mails import DEMO_MAILS, Scene
from tests.fixtures_flow import AUTHSERV, CLIENT, FOUNDER, letter
from tests.fixtures_orchestration import Atlas, atlas_process
from tests.fixtures_services import CLAMD_STREAM_MAX_BYTES

PARSED = ["file", "message_id", "subject", "from", "date", "body_text", "attachments", "forward", "trust", "remarks"]
FORWARD = ["found", "method", "confidence", "from", "subject", "date", "body"]
ATTACHMENT = ["name", "type", "size", "sha256", "verdict"]
# Beside what was specified: the verdict on the mail as a whole, and the model's reason.
SCANNED, CLASSIFIED = [*PARSED, "scan"], ["ocr", "classification"]
CLASSIFICATION = ["intent", "confidence", "model", "guards", "reasoning"]
NOBODY = {"name": None, "address": None}


def mail(folder: Path, raw: bytes, name: str = "mail.eml") -> Path:
    """A mail file."""
    file = folder / name
    file.write_bytes(raw)
    return file


def inspected(out: str) -> list[dict[str, Any]]:
    """One object a line."""
    return [json.loads(line) for line in out.splitlines()]


def test_a_mail_becomes_one_object_with_these_keys(atlas: Atlas, somewhere: Path) -> None:
    """What was not asked for is absent; nothing is started and no folder is made."""
    file = mail(somewhere, letter("Sujet", "Bonjour.\n", attachments=[("note.txt", b"Texte", "text/plain")]))
    said = atlas("inspect", file, "--json", ATLAS_AUTHSERV_IDS=AUTHSERV, ATLAS_FOUNDER_ADDRESSES=FOUNDER)
    assert said.status == 0
    (facts,) = inspected(said.out)
    assert list(facts) == PARSED
    assert facts["file"] == str(file)
    assert facts["from"] == {"name": None, "address": FOUNDER}
    assert facts["subject"] == "Sujet"
    assert facts["date"] == "2026-12-01T08:00:00+01:00"
    assert facts["body_text"].strip() == "Bonjour."
    (attachment,) = facts["attachments"]
    assert list(attachment) == ATTACHMENT
    assert (attachment["name"], attachment["size"], attachment["verdict"]) == ("note.txt", 5, None)
    assert list(facts["forward"]) == FORWARD
    assert facts["forward"]["found"] is False
    assert facts["trust"] == {"level": "founder", "reason": facts["trust"]["reason"]}
    assert sorted(path.name for path in somewhere.iterdir()) == ["mail.eml"]


def test_what_was_not_found_is_null(atlas: Atlas, somewhere: Path) -> None:
    """Not left out and not an empty text."""
    (facts,) = inspected(atlas("inspect", mail(somewhere, b"X-Nothing: at all\n\nHello\n"), "--json").out)
    assert list(facts) == PARSED
    assert (facts["message_id"], facts["subject"], facts["date"], facts["from"]) == (None, None, None, NOBODY)
    assert facts["forward"] == {**dict.fromkeys(FORWARD), "found": False, "from": NOBODY}
    assert facts["attachments"] == []
    assert facts["trust"]["level"] == "other"


def test_the_objects_come_in_the_order_of_the_files(atlas: Atlas, somewhere: Path) -> None:
    """A file named twice is answered twice; one that can't be read has its line too, and the exit says so."""
    one, two = mail(somewhere, letter("One"), "b.eml"), mail(somewhere, letter("Two"), "a.eml")
    missing, folder = somewhere / "missing.eml", somewhere / "folder"
    folder.mkdir()
    said = atlas("inspect", one, missing, two, folder, one, "--json")
    assert said.status == 1
    found = inspected(said.out)
    assert [facts.get("subject", facts.get("error")) for facts in found] == [
        "One", "file_unreadable", "Two", "no_regular_file", "One",
    ]  # fmt: skip
    assert [facts["file"] for facts in found] == [str(path) for path in (one, missing, two, folder, one)]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0" * 5000,
        bytes(range(256)) * 40,
        b"\x89PNG\r\n\x1a\n" + b"\xff" * 1000,
        b"Subject: =?utf-8?b?7aC9?=\r\nFrom: \xff\xfe <\xed\xa0\x80@x>\r\n\r\n\xed\xa0\x80\x00\x9b31m",
        b"Content-Type: multipart/mixed; boundary=x\n\n--x\nContent-Type: text/plain; charset=nonsense\n\n\xe9",
    ],
    ids=["empty", "nul", "every byte", "picture", "surrogates", "broken multipart"],
)
def test_garbage_is_answered_like_any_mail(somewhere: Path, raw: bytes) -> None:
    """Never a traceback: in a process of its own, so that what is printed is really encoded."""
    said = atlas_process(somewhere, "inspect", mail(somewhere, raw), "--json")
    assert (said.status, said.err) == (0, "")
    (facts,) = inspected(said.out)
    assert list(facts) == PARSED
    for_people = atlas_process(somewhere, "inspect", somewhere / "mail.eml")
    assert for_people.status == 0
    assert not any(
        (character < " " and character != "\n") or "\x7f" <= character <= "\x9f" for character in for_people.out
    )


def test_a_file_whose_name_is_no_text_is_answered_too(somewhere: Path) -> None:
    """A Maildir may hold any bytes as a name."""
    name = os.fsdecode(b"caf\xe9.eml")
    mail(somewhere, letter("Here"), name)
    said = atlas_process(somewhere, "inspect", name, "--json")
    assert said.status == 0
    (facts,) = inspected(said.out)
    assert (facts["file"], facts["subject"]) == ("caf\\xe9.eml", "Here")


def test_with_scan_the_verdicts_are_there(atlas: Atlas, somewhere: Path, clamd: str) -> None:
    """And what is not clean is not opened: nothing is read, nothing is classified."""
    clean = mail(somewhere, letter(attachments=[("a.txt", b"Text", "text/plain")]), "clean.eml")
    infected = mail(somewhere, letter(attachments=[("a.com", eicar(), "text/plain")]), "infected.eml")
    limits = {"ATLAS_CLAMD": clamd, "ATLAS_CLAMD_STREAM_MAX_BYTES": str(CLAMD_STREAM_MAX_BYTES)}
    one, two = inspected(atlas("inspect", clean, infected, "--json", "--scan", "--classify", **limits).out)
    assert list(one) == list(two) == [*SCANNED, *CLASSIFIED]
    assert [facts["attachments"][0]["verdict"] for facts in (one, two)] == ["clean", "infected"]
    assert [facts["scan"]["verdict"] for facts in (one, two)] == ["clean", "infected"]
    assert (two["ocr"], two["classification"]) == (None, None)
    assert list(one["classification"]) == CLASSIFICATION


def test_without_a_scanner_a_scan_says_why_there_is_none(atlas: Atlas, somewhere: Path) -> None:
    """The rest of the mail is answered, and nothing is opened unscanned."""
    said = atlas("inspect", mail(somewhere, letter()), "--json", "--scan", "--classify")
    assert said.status == 1
    (facts,) = inspected(said.out)
    assert facts["error"] == facts["scan"]["code"] == "scanner_not_configured"
    assert (facts["ocr"], facts["classification"]) == (None, None)
    gone = atlas("inspect", somewhere / "mail.eml", "--json", "--scan", ATLAS_CLAMD="unix:/nonexistent")
    assert gone.status == 1
    assert inspected(gone.out)[0]["scan"]["verdict"] == "error"


def test_a_mail_over_the_limit_is_told_so_and_not_read_and_a_pipe_is_not_waited_for(
    atlas: Atlas, somewhere: Path
) -> None:
    """As in the pipeline: it gets a row and a code."""
    os.mkfifo(somewhere / "pipe")
    large = mail(somewhere, letter(body="x" * 5000), "large.eml")
    said = atlas("inspect", large, somewhere / "pipe", "--json", "--classify", ATLAS_MAX_MESSAGE_BYTES="4000")
    assert said.status == 1
    facts, pipe = inspected(said.out)
    assert (facts["remarks"], facts["subject"], facts["body_text"]) == (["message_too_large"], None, None)
    assert pipe["error"] == "no_regular_file"


def test_with_classify_pictures_are_read_and_the_local_model_decides(atlas: Atlas, somewhere: Path) -> None:
    """The screenshot's word is counted and never shown."""
    scene = Scene(authserv_id=AUTHSERV, start=datetime(2026, 12, 1, 8, tzinfo=UTC), canary="ZQUARTZBISON")
    (demo,) = [one for one in DEMO_MAILS if b"image/png" in one.raw(scene)]
    said = atlas("inspect", mail(somewhere, demo.raw(scene)), "--json", "--classify")
    assert said.status == 0
    (facts,) = inspected(said.out)
    assert list(facts) == [*PARSED, *CLASSIFIED]
    assert facts["ocr"]["images"] == 1
    assert facts["ocr"]["characters"] > 20
    assert facts["classification"]["model"].startswith("local/")
    assert 0 <= facts["classification"]["confidence"] <= 1
    assert "ZQUARTZBISON" not in said.out


def test_a_forward_shows_who_wrote_first(atlas: Atlas, somewhere: Path) -> None:
    """As claimed by the text."""
    body = (
        "Pour info.\n\n---------- Forwarded message ---------\n"
        f"From: Claire Lorme <{CLIENT}>\nDate: Mon, 30 Nov 2026\nSubject: Le site\nTo: lea\n\nLe site est lent.\n"
    )
    (facts,) = inspected(atlas("inspect", mail(somewhere, letter("Fwd: Le site", body)), "--json").out)
    assert facts["forward"]["found"] is True
    assert facts["forward"]["from"] == {"name": "Claire Lorme", "address": CLIENT}
    assert facts["forward"]["subject"] == "Le site"


def test_automatic_forwarding_shows_by_whom(atlas: Atlas, somewhere: Path) -> None:
    """The outer From does not say so."""
    raw = f"X-Forwarded-For: lea@agence.example atlas@agence.example\nFrom: {CLIENT}\nSubject: Le site\n\nBonjour\n"
    (facts,) = inspected(atlas("inspect", mail(somewhere, raw.encode()), "--json").out)
    assert (facts["forward"]["method"], facts["forward"]["from"]["address"]) == ("automatic", CLIENT)
    assert facts["forward"]["forwarder"] == {"name": None, "address": "lea@agence.example"}


def test_tenants_from_a_file_are_believed(atlas: Atlas, somewhere: Path) -> None:
    """No database is asked; a file that is none is refused."""
    file = mail(somewhere, letter(sender=CLIENT))
    tenants = somewhere / "tenants.json"
    tenants.write_text(json.dumps([{"slug": "lorme", "name": "L", "domains": [CLIENT.rsplit("@", 1)[1]]}]))
    known = {"ATLAS_AUTHSERV_IDS": AUTHSERV}
    (facts,) = inspected(atlas("inspect", file, "--json", "--tenants", tenants, **known).out)
    assert facts["trust"]["level"] == "tenant_domain"
    for content in ("{", '{"slug": "x"}', "\udcff"):
        tenants.write_bytes(content.encode("utf-8", "surrogateescape"))
        said = atlas("inspect", file, "--tenants", tenants, **known)
        assert (said.status, said.err) == (1, "error: tenants_not_json\n")
