"""What went wrong with an IMAP server, as a code of ours.

imapclient turns everything into ``imaplib.IMAP4.error``; whether waiting helps is read from class and response code.
"""

from __future__ import annotations

import imaplib
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from imapclient.exceptions import LoginError

from atlas_pipeline.errors import AccessRefused, AtlasError, MailboxUnavailable, NotConfigured

# RFC 5530 codes, and what providers write instead: the mailbox is there and busy.
_BUSY = re.compile(
    r"\[(?:UNAVAILABLE|LIMIT|INUSE|SERVERBUG|CONTACTADMIN|THROTTLED)\]|too many|try again"
    r"|not connected|temporar|internal error",
    re.IGNORECASE,
)
# The account is locked for hours, and each further connection prolongs that.
_QUOTA = re.compile(r"\[OVERQUOTA\]|bandwidth limit|command or bandwidth", re.IGNORECASE)
_MISSING = re.compile(
    r"\[(?:NONEXISTENT|TRYCREATE)\]|doesn't exist|does not exist|unknown mailbox|not found", re.IGNORECASE
)


@contextmanager
def coded() -> Iterator[None]:
    """Turn what imapclient and the socket raise into coded errors; their texts may quote a mail and stop here."""
    try:
        yield
    except AtlasError:
        raise
    except (imaplib.IMAP4.error, OSError) as error:
        raise _coded(error) from None
    except (ValueError, TypeError, LookupError, AttributeError, AssertionError):
        # imapclient's parser, on an answer that is no IMAP.
        raise MailboxUnavailable("imap_answer_unreadable") from None


def _coded(error: Exception) -> AtlasError:
    if isinstance(error, imaplib.IMAP4.readonly):  # a subclass of abort, and no cut connection
        return AccessRefused("imap_read_only")
    if isinstance(error, LoginError):
        return _login(error)
    if isinstance(error, imaplib.IMAP4.abort):
        return MailboxUnavailable("imap_connection_lost")
    return _refused(str(error)) if isinstance(error, imaplib.IMAP4.error) else _network(error)


def _login(error: LoginError) -> AtlasError:
    # imapclient wraps a connection that died during login too; the abort is what it was handling.
    if isinstance(error.__context__, imaplib.IMAP4.abort):
        return MailboxUnavailable("imap_connection_lost")
    return _passing(str(error)) or AccessRefused("imap_login_refused")


def _passing(text: str) -> MailboxUnavailable | None:
    if _QUOTA.search(text):
        return MailboxUnavailable("imap_over_quota")
    return MailboxUnavailable("imap_server_busy") if _BUSY.search(text) else None


def _network(error: Exception) -> AtlasError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return AccessRefused("imap_certificate_untrusted")
    if isinstance(error, TimeoutError):
        return MailboxUnavailable("imap_timeout")
    return MailboxUnavailable("imap_tls_failed" if isinstance(error, ssl.SSLError) else "imap_unreachable")


def _refused(text: str) -> AtlasError:
    passing = _passing(text)
    if passing is not None:
        return passing
    if _MISSING.search(text):
        return NotConfigured("imap_folder_missing")
    return MailboxUnavailable("imap_command_refused")
