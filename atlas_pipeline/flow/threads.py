"""Which conversation a mail belongs to, and when one goes too fast to be people's.

Loops are broken where they are recognised: our own ids, automatic headers, empty return paths. This is for the machine that
answers recaps and shows none of these.
"""

from __future__ import annotations

import re

from atlas_pipeline.classify.subject import OWN_TAG
from atlas_pipeline.errors import PoisonMessage
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.model import ParsedMail
from atlas_pipeline.store import messages, tracking

FLOOD = "thread_too_fast"

_ID = re.compile(r"<[^<>\s]{1,900}>")


def thread_of(mail: ParsedMail, *, own_domain: str | None) -> str | None:
    """Return what the mails of one conversation have in common, or None for one that answers nothing.

    The first id of References, else In-Reply-To. What answers a mail of ours, by its id or by its subject alone, is counted by
    its sender: each of our mails has an id of its own.
    """
    to_us = f"to us: {(mail.sender.address or '').lower()}"[:998]
    for name in ("references", "in-reply-to"):
        root = _ID.search(" ".join(mail.headers.get(name, [])))
        if root is not None:
            return (
                to_us if own_domain is not None and root.group().lower().endswith(f"@{own_domain}>") else root.group()
            )
    return to_us if OWN_TAG in (mail.subject or "") else None


def refuse_flood(parts: Parts, key: str) -> None:
    """Raise PoisonMessage("thread_too_fast") where a conversation brought too many mails within an hour.

    A message that an operator ordered to be done again is let through.
    """
    with parts.db.transaction() as conn:
        before = messages.earlier_in_thread(conn, key, hours=1)
        if before < parts.settings.thread_mails_per_hour or tracking.require(conn, key).round > 1:
            return
    raise PoisonMessage(FLOOD, mails=before)
