"""What a human may order: start over, unblock, decide a draft or a recap, correct a decision. Every order is audited with who gave it."""

from __future__ import annotations

from atlas_pipeline.errors import Refused
from atlas_pipeline.model import Intent, Status
from atlas_pipeline.spawn.select import SPAWN_INTENTS
from atlas_pipeline.store import audit, claims, ledger, outbox, spawns, tracking, verdicts, work
from atlas_pipeline.store.database import Connection, Database, Row

_REOPENABLE = tuple(status for status in Status if status not in (Status.RECEIVED, Status.SPAWNING))
# Of a message's recaps, those that each decision is about.
_OPEN = {"confirm": ("uncertain",), "resend": ("uncertain", "refused")}
_STARTABLE = (Status.CLASSIFIED, Status.ESCALATED, Status.ACTIONED, Status.QA_FAILED)


def reprocess(db: Database, key: str, *, actor: str, force: bool) -> None:
    """Put a message back to ``received``; the next intake runs it again. Its work record is superseded, never deleted.

    Raises Refused: ``message_unknown``, ``spawn_is_live``, and ``spawn_has_started`` unless ``force``.
    """
    with db.transaction() as conn:
        state = tracking.require(conn, key)
        if state.status is Status.SPAWNING:
            raise Refused("spawn_is_live", key=key)
        if not force and spawns.of_round(conn, key, state.round):
            raise Refused("spawn_has_started", key=key)
        if state.status is not Status.RECEIVED:
            tracking.move(
                conn,
                key,
                expected=_REOPENABLE,
                to=Status.RECEIVED,
                action="reprocess",
                actor=actor,
                columns={"round": state.round + 1, "attempt": 0, "spawn_requested_at": None},
                was=state.status.value,
                forced=force,
            )
        work.supersede(conn, key)
        ledger.settled(conn, key)
        claims.forget(conn, key)


def failed_keys(db: Database) -> list[str]:
    """Every message that was set aside, oldest first."""
    with db.transaction() as conn:
        return sorted(row.message_key for row in tracking.with_status(conn, [Status.FAILED]))


def unblock(db: Database, key: str, *, actor: str) -> None:
    """Let a blocked message through: the override is stored, so that the same verdict does not block it again."""
    with db.transaction() as conn:
        state = tracking.require(conn, key)
        if state.status is not Status.BLOCKED:
            raise Refused("not_blocked", key=key, status=state.status.value)
        tracking.move(
            conn,
            key,
            expected=[Status.BLOCKED],
            to=Status.RECEIVED,
            action="unblocked",
            actor=actor,
            columns={"scan_override": True},
        )


def request_spawn(db: Database, key: str, *, actor: str) -> int:
    """Ask for a fresh round of the whole action; returns its number. The unfinished sensor starts it.

    Raises Refused: ``message_unknown``, ``spawn_is_live``, ``nothing_to_spawn``.
    """
    with db.transaction() as conn:
        return _request(conn, key, actor)


def _request(conn: Connection, key: str, actor: str) -> int:
    state = tracking.require(conn, key)
    if state.status is Status.SPAWNING:
        raise Refused("spawn_is_live", key=key)
    if state.status not in _STARTABLE or state.intent not in SPAWN_INTENTS:
        raise Refused("nothing_to_spawn", key=key, status=state.status.value)
    # A round that a human was called for is over, whether an agent was started in it or not: its runs are used up.
    fresh = state.status is Status.CLASSIFIED and not spawns.of_round(conn, key, state.round)
    round_ = state.round if fresh else state.round + 1
    if state.status is Status.CLASSIFIED:
        conn.execute("update atlas.inbox set round = %s, attempt = 0 where message_key = %s", (round_, key))
        audit.record(conn, key, "spawn_requested", actor=actor, round=round_)
    else:
        tracking.move(
            conn,
            key,
            expected=_STARTABLE,
            to=Status.CLASSIFIED,
            action="spawn_requested",
            actor=actor,
            columns={"round": round_, "attempt": 0},
            round=round_,
        )
    tracking.request_spawn(conn, key)
    return round_


def decide_draft(db: Database, key: str, verb: str, *, actor: str) -> str:
    """``accept`` or ``cancel`` the message's work record; returns its table. Raises Refused("no_work_record")."""
    with db.transaction() as conn:
        return work.decide(conn, key, verb, actor=actor)


def correct(db: Database, key: str, intent: Intent, *, actor: str) -> Intent | None:
    """Store what a message really asks for; the classifiers learn it. Nothing else changes: ``reprocess`` acts on it.

    Returns what the classifier had concluded. Raises Refused("no_decision") where it has not concluded anything yet.
    """
    with db.transaction() as conn:
        state = tracking.get(conn, key)
        if state is None or state.intent is None:
            raise Refused("no_decision", key=key)
        verdicts.add_correction(conn, key, intent.value, actor=actor)
        audit.record(conn, key, "corrected", actor=actor, was=state.intent.value, intent=intent.value)
    return state.intent


def recaps(db: Database, name: str) -> list[Row]:
    """The outbox's rows of a message key, newest first, or the one with this number. Raises Refused("recap_unknown")."""
    with db.transaction() as conn:
        return _recaps(conn, name)


def decide_recap(db: Database, name: str, verb: str, *, actor: str) -> int:
    """``confirm`` that a mail came, or ``resend`` one that did not; ``name`` is a message key or the mail's number.

    Returns the number. Raises Refused: ``recap_unknown``, ``recap_not_open`` where its state leaves nothing to decide, and
    ``recap_ambiguous`` where a message has several that are open.
    """
    with db.transaction() as conn:
        rows = _recaps(conn, name)
        open_ = [row for row in rows if row["state"] in _OPEN[verb]]
        if len(open_) > 1:
            raise Refused("recap_ambiguous", key=name, numbers=" ".join(str(row["id"]) for row in open_))
        number: int = (open_ or rows)[0]["id"]
        (outbox.confirm if verb == "confirm" else outbox.ask_again)(conn, number, actor=actor)
    return number


def _recaps(conn: Connection, name: str) -> list[Row]:
    # A message key has a dash in it, a number has none.
    is_number = name.isascii() and name.isdigit() and len(name) < 19
    rows = outbox.numbered(conn, int(name)) if is_number else outbox.of_message(conn, name)
    if not rows:
        raise Refused("recap_unknown", recap=name)
    return rows
