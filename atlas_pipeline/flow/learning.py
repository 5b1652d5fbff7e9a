"""What operators corrected, as the classifiers learn from it: the mail's own text, parsed again from the bytes that are kept.

The text of pictures is no part of it: it was never kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np

from atlas_pipeline.ai.intent_model import Corrected, gist
from atlas_pipeline.ai.local import EMBEDDER, Local
from atlas_pipeline.classify.document import document_of
from atlas_pipeline.classify.facts import ClassifyFacts
from atlas_pipeline.classify.prompt import MAX_LESSONS, Lesson
from atlas_pipeline.errors import place_of
from atlas_pipeline.mailbox.parse import parse
from atlas_pipeline.model import Intent, Trust, TrustLevel
from atlas_pipeline.store import verdicts
from atlas_pipeline.store.database import Connection

log = logging.getLogger(__name__)

# The newest so many: each costs its parsing at the first judgement of a process, and its embedding once.
MAX_CORRECTIONS = 200

Transaction = Callable[[], AbstractContextManager[Connection]]


def corrections(transaction: Transaction, local: Local) -> list[Corrected]:
    """The newest correction of each message, the newest first. A mail that can't be parsed any more is left out, with a log line."""
    with transaction() as conn:
        rows = verdicts.latest_corrections(conn, MAX_CORRECTIONS)
        known = verdicts.correction_vectors(conn, EMBEDDER, [row["id"] for row in rows])
    found = []
    for row in rows:
        try:
            document = _document(bytes(row["raw"]))
        except Exception as error:  # noqa: BLE001  # the mail was parsed before; it must not stop the others now
            log.warning(
                "correction of %s left out: %s at %s", row["message_key"], type(error).__name__, place_of(error)
            )
            continue
        vector = known.get(row["id"])
        if vector is None:
            vector = local.vector(gist(document))
            with transaction() as conn:
                verdicts.store_correction_vector(conn, row["id"], EMBEDDER, vector)
        found.append(Corrected(_name(row["message_key"]), document, row["intent"], vector))
    return found


def _name(key: str | None) -> str:
    return f"correction of {key}"


def _document(raw: bytes) -> str:
    mail = parse(raw)
    nobody = Trust(TrustLevel.OTHER, "")
    return document_of(ClassifyFacts(mail.subject, mail.body_text, mail.forward, nobody))


def lessons(known: Sequence[Corrected], local: Local, document: str, *, but: str | None = None) -> list[Lesson]:
    """The corrected mails nearest to this one, the nearest first; never message ``but`` itself, which would be its own answer."""
    known = [one for one in known if one.name != _name(but)]
    if not known:
        return []
    vectors = np.array([one.vector for one in known])
    order = np.argsort(vectors @ np.array(local.vector(gist(document))))[::-1]
    return [Lesson(known[place].document, Intent(known[place].intent)) for place in order[:MAX_LESSONS]]
