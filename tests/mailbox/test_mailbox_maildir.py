"""The Maildir source on a real folder."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atlas_pipeline.errors import MailboxUnavailable
from atlas_pipeline.mailbox.source import MailSource, open_source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in ("tmp", "new", "cur"):
        (tmp_path / "Inbox" / part).mkdir(parents=True)
    return tmp_path / "Inbox"


@pytest.fixture
def box(folder: Path) -> MailSource:
    return open_source(imap_url=None, imap_ca_file=None, maildir=folder, timeout_seconds=1)


def test_unread_mails_of_both_folders_are_listed_by_their_unique_name(folder: Path, box: MailSource) -> None:
    """The flags change, the part before the colon does not."""
    (folder / "new" / "1.a.h").write_bytes(b"one")
    (folder / "cur" / "2.b.h:2,F").write_bytes(b"two2")
    (folder / "cur" / "3.c.h:2,FS").write_bytes(b"seen")
    (folder / "new" / ".hidden").write_bytes(b"")
    os.utime(folder / "new" / "1.a.h", (1_793_000_000, 1_793_000_000))
    with box:
        listed = box.list(above_uid=None)
    assert (listed.mailbox, listed.uid_validity, listed.uid_next) == ("maildir:Inbox", 1, None)
    assert {(found.uid, found.size, found.seen) for found in listed.mails} == {("1.a.h", 3, False), ("2.b.h", 4, False)}
    assert datetime.fromtimestamp(1_793_000_000, UTC) in {found.internal_date for found in listed.mails}


def test_a_mail_is_found_again_after_another_program_moved_it(folder: Path, box: MailSource) -> None:
    """Mail programs move a mail from new to cur whenever they look."""
    (folder / "new" / "1.a.h").write_bytes(b"one")
    with box:
        reading = box.fetch(dict.fromkeys(["1.a.h", "2.b.h", "9.gone.h"], 1000))
        (folder / "new" / "2.b.h").write_bytes(b"two")
        assert next(reading) == ("1.a.h", b"one")
        (folder / "new" / "2.b.h").rename(folder / "cur" / "2.b.h:2,")
        assert list(reading) == [("2.b.h", b"two"), ("9.gone.h", None)]


def test_marking_moves_a_mail_to_cur_once_and_keeps_its_flags(folder: Path, box: MailSource) -> None:
    """Marking twice, or marking what is gone, changes nothing."""
    (folder / "new" / "1.a.h").write_bytes(b"one")
    (folder / "cur" / "2.b.h:2,F").write_bytes(b"two")
    with box:
        for _ in range(2):
            box.mark_seen(["1.a.h", "2.b.h", "9.gone.h"])
        assert box.list(above_uid=None).mails == ()
    assert {path.name for path in (folder / "cur").iterdir()} == {"1.a.h:2,S", "2.b.h:2,FS"}
    assert list((folder / "new").iterdir()) == []


def test_a_name_that_is_no_text_still_has_an_identity(folder: Path, box: MailSource) -> None:
    """The ledger's column is UTF-8."""
    Path(os.fsdecode(os.fsencode(folder) + b"/new/1.\xff.h")).write_bytes(b"x")
    with box:
        (only,) = box.list(above_uid=None).mails
        assert only.uid == "1.%FF.h"
        assert list(box.fetch(dict.fromkeys([only.uid], 1000))) == [("1.%FF.h", b"x")]


def test_a_symbolic_link_is_no_mail(folder: Path, box: MailSource) -> None:
    """Whoever can write into the folder could otherwise have any file read."""
    (folder / "new" / "1.link.h").symlink_to("/etc/hostname")
    with box:
        assert box.list(above_uid=None).mails == ()
        assert list(box.fetch(dict.fromkeys(["1.link.h"], 1000))) == [("1.link.h", None)]


def test_a_folder_that_is_not_there_is_no_empty_mailbox(tmp_path: Path) -> None:
    """A failed read must not look like a quiet day."""
    box = open_source(imap_url=None, imap_ca_file=None, maildir=tmp_path / "none", timeout_seconds=1)
    with pytest.raises(MailboxUnavailable, match="maildir_unreadable"), box:
        box.list(above_uid=None)


def test_a_rebuilt_mailbox_is_refused(box: MailSource) -> None:
    """A Maildir's UIDVALIDITY never changes; another one belongs to another mailbox."""
    with pytest.raises(MailboxUnavailable, match="uid_validity_changed"), box:
        box.mark_seen(["x"], uid_validity=2)
