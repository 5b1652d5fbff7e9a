"""What intake does to one stored message: understand, scan, read its pictures, classify. One transaction a step.

The text of pictures lives from ``prepare`` to ``classification`` in one value in memory, and nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass, replace

from atlas_pipeline.classify.decide import classify
from atlas_pipeline.classify.document import document_of
from atlas_pipeline.classify.facts import ClassifyFacts
from atlas_pipeline.classify.records import table_for, title_for
from atlas_pipeline.errors import AtlasError, ScannerUnavailable
from atlas_pipeline.flow import learning, scanning
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.flow.stage import Facts, Outcome, StageDone
from atlas_pipeline.flow.threads import refuse_flood
from atlas_pipeline.flow.understanding import Understood, understand
from atlas_pipeline.mailbox import trust
from atlas_pipeline.model import Decision, Intent, ParsedMail, Part, Status, Tenant, Trust, TrustLevel, Verdict
from atlas_pipeline.ocr.reader import is_readable
from atlas_pipeline.ocr.text import OcrText
from atlas_pipeline.scan.mail import CONTENT_ERROR, MailVerdict, scan_parsed
from atlas_pipeline.store import audit, messages, tenants, tracking, verdicts, work
from atlas_pipeline.store.database import Connection

# Pasted screenshots are larger, logos in signatures smaller.
LOGO_BYTES = 15_000
_TEAM = (TrustLevel.FOUNDER, TrustLevel.TEAM)


@dataclass(frozen=True)
class Ready:
    """A message that only a model's judgement is missing of. Its pictures' text lives here and nowhere else."""

    mail: ParsedMail
    trust: Trust
    text: OcrText


def prepare(parts: Parts, key: str, known: Understood | None = None) -> Generator[StageDone, None, Ready | None]:
    """The stages before classification of one message in ``received``; ``known`` is what was understood of it already.

    Returns what is to be classified, or None where the message ends here. Raises coded errors; the caller settles what they mean.
    """
    found = known or understand(parts, key)
    mail, judged = found.mail, found.trust
    if found.original is not None:
        for stage in ("raw_message", "scan_verdict", "ocr_text", "classification"):
            yield StageDone(stage, key, Outcome.DUPLICATE)
        return None
    yield StageDone(
        "raw_message",
        key,
        Outcome.DONE,
        {"parts": len(mail.parts), "remarks": len(mail.remarks), "trust": judged.level.value},
    )

    refuse_flood(parts, key)
    verdict, by = scan(parts, key, mail)
    blocked = verdict is not None and verdict.overall is not Verdict.CLEAN
    facts: Facts = {
        "verdict": verdict.overall.value if verdict else "overridden",
        "parts": len(mail.parts),
        "engine": by,
    }
    yield StageDone("scan_verdict", key, Outcome.BLOCKED if blocked else Outcome.DONE, facts)
    if blocked:
        yield StageDone("ocr_text", key, Outcome.BLOCKED)
        yield StageDone("classification", key, Outcome.BLOCKED)
        return None

    text, images = read(parts, key, mail)
    yield StageDone(
        "ocr_text", key, Outcome.DONE if images else Outcome.NOT_NEEDED, {"images": images, "characters": len(text)}
    )
    # Many may wait for their turn: what was attached is not needed any more.
    light = tuple(replace(part, content=b"") for part in mail.parts)
    return Ready(replace(mail, parts=light, texts=()), judged, text)


def classification(parts: Parts, key: str, ready: Ready) -> StageDone:
    """The last stage. Safe to run beside those of other messages. Raises what the provider layer raises."""
    decision = decide(parts, key, ready.mail, ready.trust, ready.text)
    return StageDone(
        "classification",
        key,
        Outcome.DONE,
        {
            "intent": decision.intent.value,
            "confidence": decision.confidence,
            "uncertain": decision.uncertain,
            "guards": len(decision.guards),
        },
    )


def scan(parts: Parts, key: str, mail: ParsedMail) -> tuple[MailVerdict | None, str]:
    """Scan the raw mail and each part; ``blocked`` on anything but clean. Return the verdict and by which engine.

    The verdict is None where an operator overrode it. Raises ScannerUnavailable where the scanner gave none: the message stays
    ``received``.
    """
    with parts.db.transaction() as conn:
        state = tracking.require(conn, key)
        raw = messages.raw(conn, key)
        if state.scan_override or raw is None:
            return None, "none"
        raw_sha256 = hashlib.sha256(raw).hexdigest()
        hashes = {raw_sha256, *(part.sha256 for part in mail.parts)}
        given_up = verdicts.failed_scans(conn, hashes, code_prefix=CONTENT_ERROR, at_least=parts.settings.scan_attempts)
    engine = scanning.engine(parts)
    verdict = scan_parsed(raw, mail, parts.scanner, given_up=given_up)
    with parts.db.transaction() as conn:
        scanning.store(conn, key, mail, raw_sha256, verdict, engine)
        if verdict.overall in (Verdict.INFECTED, Verdict.UNSCANNABLE):
            code = f"attachment_{verdict.overall.value}"
            tracking.move(
                conn,
                key,
                expected=[Status.RECEIVED],
                to=Status.BLOCKED,
                action="blocked_unsafe",
                actor="scan",
                reason_code=code,
            )
            audit.alert(conn, f"blocked:{key}", code, key=key)
    if verdict.overall is Verdict.ERROR:
        results = (verdict.raw, *(result for _index, result in verdict.parts))
        raise ScannerUnavailable(
            next((result.code for result in results if result.verdict is Verdict.ERROR and result.code), "scan_error")
        )
    return verdict, engine


def read(parts: Parts, key: str, mail: ParsedMail) -> tuple[OcrText, int]:
    """The text of the mail's pictures, in memory only. A missing engine is audited; the mail goes on without."""
    if not any(is_readable(part) for part in mail.parts):
        return OcrText(""), 0
    try:
        result = parts.read_pictures(mail)
    except AtlasError as error:
        with parts.db.transaction() as conn:
            audit.record(conn, key, "ocr_failed", actor="ocr", code=error.code)
            audit.alert(conn, f"ocr:{error.code}", error.code)
        return OcrText(""), 0
    with parts.db.transaction() as conn:
        audit.record(conn, key, "ocr_extracted", actor="ocr", characters=result.characters, images=result.images)
        if result.remarks:
            audit.record(conn, key, "ocr_skipped", actor="ocr", remarks=list(result.remarks))
    return result.text, result.images


def decide(parts: Parts, key: str, mail: ParsedMail, judged: Trust, text: OcrText) -> Decision:
    """Classify, then write decision, status and work record in one transaction. Raises what the provider layer raises."""
    with parts.db.transaction() as conn:
        everyone = tenants.all_tenants(conn)
    facts, how = facts_among(mail, judged, text, everyone)
    decision = conclude(parts, facts, key)
    with parts.db.transaction() as conn:
        _store_decision(conn, key, decision, mail, how)
    return decision


def facts_among(mail: ParsedMail, judged: Trust, text: OcrText, everyone: list[Tenant]) -> tuple[ClassifyFacts, str]:
    """What the classifier is told of a mail where these are the clients, and how its own client was found."""
    requester, _claimed = trust.requester(mail)
    of_requester, _method = trust.match_tenant(requester, everyone)
    tenant, how = resolve_tenant(mail, judged, everyone)
    facts = classify_facts(
        mail, judged, text, tenant=tenant.slug if tenant else None, own=of_requester.slug if of_requester else None
    )
    return facts, how


def conclude(parts: Parts, facts: ClassifyFacts, key: str | None) -> Decision:
    """Classify under the settings; ``key`` is whose budget pays. Raises what the provider layer raises."""
    settings = parts.settings
    examples = learning.lessons(parts.corrections, parts.local, document_of(facts), but=key) if settings.learn else ()
    return classify(
        facts,
        parts.router,
        floor=settings.confidence_floor,
        uncertainty=settings.uncertainty_threshold,
        language=settings.language,
        message_key=key,
        lessons=examples,
    )


def classify_facts(
    mail: ParsedMail, judged: Trust, text: OcrText, *, tenant: str | None, own: str | None
) -> ClassifyFacts:
    """What the classifier is told of a mail; ``own`` is the active tenant that the requester belongs to."""
    return ClassifyFacts(
        subject=mail.subject,
        body_text=mail.body_text,
        forward=mail.forward,
        trust=judged,
        sender_address=mail.sender.address,
        automatic=mail.automatic,
        has_attachments=any(is_attachment(part) for part in mail.parts),
        attachment_names=tuple(part.name or "" for part in mail.parts),
        ocr_text=text.reveal(),
        tenant=tenant,
        tenant_of_requester=own,
    )


def is_attachment(part: Part) -> bool:
    """Whether somebody attached this: a small picture shown inside the text is a signature's logo."""
    return not (part.inline and part.is_image and part.size < LOGO_BYTES)


def resolve_tenant(mail: ParsedMail, judged: Trust, everyone: list[Tenant]) -> tuple[Tenant | None, str]:
    """The tenant a mail is about: the requester's domain, then the registered contact, then, for the team alone, a name.

    A team member may act for any tenant and often writes in its own name: exactly one tenant whose domain or contact the
    text mentions is then taken. Anyone else mentioning a tenant proves nothing.
    """
    requester, _claimed = trust.requester(mail)
    tenant, how = trust.match_tenant(requester, everyone)
    if tenant is not None or judged.level not in _TEAM:
        return tenant, how
    text = f"{mail.subject or ''}\n{mail.body_text}".lower()
    named = [
        candidate
        for candidate in everyone
        if candidate.active and any(name in text for name in (*candidate.domains, *candidate.contacts))
    ]
    return (named[0], "mentioned") if len(named) == 1 else (None, "none")


def _store_decision(conn: Connection, key: str, decision: Decision, mail: ParsedMail, how: str) -> None:
    verdicts.add_decision(conn, key, decision)
    for guard in decision.guards:
        audit.record(conn, key, guard, actor="classify", intent=decision.intent.value, confidence=decision.confidence)
    tracking.move(
        conn,
        key,
        expected=[Status.RECEIVED],
        to=Status.CLASSIFIED,
        action="classified",
        actor="classify",
        columns={
            "intent": decision.intent.value,
            "classifier_intent": decision.classifier_intent.value,
            "confidence": decision.confidence,
            "model": decision.model,
            "reasoning": decision.reasoning,
            "tenant": decision.tenant,
            "tenant_method": how,
        },
        intent=decision.intent.value,
        confidence=decision.confidence,
        model=decision.model,
        tenant_method=how,
    )
    conn.execute("update atlas.inbox set classified_at = now() where message_key = %s", (key,))
    table = table_for(decision.intent)
    if table is not None:
        work.create(conn, key, table=table, title=title_for(mail.subject, mail.forward), tenant=decision.tenant)
    if decision.intent in (Intent.NOISE, Intent.CONSEIL):
        tracking.move(
            conn,
            key,
            expected=[Status.CLASSIFIED],
            to=Status.CLOSED,
            action="closed",
            actor="classify",
            intent=decision.intent.value,
        )
