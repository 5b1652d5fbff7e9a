"""Which work record an intent becomes, and its title. The rows themselves are the store's."""

from __future__ import annotations

from atlas_pipeline.classify.subject import without_prefixes
from atlas_pipeline.model import Forward, Intent

MAX_TITLE = 200
_TABLES = {
    Intent.RUN: "runs",
    Intent.CHANTIER: "chantiers",
    Intent.QUESTION: "questions",
    Intent.NEGOCIATION: "negociations",
    Intent.CONSEIL: "conseils",
}
_NO_SUBJECT = {"fr": "(sans objet)", "en": "(no subject)"}


def table_for(intent: Intent) -> str | None:
    """The table of the work record (its kind is the intent's own name); None for noise, which becomes nothing."""
    return _TABLES.get(intent)


def title_for(subject: str | None, forward: Forward, *, language: str = "fr") -> str:
    """The original subject without prefixes, on one line, 200 characters at most; never empty."""
    original = forward.subject if forward.found else None
    title = without_prefixes(original) or without_prefixes(subject)
    if len(title) > MAX_TITLE:
        title = title[: MAX_TITLE - 1].rstrip() + "…"
    return title or _NO_SUBJECT.get(language, _NO_SUBJECT["fr"])
