"""The facts of a recap as plain values, and their way through jsonb. No wording, no mail.

A recap is composed when it is sent, not when it is queued, so its facts may have to lie in jsonb in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from pydantic import TypeAdapter, ValidationError

from atlas_pipeline.errors import InvalidAnswer
from atlas_pipeline.model import Address, Intent, RouteCheck, Status


@dataclass(frozen=True)
class Picture:
    """A PNG file: the page ``route``, looked at ``when`` (``before`` or ``after``) at the width of a ``desk`` or ``phone``."""

    route: str
    when: str
    width: str
    path: str = field(repr=False)


@dataclass(frozen=True)
class Attempt:
    """One attempt: codes of its agents' starts that failed, what was committed, and the sentences that failed it."""

    number: int
    starts_failed: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()
    failed: tuple[str, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class RecapFacts:
    """What the team is told.

    ``seconds`` is the agent's working time, ``cost_usd`` is in dollars. ``requester_claimed`` is True where the requester is
    read from the text of a forward and nothing proves it. ``intent`` is the classifier's, ``final_intent`` what the agent or
    an operator made of it. ``commit_url`` is where a commit can be read, its name appended.

    Of the last checks: ``brought`` are the sentences of faults that the change brought, ``old_faults`` of those that were
    there before it, ``noted`` of what fails nothing. ``compared`` is False where nobody had looked before the change, so
    that all faults stand in ``brought``. ``pictures`` are in the order of their worth.
    """

    message_key: str
    language: str
    status: Status
    code: str | None = None
    subject: str | None = field(default=None, repr=False)
    requester: Address = field(default=Address(), repr=False)
    requester_claimed: bool = True
    forwarder: Address | None = field(default=None, repr=False)
    tenant: str | None = None
    intent: Intent | None = None
    final_intent: Intent | None = None
    confidence: float | None = None
    reasoning: str = field(default="", repr=False)
    summary: str = field(default="", repr=False)
    commits: tuple[str, ...] = ()
    commit_url: str | None = None
    checks: tuple[RouteCheck, ...] = field(default=(), repr=False)
    compared: bool = False
    brought: tuple[str, ...] = field(default=(), repr=False)
    old_faults: tuple[str, ...] = field(default=(), repr=False)
    noted: tuple[str, ...] = field(default=(), repr=False)
    pictures: tuple[Picture, ...] = ()
    history: tuple[Attempt, ...] = ()
    attempts: int = 0
    cost_usd: float | None = None
    seconds: float | None = None
    draft_reply: str = field(default="", repr=False)
    deploy_url: str | None = None


_ADAPTER = TypeAdapter(RecapFacts)


def facts_to_json(facts: RecapFacts) -> dict[str, object]:
    """The facts as values for a jsonb column; text still has to pass the store's cleaning."""
    return asdict(facts)


def facts_from_json(value: Mapping[str, object]) -> RecapFacts:
    """Read the facts back. Raises InvalidAnswer ``recap_facts_invalid`` where a field is missing or wrong."""
    try:
        return _ADAPTER.validate_python(dict(value))
    except ValidationError as error:
        raise InvalidAnswer("recap_facts_invalid", problems=error.error_count()) from None
