"""The exception tree. Every error of Atlas carries a code; none carries content of a mail.

    AtlasError
    ├── TransientError      the same call may go through later: retried inside its stage, then left for the next cycle
    │   ├── MailboxUnavailable, ScannerUnavailable, ProviderUnavailable, DatabaseUnavailable
    │   └── SendDeferred    the mail server said 4xx, or could not be reached before DATA
    └── PermanentError      trying again changes nothing: a human or a changed setting must
        ├── NotConfigured   a part (agent, mailbox, mail exit) that is not set up: messages wait
        ├── AccessRefused   wrong password, wrong key
        ├── InvalidAnswer   a model answered, and no answer could be used
        ├── Refused         a rule of the house said no (recipient, status, zone)
        └── PoisonMessage   a mail that can't be processed; its bytes are kept

Messages are codes (snake_case) and numbers. What caught a library's exception raises one of these ``from None``, since a
cause's text may quote the input.
"""

from __future__ import annotations


class AtlasError(Exception):
    """Base of all. ``code`` is stable and machine readable; ``detail`` holds numbers, enums and settings' names only."""

    def __init__(self, code: str, **detail: str | float | bool | None) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        facts = ", ".join(f"{name}={value}" for name, value in self.detail.items())
        return f"{self.code} ({facts})" if facts else self.code


class TransientError(AtlasError):
    """The same call may go through later."""


class MailboxUnavailable(TransientError):
    """The mailbox could not be listed or read."""


class ScannerUnavailable(TransientError):
    """clamd gave no verdict."""


class ProviderUnavailable(TransientError):
    """An AI provider gave no answer (network, 429, 5xx)."""


class DatabaseUnavailable(TransientError):
    """PostgreSQL could not be reached."""


class SendDeferred(TransientError):
    """The mail server asked to come back later."""


class PermanentError(AtlasError):
    """Trying again changes nothing."""


class NotConfigured(PermanentError):
    """A part is not set up."""


class AccessRefused(PermanentError):
    """Credentials were refused."""


class InvalidAnswer(PermanentError):
    """A model's answer could not be used."""


class Refused(PermanentError):
    """A rule said no."""


class PoisonMessage(PermanentError):
    """A mail that can't be processed."""


def place_of(error: BaseException) -> str:
    """Where in Atlas's own code an exception was last seen, as ``module.py:line``: all of a traceback that may be shown."""
    place = "unknown"
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "atlas_pipeline" in file:
            place = f"{file.rsplit('atlas_pipeline', 1)[1].lstrip('/')}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
