"""From facts to a decision, in one written order:

    1. a summary of ours, forwarded by the founder   → noise, no call       atlas_summary_short_circuit
    2. a mail written by a machine                   → noise, no call       automatic_mail
    3. the model is asked; an unusable answer is asked for once more, then of the next provider, then InvalidAnswer
    4. confidence below the floor                    → noise                confidence_floor
    5. noise, from the founder, with attachments     → question             noise_override_founder_attachment
    6. negociation or conseil, from a known client   → run for that client  existing_client_guard (proven senders alone)
    7. confidence below the uncertainty threshold    → intent stays         classification_uncertain

The names at the right are audit actions; the store writes them. "Antivirus first" is decided before this is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from atlas_pipeline.classify.answer import SCHEMA, Answer, parse_answer
from atlas_pipeline.classify.facts import ClassifyFacts
from atlas_pipeline.classify.prompt import CURRENT, PROMPT_VERSION, Lesson, Wording, build_prompt, new_marker
from atlas_pipeline.classify.redact import redact_ocr
from atlas_pipeline.classify.subject import is_forwarded_summary
from atlas_pipeline.model import Completion, CompletionRequest, Decision, Intent, TrustLevel

TASK = "classification"
_MAX_TOKENS = 500
_RULES = {
    "atlas_summary_short_circuit": {
        "fr": "Résumé d'Atlas retransféré par le fondateur : rien à faire.",
        "en": "A summary of Atlas, forwarded again by the founder: nothing to do.",
    },
    "automatic_mail": {
        "fr": "Message écrit par une machine ({reason}) : rien à faire.",
        "en": "Written by a machine ({reason}): nothing to do.",
    },
}


T = TypeVar("T")


class Completer(Protocol):
    """What is needed of ``ai.router.Router``."""

    def judged(self, request: CompletionRequest, read: Callable[[Completion], T]) -> tuple[T, Completion]:
        """The first answer that can be read, as read and as it came."""
        ...


def classify(
    facts: ClassifyFacts,
    router: Completer,
    *,
    floor: float,
    uncertainty: float,
    language: str,
    marker: Callable[[], str] = new_marker,
    message_key: str | None = None,
    lessons: Sequence[Lesson] = (),
    words: Wording = CURRENT,
) -> Decision:
    """Decide what the mail asks for.

    Raises ProviderUnavailable, AccessRefused or NotConfigured (the mail waits), or InvalidAnswer after two unusable
    answers of each provider. ``message_key`` names whose budget pays; ``lessons`` are mails that a person judged.
    """
    founder = facts.trust.level is TrustLevel.FOUNDER
    if founder and is_forwarded_summary(facts.subject):
        return _by_rule("atlas_summary_short_circuit", "rule/short_circuit", facts, language)
    if facts.automatic is not None:
        return _by_rule("automatic_mail", "rule/automatic", facts, language)
    system, prompt, document = build_prompt(facts, marker(), language=language, lessons=lessons, words=words)
    request = CompletionRequest(
        TASK, system, prompt, document, schema=SCHEMA, max_tokens=_MAX_TOKENS, message_key=message_key
    )
    answer, completion = router.judged(request, lambda given: parse_answer(given.content))
    decision = apply_guards(answer, completion.model, facts, floor=floor, uncertainty=uncertainty)
    return replace(decision, prompt_version=words.version)


def _by_rule(guard: str, model: str, facts: ClassifyFacts, language: str) -> Decision:
    sentence = _RULES[guard]["en" if language == "en" else "fr"].format(reason=facts.automatic)
    noise = Intent.NOISE
    return Decision(
        noise, noise, 1.0, model, sentence, (guard,), uncertain=False, prompt_version="none", tenant=facts.tenant
    )


def apply_guards(answer: Answer, model: str, facts: ClassifyFacts, *, floor: float, uncertainty: float) -> Decision:
    """Steps 4 to 7 on a usable answer. Pure."""
    intent, tenant, guards = answer.intent, facts.tenant, list[str]()
    if answer.confidence < floor:
        intent = Intent.NOISE
        guards.append("confidence_floor")
    if intent is Intent.NOISE and facts.trust.level is TrustLevel.FOUNDER and facts.has_attachments:
        intent = Intent.QUESTION
        guards.append("noise_override_founder_attachment")
    if (
        intent in {Intent.NEGOCIATION, Intent.CONSEIL}
        and facts.trust.authenticated
        and facts.tenant_of_requester is not None
    ):
        intent, tenant = Intent.RUN, facts.tenant_of_requester
        guards.append("existing_client_guard")
    uncertain = answer.confidence < uncertainty
    if uncertain:
        guards.append("classification_uncertain")
    return Decision(
        intent=intent,
        classifier_intent=answer.intent,
        confidence=answer.confidence,
        model=model,
        reasoning=redact_ocr(answer.reasoning, facts.ocr_text, f"{facts.subject or ''}\n{facts.body_text}"),
        guards=tuple(guards),
        uncertain=uncertain,
        prompt_version=PROMPT_VERSION,
        tenant=tenant,
    )
