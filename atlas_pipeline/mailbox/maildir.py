"""A Maildir as a mailbox: unique names stand in for UIDs, the file's time for INTERNALDATE, the flag S for seen.

Other programs move files between ``new`` and ``cur`` at any moment; a name is therefore looked up again before a mail
is called gone. Not here: writing a mailbox (delivery is the mail server's).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from atlas_pipeline.errors import MailboxUnavailable
from atlas_pipeline.model import Known, ListedMail, Listing

UID_VALIDITY = 1  # a unique name is never used twice, so a Maildir never starts counting anew


class MaildirSource:
    """Reads a folder with ``new`` and ``cur``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def mailbox(self) -> str:
        """``maildir:`` and the folder's own name."""
        return f"maildir:{quote(self._folder.resolve().name)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def list(
        self,
        *,
        above_uid: int | None,  # noqa: ARG002  # names have no order; the ledger knows the old ones
        known: Known | None = None,
        limit: int | None = None,
    ) -> Listing:
        """List unread mails, oldest first. Raises MailboxUnavailable: ``maildir_unreadable``."""
        unread = {uid: path for uid, path in self._paths().items() if not _is_seen(path)}
        old = set(known(UID_VALIDITY, list(unread)) if known else ())
        mails = []
        for uid, path in unread.items():
            if uid in old:
                continue
            try:
                status = path.lstat()
            except FileNotFoundError:  # moved or removed since the folder was read: the next look sees it
                continue
            except OSError:
                raise MailboxUnavailable("maildir_unreadable") from None
            if stat.S_ISREG(status.st_mode):
                date = datetime.fromtimestamp(status.st_mtime, UTC)
                mails.append(ListedMail(uid, date, status.st_size, seen=False))
        mails.sort(key=lambda mail: (mail.internal_date, mail.uid))
        more = limit is not None and len(mails) > limit
        return Listing(self.mailbox, UID_VALIDITY, None, tuple(mails[:limit]), more)

    def list_all(self) -> Listing:
        """List unread mails: names are for ever here, so nobody has to find known mails again."""
        return self.list(above_uid=None)

    def fetch(self, sizes: Mapping[str, int], *, uid_validity: int | None = None) -> Iterator[tuple[str, bytes | None]]:
        """Yield the bytes of each mail; None where no file has the name any more."""
        _check(uid_validity)
        paths = self._paths() if sizes else {}
        for uid in sizes:
            content = _read(paths.get(uid))
            if content is None:
                paths = self._paths()
                content = _read(paths.get(uid))
            yield uid, content

    def mark_seen(self, uids: Sequence[str], *, uid_validity: int | None = None) -> None:
        """Move mails to ``cur`` with the flag S, in one rename each."""
        _check(uid_validity)
        paths = self._paths() if uids else {}
        for uid in uids:
            if not self._flag(paths.get(uid)):
                paths = self._paths()
                self._flag(paths.get(uid))

    def _flag(self, path: Path | None) -> bool:
        """Rename one file; False if it was not there."""
        if path is None:
            return False
        if _is_seen(path):
            return True
        unique, _, info = path.name.partition(":2,")
        flags = "".join(sorted({*info, "S"}))
        try:
            path.rename(self._folder / "cur" / f"{unique}:2,{flags}")
        except FileNotFoundError:
            return False
        except OSError:
            raise MailboxUnavailable("maildir_unwritable") from None
        return True

    def _paths(self) -> dict[str, Path]:
        """Map unique names to files; ``cur`` wins over ``new``. A failed read is not an empty mailbox."""
        found: dict[str, Path] = {}
        for part in ("new", "cur"):
            try:
                names = os.listdir(self._folder / part)  # noqa: PTH208  # names, not paths: only they are needed
            except OSError:
                raise MailboxUnavailable("maildir_unreadable") from None
            for name in names:
                if not name.startswith("."):
                    found[_uid(name)] = self._folder / part / name
        return found


def _check(uid_validity: int | None) -> None:
    if uid_validity not in {None, UID_VALIDITY}:
        raise MailboxUnavailable("uid_validity_changed")


def _uid(name: str) -> str:
    """Return the unique name as valid text; bytes that are none are percent-encoded."""
    unique = name.partition(":")[0]
    try:
        unique.encode()
    except UnicodeEncodeError:
        return quote(os.fsencode(unique))
    return unique


def _is_seen(path: Path) -> bool:
    return path.parent.name == "cur" and "S" in path.name.partition(":2,")[2]


def _read(path: Path | None) -> bytes | None:
    """Read a regular file; a symbolic link in a mailbox is not followed."""
    if path is None:
        return None
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        raise MailboxUnavailable("maildir_unreadable") from None
