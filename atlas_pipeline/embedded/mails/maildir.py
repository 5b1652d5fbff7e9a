"""Delivering the demo's mails into a Maildir, each once. What they say is ``letters``'s."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from atlas_pipeline.embedded.mails.letters import DEMO_MAILS, Scene

# Names have the usual shape, but a fixed number in place of the time: so a second call finds what the first wrote.
_FIRST_NUMBER = 1_764_576_000


def write_demo_mails(maildir: Path, *, authserv_id: str, start: datetime, canary: str) -> list[str]:
    """Deliver what is not there yet; the unique names of what was delivered now, in order of arrival.

    A mail counts as there while a file with its unique name lies in ``new`` or ``cur``, whatever its flags. ``start``
    (aware) is when the first one is written; file times follow it, as a server's INTERNALDATE would. ``canary`` is the
    word that exists in the screenshot alone.
    """
    for name in ("tmp", "new", "cur"):
        (maildir / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    scene = Scene(authserv_id=authserv_id, start=start, canary=canary)
    there = {file.name.partition(":")[0] for folder in ("new", "cur") for file in (maildir / folder).iterdir()}
    written = []
    for number, mail in enumerate(DEMO_MAILS):
        name = f"{_FIRST_NUMBER + number}.{mail.name}.mx.atelier-rivage.example"
        if name not in there:
            _deliver(maildir, name, mail.raw(scene), scene.arrival(mail))
            written.append(name)
    return written


def _deliver(maildir: Path, name: str, content: bytes, arrival: datetime) -> None:
    """Through ``tmp``, so that a reader never sees half a mail."""
    unfinished = maildir / "tmp" / name
    unfinished.write_bytes(content)
    os.utime(unfinished, (arrival.timestamp(), arrival.timestamp()))
    unfinished.replace(maildir / "new" / name)
