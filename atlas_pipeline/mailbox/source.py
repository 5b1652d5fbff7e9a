"""What a mailbox can do, and which one is configured.

Sources read and flag; they keep no state of their own. Not here: which mails are new (the ledger in ``store`` decides).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.mailbox.oauth import OAuthGrant
from atlas_pipeline.model import Known, Listing


class MailSource(Protocol):
    """A mailbox, used as a context manager: one connection from enter to exit.

    Every method raises MailboxUnavailable for what may pass (gone, cut, timed out) and AccessRefused for what will not.
    """

    @property
    def mailbox(self) -> str:
        """A stable identity without credentials, such as ``imap://user@host/INBOX`` or ``maildir:NAME``."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def list(self, *, above_uid: int | None, known: Known | None = None, limit: int | None = None) -> Listing:
        """List mails above a UID, and unread ones below it; at first sight (None) only the unread. Never a body.

        Of what ``known`` names only the UID is asked for. Of more than ``limit`` others the first are listed, and ``more`` is set.
        """
        ...

    def list_all(self) -> Listing:
        """List every mail of the folder, read or not, with its Message-ID where the mailbox can tell it without the body."""
        ...

    def fetch(self, sizes: Mapping[str, int], *, uid_validity: int | None = None) -> Iterator[tuple[str, bytes | None]]:
        """Yield the bytes of each mail, None for one that is gone; a mail the server would not hand over is left out.

        ``sizes`` are the UIDs with the bytes that were listed; they bound what is in memory at once. Nothing is flagged. With
        ``uid_validity`` the mailbox must still be the one that was listed.
        """
        ...

    def mark_seen(self, uids: Sequence[str], *, uid_validity: int | None = None) -> None:
        """Flag mails as read; those that are gone, or flagged already, are passed over."""
        ...


def open_source(
    *,
    imap_url: str | None,
    imap_ca_file: Path | None,
    maildir: Path | None,
    timeout_seconds: float,
    imap_grant: OAuthGrant | None = None,
) -> MailSource:
    """Return the configured mailbox, not connected yet. IMAP wins over a Maildir.

    Raises NotConfigured (``mailbox_not_configured``, ``imap_url_invalid``, ``imap_password_and_oauth``) and Refused
    (``imap_plain_text_refused``).
    """
    from atlas_pipeline.mailbox.imap import ImapSource
    from atlas_pipeline.mailbox.maildir import MaildirSource

    if imap_url:
        return ImapSource(imap_url, ca_file=imap_ca_file, timeout_seconds=timeout_seconds, grant=imap_grant)
    if maildir is not None:
        return MaildirSource(maildir)
    raise NotConfigured("mailbox_not_configured")
