"""A time limit for work on one mail that nothing else can stop.

A regular expression or a C parser on hostile input answers neither a signal nor an exception, and holds the interpreter's
lock. So the whole process is ended, which a lease survives: the try is counted, the other mails of the range go on in the next
run, and the mail is set aside when it did so twice.
"""

from __future__ import annotations

import faulthandler
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_STDERR = 2
_ONE = threading.Lock()  # the timer is the process's own


@contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """End this process with status 1 after ``seconds``, saying on stderr where it stood (names of our code, no values)."""
    with _ONE:
        faulthandler.dump_traceback_later(seconds, exit=True, file=_STDERR)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
