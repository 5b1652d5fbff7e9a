"""The main recaps, as facts, and their texts kept in ``tests/recap/texts``: ``python -m tests.recap_cases`` writes them anew.

They are read before they are committed: the texts are what the team gets.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from atlas_pipeline.model import Address, Intent, RouteCheck, Status
from atlas_pipeline.recap.facts import Attempt, RecapFacts
from atlas_pipeline.recap.sections import recap_sections, render_text
from atlas_pipeline.recap.words import label
from tests.fixtures_recap import recap_facts

TEXTS = Path(__file__).parent / "recap" / "texts"
A, B, C = "3f0c9a51d2" * 4, "b7719e0c4d" * 4, "0d52aa13ef" * 4
JS = "JavaScript error on /devis: ReferenceError: calculerTotale is not defined (at /static/devis.js:17:17)"
OLD = "GET /contact answered 500 Internal Server Error"
NOISE = "cdn.mesure.example was blocked on /devis: another host"


def _check(route: str, level: str, *errors: str, status: int = 200, took: int = 12) -> RouteCheck:
    return RouteCheck(route, level, ok=not errors, status=status, milliseconds=took, errors=errors)


def cases() -> dict[str, RecapFacts]:
    """By name; each in French, the English ones are the same facts."""
    chantier = recap_facts(
        commits=(A, B),
        commit_url="https://git.atelier-rivage.example/lorme/-/commit/",
        checks=(
            _check("/equipe", "http"), _check("/devis", "http", took=9),
            _check("/equipe", "browser", took=412), _check("/devis", "browser", took=388),
        ),
        compared=True,
        brought=(),
        noted=(NOISE,),
        history=(Attempt(1, commits=(A,), failed=(JS,)), Attempt(2, commits=(B,))),
        seconds=743.2,
        deploy_url="https://preprod.menuiserie-lorme.example",
    )  # fmt: skip
    old = replace(
        chantier,
        code="qa_passed_but_old_faults",
        checks=(*chantier.checks, _check("/contact", "http", OLD, status=500)),
        old_faults=(OLD,),
        attempts=1,
        history=(Attempt(1, commits=(A, B)),),
    )
    escalated = replace(
        chantier,
        status=Status.ESCALATED,
        code="qa_failed_max_attempts",
        commits=(A, B),
        checks=(_check("/devis", "http"), _check("/devis", "browser", JS, took=401)),
        brought=(JS,),
        attempts=3,
        history=(
            Attempt(1, ("agent_timed_out",), (A,), (JS,)),
            Attempt(2, (), (B,), ("The deployment failed: exit status 3", "Deploy output: disk full")),
            Attempt(3, (), (), (JS,)),
        ),
        draft_reply="",
    )
    question = recap_facts(
        code="no_code",
        subject="Où sont les sauvegardes ?",
        requester=Address("Claire Lorme", "claire.lorme@menuiserie-lorme.example"),
        requester_claimed=False,
        forwarder=None,
        intent=Intent.CHANTIER,
        final_intent=Intent.QUESTION,
        reasoning="On demande où sont les sauvegardes.",
        summary="Les sauvegardes sont décrites dans README.md.",
        commits=(),
        checks=(),
        brought=(),
        attempts=1,
        history=(Attempt(1),),
        cost_usd=0.05,
        seconds=31.0,
        deploy_url=None,
        draft_reply="Bonjour Claire,\n\nElles sont faites chaque nuit, chez l'hébergeur.\n\nL'équipe",
    )
    plan = replace(
        question,
        code="plan_only",
        subject="Refaire le site",
        tenant=None,
        requester_claimed=True,
        forwarder=Address("Léa Martin", "lea.martin@atelier-rivage.example"),
        final_intent=None,
        reasoning="Une refonte est demandée, par personne que nous connaissions.",
        summary="1. Inventaire.\n2. Maquette.\n3. Bascule.",
        draft_reply="",
    )
    run = replace(
        question,
        subject="Téléphone",
        intent=Intent.RUN,
        final_intent=None,
        summary="Numéro corrigé.",
        reasoning="Un numéro est à corriger.",
        commits=(A,),
        draft_reply="",
    )
    no_agent = replace(
        question,
        status=Status.ESCALATED,
        code="tries_exhausted",
        final_intent=None,
        summary="",
        history=(Attempt(1, ("did_not_start", "killed_by_signal", "timed_out")),),
        draft_reply="",
        cost_usd=0.0,
    )
    return {
        "chantier": chantier, "old_faults": old, "escalated": escalated, "question": question, "plan": plan, "run": run,
        "no_agent": no_agent, "not_compared": replace(escalated, compared=False, history=escalated.history[:1]),
    }  # fmt: skip


def text(facts: RecapFacts) -> str:
    """The plain text, without pictures."""
    return render_text(recap_sections(facts), label("footer", facts.language))


def texts() -> dict[str, str]:
    """All of them by the names of their files."""
    return {
        f"{name}.{language}.txt": text(replace(facts, language=language))
        for name, facts in cases().items()
        for language in ("fr", "en")
    }


if __name__ == "__main__":
    TEXTS.mkdir(exist_ok=True)
    for file, content in texts().items():
        (TEXTS / file).write_text(content, encoding="utf-8")
