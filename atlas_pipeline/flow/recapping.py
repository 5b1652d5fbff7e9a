"""The other door: the last decision, written together with the recap it queues; then the outbox."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from email.message import EmailMessage
from email.utils import parseaddr
from pathlib import Path

from atlas_pipeline.errors import AccessRefused, AtlasError, NotConfigured, PermanentError, SendDeferred
from atlas_pipeline.flow.evidence import Evidence, commits_before, gather
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import Outcome, StageDone
from atlas_pipeline.model import Address, QaResult, Status
from atlas_pipeline.recap.compose import compose, compose_alert
from atlas_pipeline.recap.facts import Attempt, Picture, RecapFacts, facts_from_json, facts_to_json
from atlas_pipeline.recap.self_test import prove_exit
from atlas_pipeline.recap.send import Uncertain, send
from atlas_pipeline.release.address import without_login
from atlas_pipeline.release.compare import old_sentences
from atlas_pipeline.release.decide import feedback
from atlas_pipeline.release.wording import notes_of, problems_of
from atlas_pipeline.spawn import worktree
from atlas_pipeline.store import audit, messages, outbox, releases, spawns, tenants, tracking, verdicts
from atlas_pipeline.store.database import Connection
from atlas_pipeline.store.locks import message_lock

STAGE = "recap"
RETRY_SECONDS, LONGEST_RETRY_SECONDS, GIVE_UP_SECONDS = 60, 3600, 86_400


def recap(parts: Parts, key: str, attempt: int) -> StageDone:
    """Write the final status and queue the recap in one transaction, then try to send what is due."""
    with parts.db.transaction() as conn:
        state = tracking.get(conn, key)
    if state is None or state.status is not Status.SPAWNING or state.attempt != attempt:
        return StageDone(STAGE, key, Outcome.UNCHANGED, {"sent": deliver_due(parts)})
    with message_lock(parts.database_url, state.seq) as taken:
        if not taken:
            return StageDone(STAGE, key, Outcome.REFUSED, {"code": "lock_held"})
        code = _conclude(parts, key, attempt)
    if code is None:
        return StageDone(STAGE, key, Outcome.UNCHANGED)
    return StageDone(STAGE, key, Outcome.DONE, {"code": code, "sent": deliver_due(parts)})


def _conclude(parts: Parts, key: str, attempt: int) -> str | None:
    with parts.db.transaction() as conn:
        evidence = gather(conn, tracking.require(conn, key), attempt)
        if evidence is None or evidence.state.status is not Status.SPAWNING:
            return None
        decision = evidence.decide(parts.settings.max_attempts)
        if decision.status not in (Status.ACTIONED, Status.ESCALATED):
            return None
        tracking.move(
            conn,
            key,
            expected=[Status.SPAWNING],
            to=decision.status,
            action=decision.status.value,
            actor="recap",
            reason_code=decision.code,
            columns={"final_intent": evidence.intent.value},
            attempt=attempt,
        )
        contract = evidence.spawn.contract
        if contract is not None and contract.draft_reply:
            verdicts.add_draft(conn, key, author=evidence.spawn.agent, body=contract.draft_reply)
        queue_recap(parts, conn, key, decision.code)
        if decision.status is Status.ESCALATED:
            audit.alert(conn, f"escalated:{key}", decision.code, key=key)
    _take_away(parts, evidence)
    return decision.code


def _take_away(parts: Parts, evidence: Evidence) -> None:
    """The work tree goes, the branch stays. A tree that can't be removed is no reason to hold the recap."""
    tenant, spawn = evidence.tenant, evidence.spawn
    if not (tenant and tenant.repository and spawn.branch and spawn.base_commit):
        return
    key = evidence.state.message_key
    tree = worktree.Worktree(
        repository=Path(tenant.repository),
        path=parts.settings.home_dir / "worktrees" / key,
        branch=spawn.branch,
        base_commit=spawn.base_commit,
    )
    try:
        worktree.remove(tree)
    except AtlasError as error:
        with parts.db.transaction() as conn:
            audit.record(conn, key, "worktree_left", actor="recap", code=error.code)


def queue_recap(parts: Parts, conn: Connection, key: str, code: str) -> None:
    """Put the recap of the message as it stands into the outbox, in the caller's transaction."""
    state = tracking.require(conn, key)
    facts = recap_facts(conn, state, code, parts.settings.language)
    outbox.queue(
        conn,
        key,
        round_=state.round,
        attempt=state.attempt,
        kind="recap",
        message_id=_message_id(parts, f"recap.{key}.{state.round}.{state.attempt}"),
        facts=facts_to_json(facts),
    )


def queue_alert(parts: Parts, conn: Connection, kind: str, code: str, facts: Mapping[str, audit.Fact]) -> None:
    """Put an alarm for the team (``alert``), or its end (``all_clear``), into the outbox, in the caller's transaction."""
    outbox.queue_alert(
        conn,
        kind=kind,
        message_id=_message_id(parts, f"{kind}.{secrets.token_hex(8)}"),
        facts={"code": code, "detail": dict(facts)},
    )


def _message_id(parts: Parts, name: str) -> str:
    address = parseaddr(parts.settings.mail_from or "")[1]
    domain = address.rsplit("@", 1)[1].lower() if "@" in address else "unconfigured.invalid"
    return f"<{name}@atlas.{domain}>"


def recap_facts(conn: Connection, state: tracking.Tracking, code: str, language: str) -> RecapFacts:
    """Everything the team is told of this round, read from the tables."""
    key = state.message_key
    message = messages.load(conn, key) or {}
    starts = spawns.of_round(conn, key, state.round)
    last = next((spawn for spawn in reversed(starts) if spawn.contract), None)
    contract = last.contract if last else None
    report = releases.qa(conn, key, state.round, state.attempt)
    before = releases.before(conn, key)
    old = old_sentences(before, report) if report else []
    tenant = tenants.get(conn, state.tenant) if state.tenant else None
    cost, seconds = spawns.totals(conn, key, state.round)
    return RecapFacts(
        message_key=key,
        language=language,
        status=state.status,
        code=code,
        subject=message.get("subject"),
        requester=Address(message.get("requester_name"), message.get("requester_address")),
        requester_claimed=bool(message.get("requester_claimed")) or message.get("trust_level") == "other",
        forwarder=Address(message.get("from_name"), message.get("from_address"))
        if message.get("requester_claimed")
        else None,
        tenant=tenant.name if tenant else None,
        intent=state.intent,
        final_intent=state.final_intent,
        confidence=state.confidence,
        reasoning=state.reasoning or "",
        summary="\n\n".join(dict.fromkeys(one.contract.summary for one in starts if one.contract)),
        # Of every attempt: the last one mends what the one before left, and both are on the branch.
        commits=tuple(dict.fromkeys(commit for one in starts for commit in one.commits)),
        commit_url=tenant.commit_url if tenant else None,
        checks=report.checks if report else (),
        compared=before is not None,
        brought=tuple(sentence for sentence in problems_of(report) if sentence not in old),
        old_faults=tuple(old),
        noted=tuple(notes_of(report)),
        pictures=tuple(_pictures(before, report)),
        history=tuple(_attempt(conn, state, number, starts, before) for number in range(1, state.attempt + 1)),
        attempts=state.attempt,
        cost_usd=cost,
        seconds=seconds,
        draft_reply=contract.draft_reply if contract else "",
        deploy_url=without_login(tenant.preprod_url) if tenant and tenant.preprod_url and report else None,
    )


def _attempt(
    conn: Connection, state: tracking.Tracking, number: int, starts: Sequence[spawns.Spawn], before: QaResult | None
) -> Attempt:
    """What became of one attempt of this round."""
    key = state.message_key
    own, known = [spawn for spawn in starts if spawn.attempt == number], commits_before(starts, number)
    deployed = releases.deployment(conn, key, state.round, number)
    report = releases.qa(conn, key, state.round, number)
    http, browser = feedback(report, deployed)
    old = set(old_sentences(before, report)) if report else set()
    failed = [sentence for sentence in (*http, *browser) if sentence not in old]
    if not failed and (number < state.attempt or state.status is not Status.ACTIONED):
        failed = [*http, *browser]  # what was there before has failed it, on a page that the agent named
    return Attempt(
        number,
        starts_failed=tuple(spawn.code or spawn.status for spawn in own if spawn.status != "ok"),
        commits=tuple(dict.fromkeys(commit for spawn in own for commit in spawn.commits if commit not in known)),
        failed=tuple(failed),
    )


def _pictures(before: QaResult | None, report: QaResult | None) -> Iterator[Picture]:
    """Of each page, failed ones first: at a desk before and after, then on a phone."""
    looked = {check.route: check for check in before.checks if check.screenshot} if before else {}
    checks = sorted((check for check in report.checks if check.screenshot), key=lambda one: one.ok) if report else []
    for check in checks:
        for width in ("desk", "phone"):
            for when, one in (("before", looked.get(check.route)), ("after", check)):
                path = (one.screenshot if width == "desk" else one.phone_screenshot) if one else None
                if path:
                    yield Picture(check.route, when, width, path)


def deliver_due(parts: Parts) -> int:
    """Send every recap that is due; return how many left. Each is claimed first, so that two senders never send one."""
    with parts.db.transaction() as conn:
        outbox.give_up_stale(conn)
    count = 0
    while True:
        with parts.db.transaction() as conn:
            row = outbox.claim(conn)
        if row is None:
            return count
        count += _deliver(parts, row)


def _deliver(parts: Parts, row: outbox.Queued) -> bool:
    settings = parts.settings
    try:
        _require_recipients(parts)
        delivery = send(
            _composed(parts, row),
            parts.mail_exit(),
            team_domains=settings.team_domains,
            team_recipients=settings.team_recipients,
        )
    except Uncertain as error:
        _settle(parts, row, "uncertain", error.code)
    except (SendDeferred, NotConfigured, AccessRefused) as error:
        # Missing settings and wrong passwords are mended by a human; the mail waits like one that a server put off.
        _defer(parts, row, error)
    except PermanentError as error:
        _settle(parts, row, "refused", error.code)
    else:
        with parts.db.transaction() as conn:
            return outbox.sent(conn, row, delivery.accepted, delivery.refused)
    return False


def _composed(parts: Parts, row: outbox.Queued) -> EmailMessage:
    settings = parts.settings
    if row.message_key is None:
        return compose_alert(
            code=str(row.facts["code"]),
            detail=row.facts["detail"],
            language=settings.language,
            mail_from=settings.mail_from or "",
            recipients=settings.team_recipients,
            message_id=row.message_id,
        )
    with parts.db.transaction() as conn:
        message = messages.load(conn, row.message_key) or {}
    return compose(
        facts_from_json(row.facts),
        mail_from=settings.mail_from or "",
        recipients=settings.team_recipients,
        message_id=row.message_id,
        in_reply_to=message.get("message_id"),
    )


def prove_guard(parts: Parts) -> int:
    """Try the exit's guard with the settings as they are; how many hostile mails it refused. Raises as ``prove_exit``."""
    settings = parts.settings
    return prove_exit(team_domains=settings.team_domains, team_recipients=settings.team_recipients)


def _require_recipients(parts: Parts) -> None:
    """Where nobody of the team is named yet the recap waits; the guard, which knows no waiting, would refuse it for good."""
    if not (parts.settings.team_recipients and parts.settings.team_domains):
        raise NotConfigured("team_recipients_not_configured")


def _settle(parts: Parts, row: outbox.Queued, state: str, code: str) -> None:
    with parts.db.transaction() as conn:
        outbox.give_up(conn, row, state, code)


def _defer(parts: Parts, row: outbox.Queued, error: AtlasError) -> None:
    if isinstance(error, SendDeferred) and row.age_seconds > GIVE_UP_SECONDS:
        _settle(parts, row, "refused", error.code)
        return
    seconds = min(RETRY_SECONDS * 2 ** min(row.tries - 1, 10), LONGEST_RETRY_SECONDS)
    with parts.db.transaction() as conn:
        outbox.defer(conn, row, error.code, seconds=seconds)
        if not isinstance(error, SendDeferred):
            audit.alert(conn, f"outbox:{error.code}", error.code)
