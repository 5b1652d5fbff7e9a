"""An IMAP folder as a mailbox. UID calls only, TLS verified, a time-out on everything, nothing flagged by reading.

After an error the connection is never used again. Not here: retries (the stage), which mails are new (the ledger).
"""

from __future__ import annotations

import imaplib
import ipaddress
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, unquote, urlsplit

from imapclient import SEEN, IMAPClient

from atlas_pipeline.errors import AccessRefused, AtlasError, MailboxUnavailable, NotConfigured, Refused
from atlas_pipeline.mailbox import headers
from atlas_pipeline.mailbox.imap_ahead import Answers, answered, ask
from atlas_pipeline.mailbox.imap_errors import coded
from atlas_pipeline.mailbox.imap_salvage import whole_mails
from atlas_pipeline.mailbox.oauth import OAuthGrant, access_token, drop_token
from atlas_pipeline.mailbox.tree import read
from atlas_pipeline.model import Known, ListedMail, Listing

BATCH_MAILS = 50
BATCH_BYTES = 16_000_000
METADATA_BATCH = 500
# imaplib refuses an answer line over 1 MB; 50 000 UIDs of ten digits stay well below it.
SEARCH_WINDOW = 50_000


@dataclass(frozen=True)
class ImapLocation:
    """Where the mailbox is; the password stays out of ``repr``."""

    host: str
    port: int
    tls: bool
    user: str
    password: str = field(repr=False)
    folder: str = "INBOX"

    @property
    def identity(self) -> str:
        """The URL without the password; the port only where it is not the usual one."""
        port = "" if self.port == (993 if self.tls else 143) else f":{self.port}"
        return f"imap://{quote(self.user, safe='')}@{self.host}{port}/{quote(self.folder)}"


def locate(url: str, *, password: bool = True) -> ImapLocation:
    """Read ``imaps://user:password@host[:port]/FOLDER``, percent-decoded; ``password`` says whether there must be one or none.

    Raises NotConfigured ``imap_url_invalid``, ``imap_password_and_oauth``; Refused ``imap_plain_text_refused`` for imap://
    beyond loopback.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise NotConfigured("imap_url_invalid") from None
    if parts.scheme not in {"imap", "imaps"} or not parts.hostname or not parts.username:
        raise NotConfigured("imap_url_invalid")
    if password != bool(parts.password):
        raise NotConfigured("imap_url_invalid" if password else "imap_password_and_oauth")
    tls = parts.scheme == "imaps"
    if not tls and not _is_loopback(parts.hostname):
        raise Refused("imap_plain_text_refused")
    return ImapLocation(
        host=parts.hostname,
        port=port or (993 if tls else 143),
        tls=tls,
        user=unquote(parts.username),
        password=unquote(parts.password or ""),
        folder=unquote(parts.path.removeprefix("/")) or "INBOX",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class ImapSource:
    """Reads one folder of an IMAP server."""

    def __init__(
        self, url: str, *, ca_file: Path | None, timeout_seconds: float, grant: OAuthGrant | None = None
    ) -> None:
        """With a ``grant`` the URL holds no password. Raises as ``locate``, and NotConfigured ``imap_password_and_oauth``."""
        self._at = locate(url, password=grant is None)
        self._grant = grant
        self._ca_file = ca_file
        self._timeout = timeout_seconds
        self._client: Any = None
        self._writable: int | None = None  # the numbering of the folder, while it is open for writing

    @property
    def mailbox(self) -> str:
        """The URL without credentials."""
        return self._at.identity

    def __enter__(self) -> Self:
        # imapclient logs commands and answers, names and mail texts with them.
        logging.getLogger("imapclient").setLevel(logging.WARNING)
        context = self._tls_context() if self._at.tls else None
        if self._grant is None:
            self._client = self._connected(context, lambda client: client.login(self._at.user, self._at.password))
            return self
        token = access_token(self._grant, timeout_seconds=self._timeout)
        try:
            self._client = self._connected(context, self._by_token(token))
        except AccessRefused:
            # Taken back before its end, or the server's clock differs from ours: one more, on a new connection.
            drop_token(self._grant, token)
            token = access_token(self._grant, timeout_seconds=self._timeout)
            self._client = self._connected(context, self._by_token(token))
        return self

    def _connected(self, context: ssl.SSLContext | None, log_in: Callable[[Any], object]) -> Any:
        with coded():
            client = IMAPClient(
                self._at.host, self._at.port, ssl=self._at.tls, ssl_context=context, timeout=self._timeout
            )
            client.normalise_times = False  # otherwise INTERNALDATE comes back without its zone
            try:
                log_in(client)
            except BaseException:
                _close(client, polite=False)
                raise
        return client

    def _by_token(self, token: str) -> Callable[[Any], object]:
        # The second challenge is the server's error in JSON, which wants an empty answer before it says no.
        answers = iter([f"user={self._at.user}\x01auth=Bearer {token}\x01\x01"])
        return lambda client: client.sasl_login("XOAUTH2", lambda _challenge: next(answers, ""))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        self._writable = None
        if client is not None:
            _close(client, polite=error is None)

    def _tls_context(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca_file)
        except (OSError, ValueError):
            raise NotConfigured("imap_ca_file_unreadable") from None

    def list(self, *, above_uid: int | None, known: Known | None = None, limit: int | None = None) -> Listing:
        """List UIDs above the mark and unread ones below it. Raises NotConfigured ``imap_folder_missing`` too."""
        with coded():
            state = self._select(None, readonly=True)
            uid_next = state.get(b"UIDNEXT")
            validity = int(state[b"UIDVALIDITY"])
            uids = self._search(above_uid, uid_next)
            old = set(known(validity, [str(uid) for uid in uids]) if known else ())
            new = [uid for uid in uids if str(uid) not in old]
            mails = tuple(self._describe(new[:limit]))
        return Listing(self.mailbox, validity, uid_next, mails, more=limit is not None and len(new) > limit)

    def list_all(self) -> Listing:
        """List every mail of the folder with its Message-ID, read or not."""
        with coded():
            state = self._select(None, readonly=True)
            uid_next = state.get(b"UIDNEXT")
            uids = self._search(0, uid_next)
            ids = self._message_ids(uids)
            mails = tuple(replace(mail, message_id=ids.get(mail.uid)) for mail in self._describe(uids))
        return Listing(self.mailbox, int(state[b"UIDVALIDITY"]), uid_next, mails)

    def fetch(self, sizes: Mapping[str, int], *, uid_validity: int | None = None) -> Iterator[tuple[str, bytes | None]]:
        """Yield bodies in batches of at most 50 mails and 16 MB (one larger mail goes alone), by BODY.PEEK[]."""
        if not sizes:
            return
        try:
            self._open_for_writing(uid_validity)
        except AccessRefused as error:
            if error.code != "imap_read_only":
                raise
            with coded():
                self._select(uid_validity, readonly=True)
        batches = list(_batches([(int(uid), size) for uid, size in sizes.items()]))
        client = self._client
        unread = True  # an answer is on its way
        try:
            with coded():
                asked = ask(client, batches[0])
            for batch, following in zip(batches, [*batches[1:], None], strict=True):
                trouble = None
                try:
                    with coded():
                        answers = answered(client, asked)
                except MailboxUnavailable:
                    # What came whole before the cut is kept: on a line that always breaks, nothing else would ever get through.
                    yield from whole_mails(client, batch)
                    raise
                unread = following is not None
                try:
                    with coded():
                        asked = ask(client, following) if following is not None else b""
                except AtlasError as error:
                    trouble = error
                yield from _bodies(batch, answers)
                if trouble is not None:
                    raise trouble
        finally:
            if unread:  # left early: what the connection says next is the answer to something else
                _close(client, polite=False)

    def mark_seen(self, uids: Sequence[str], *, uid_validity: int | None = None) -> None:
        """Set \\Seen by UID. Raises AccessRefused ``imap_read_only`` where the folder can't be written."""
        if not uids:
            return
        self._open_for_writing(uid_validity)
        with coded():
            for batch in _slices([int(uid) for uid in uids], METADATA_BATCH):
                self._client.add_flags(batch, [SEEN], silent=True)

    def _open_for_writing(self, uid_validity: int | None) -> None:
        """Select, unless it is: bodies are fetched and flags set in turn, and each selecting is a round trip."""
        if self._client is None or self._writable is None or self._writable != uid_validity:
            with coded():
                self._writable = int(self._select(uid_validity, readonly=False)[b"UIDVALIDITY"])

    def _select(self, uid_validity: int | None, *, readonly: bool) -> dict[bytes, Any]:
        if self._client is None:
            raise MailboxUnavailable("imap_not_connected")
        self._writable = None
        state: dict[bytes, Any] = self._client.select_folder(self._at.folder, readonly=readonly)
        if uid_validity is not None and state[b"UIDVALIDITY"] != uid_validity:
            raise MailboxUnavailable("uid_validity_changed")
        return state

    def _search(self, above_uid: int | None, uid_next: int | None) -> Sequence[int]:
        found: set[int] = set()
        mark = above_uid or 0
        if above_uid is not None:
            for first, last in _windows(mark + 1, uid_next):
                # A range that ends with * holds the last mail even when that lies below the range.
                found.update(uid for uid in self._client.search(["UID", f"{first}:{last}"]) if uid > mark)
        for first, last in _windows(1, mark + 1 if above_uid is not None else uid_next):
            found.update(self._client.search(["UNSEEN", "UID", f"{first}:{last}"]))
        return sorted(found)

    def _message_ids(self, uids: Sequence[int]) -> dict[str, str]:
        found: dict[str, str] = {}
        for batch in _slices(uids, METADATA_BATCH):
            for uid, answer in self._client.fetch(batch, ["BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)]"]).items():
                block = next((value for name, value in answer.items() if name.startswith(b"BODY[")), None)
                if isinstance(block, bytes):
                    message_id = headers.message_id(headers.fields(read(block).raw_items())[0])
                    if message_id:
                        found[str(uid)] = message_id
        return found

    def _describe(self, uids: Sequence[int]) -> Iterator[ListedMail]:
        for batch in _slices(uids, METADATA_BATCH):
            answers = self._client.fetch(batch, ["FLAGS", "INTERNALDATE", "RFC822.SIZE"])
            for uid in batch:
                answer = answers.get(uid, {})
                if b"RFC822.SIZE" not in answer or b"FLAGS" not in answer:
                    continue  # expunged since the search
                # Without a date of the server's own, the time we first saw the mail is the next best order.
                date = answer.get(b"INTERNALDATE") or datetime.now(UTC)
                seen = SEEN in answer[b"FLAGS"]
                yield ListedMail(str(uid), date.astimezone(UTC), int(answer[b"RFC822.SIZE"]), seen)


def _windows(first: int, uid_next: int | None) -> Iterator[tuple[int, int | str]]:
    """Cut the UIDs from ``first`` to below ``uid_next`` into ranges; open at the end where there is no UIDNEXT."""
    if uid_next is None:
        yield first, "*"
        return
    for start in range(first, uid_next, SEARCH_WINDOW):
        yield start, min(start + SEARCH_WINDOW, uid_next) - 1


def _slices(uids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(uids), size):
        yield uids[start : start + size]


def _batches(sized: Sequence[tuple[int, int]]) -> Iterator[list[int]]:
    """Group UIDs so that a batch, which is wholly in memory, has few mails and few bytes."""
    batch: list[int] = []
    total = 0
    for uid, size in sized:
        if batch and (len(batch) >= BATCH_MAILS or total + size > BATCH_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(uid)
        total += size
    if batch:
        yield batch


def _bodies(batch: Sequence[int], answers: Answers) -> Iterator[tuple[str, bytes | None]]:
    for uid in batch:
        answer = answers.get(uid)
        if answer is None or (b"BODY[]" in answer and answer[b"BODY[]"] is None):
            yield str(uid), None  # expunged: Dovecot answers NIL, others leave it out
        elif isinstance(answer.get(b"BODY[]"), bytes):
            yield str(uid), answer[b"BODY[]"]
        # Else the server answered without the text: neither gone nor read, so it is asked again next time.


def _close(client: Any, *, polite: bool) -> None:
    """Log out, or just hang up after an error; what fails here must not hide what came before."""
    try:
        if polite:
            client.logout()
        else:
            client.shutdown()
    except (imaplib.IMAP4.error, OSError, ValueError):
        try:
            client.shutdown()
        except (imaplib.IMAP4.error, OSError, ValueError):
            return
