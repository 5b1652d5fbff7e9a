"""The words of a recap in French and English: labels, statuses, next steps. No layout and no mail here."""

from __future__ import annotations

from atlas_pipeline.model import Intent, Status

LABELS: dict[str, tuple[str, str]] = {
    "result": ("Résultat", "Result"),
    "request": ("Demande", "Request"),
    "key": ("Message", "Message"),
    "status": ("Statut", "Status"),
    "code": ("Code", "Code"),
    "subject": ("Objet", "Subject"),
    "requester": ("Demandeur", "Requester"),
    "claimed": ("déclaré, non prouvé", "claimed, not proven"),
    "forwarder": ("Transmis par", "Forwarded by"),
    "tenant": ("Client", "Client"),
    "intent": ("Intention", "Intent"),
    "corrected": ("corrigée en", "corrected to"),
    "confidence": ("Confiance", "Confidence"),
    "understood": ("Ce qui a été compris", "What was understood"),
    "summary": ("Résumé de l'agent", "The agent's summary"),
    "work": ("Travail", "Work"),
    "attempts": ("Tentatives", "Attempts"),
    "seconds": ("Durée de l'agent", "Agent's time"),
    "cost": ("Coût", "Cost"),
    "commit": ("Commit", "Commit"),
    "site": ("Préproduction", "Pre-production"),
    "checks": ("Contrôles", "Checks"),
    "ok": ("passé", "passed"),
    "ko": ("ÉCHEC", "FAILED"),
    "page": ("Page", "Page"),
    "level": ("Niveau", "Level"),
    "verdict": ("Verdict", "Verdict"),
    "answer": ("Réponse", "Answer"),
    "time": ("Temps", "Time"),
    "brought": ("Fautes apportées par le changement", "Faults that the change brought"),
    "old_faults": ("Fautes déjà là avant le changement", "Faults that were there before the change"),
    "noted": ("Remarques, sans effet sur le verdict (tiers)", "Notes that fail nothing (third parties)"),
    "not_compared": (
        "Le site n'a pas été mesuré avant : les fautes peuvent être plus anciennes que le changement.",
        "The site was not measured before: the faults may be older than the change.",
    ),
    "tried": ("Ce qui a été tenté", "What was tried"),
    "attempt": ("Tentative", "Attempt"),
    "agent_failed": ("l'agent a échoué", "the agent failed"),
    "no_commit": ("aucun commit", "no commit"),
    "nothing_failed": ("rien n'a échoué", "nothing failed"),
    "screenshots": ("Captures d'écran", "Screenshots"),
    "tops": (
        "Le haut des pages, réduit ; les captures entières restent auprès d'Atlas.",
        "The top of the pages, reduced; the whole pictures stay with Atlas.",
    ),
    "before": ("avant", "before"),
    "after": ("après", "after"),
    "desk": ("bureau", "desktop"),
    "phone": ("téléphone", "phone"),
    "not_attached": ("non jointes", "not attached"),
    "more": ("de plus", "more"),
    "draft": ("Brouillon de réponse (rien n'a été envoyé)", "Draft reply (nothing has been sent)"),
    "next": ("Prochaine étape", "Next step"),
    "unknown": ("inconnu", "unknown"),
    "alert": ("Alerte", "Alert"),
    "detail": ("Détail", "Detail"),
    "footer": (
        "Message automatique d'Atlas, pour l'équipe seule. Le client n'a pas été contacté.",
        "Automatic message of Atlas, for the team only. The client has not been contacted.",
    ),
}

STATUSES: dict[Status, tuple[str, str]] = {
    Status.RECEIVED: ("reçu", "received"),
    Status.CLASSIFIED: ("classé", "classified"),
    Status.SPAWNING: ("en cours", "in progress"),
    Status.ACTIONED: ("traité", "done"),
    Status.QA_FAILED: ("contrôle échoué", "checks failed"),
    Status.ESCALATED: ("à reprendre par un humain", "needs a human"),
    Status.CLOSED: ("clos sans action", "closed without action"),
    Status.BLOCKED: ("bloqué par l'antivirus", "blocked by the antivirus"),
    Status.FAILED: ("illisible", "could not be processed"),
}

_WAIT = (
    "Rien à faire : Atlas reprend ce message au prochain cycle.",
    "Nothing to do: Atlas takes it up in the next cycle.",
)

_BY_STATUS: dict[Status, tuple[str, str]] = {
    Status.RECEIVED: _WAIT,
    Status.CLASSIFIED: _WAIT,
    Status.SPAWNING: _WAIT,
    Status.ACTIONED: ("Relire le résultat ci-dessus.", "Review the result above."),
    Status.QA_FAILED: (
        "Rien à faire : une nouvelle tentative part avec les erreurs ci-dessus.",
        "Nothing to do: another attempt starts with the errors above.",
    ),
    Status.ESCALATED: (
        "Regarder le message, puis relancer avec « atlas spawn {key} » si l'agent doit recommencer.",
        'Look at the message, then run "atlas spawn {key}" if the agent should start over.',
    ),
    Status.CLOSED: ("Rien à faire.", "Nothing to do."),
    Status.BLOCKED: (
        "Ne pas ouvrir la pièce jointe. Si elle est sûre : « atlas unblock {key} ».",
        'Do not open the attachment. If it is safe: "atlas unblock {key}".',
    ),
    Status.FAILED: (
        "Les octets reçus sont conservés ; après correction : « atlas reprocess {key} ».",
        'The bytes received are kept; once mended: "atlas reprocess {key}".',
    ),
}

_DONE: dict[Intent, tuple[str, str]] = {
    Intent.CHANTIER: (
        "Vérifier la préproduction, mettre en production, puis répondre vous-même au client.",
        "Check pre-production, release to production, then answer the client yourself.",
    ),
    Intent.RUN: (
        "Relire les commits : ils ne sont pas déployés. Puis répondre au client.",
        "Review the commits: they are not deployed. Then answer the client.",
    ),
    Intent.QUESTION: ("Relire le brouillon, puis répondre vous-même.", "Review the draft, then answer yourself."),
    Intent.NEGOCIATION: (
        "Relire le brouillon et le chiffrage, puis répondre vous-même au prospect.",
        "Review the draft and the estimate, then answer the prospect yourself.",
    ),
}

_PLAN = (
    "Lire le plan, rattacher la demande à un client, puis « atlas spawn {key} ».",
    'Read the plan, tie the request to a client, then "atlas spawn {key}".',
)

_OLD_FAULTS = (
    "Vérifier la préproduction et décider des fautes qui étaient là avant (liste ci-dessous) ; puis mettre en production et "
    "répondre vous-même au client.",
    "Check pre-production and decide about the faults that were there before (listed below); then release to production and "
    "answer the client yourself.",
)

# The first prefixes that fit the code decide.
_ESCALATED: tuple[tuple[tuple[str, ...], tuple[str, str]], ...] = (
    (
        ("commit_outside_zones",),
        (
            "Des fichiers hors des zones du client ont été touchés : relire les commits, les garder ou les annuler.",
            "Files outside the client's zones were touched: review the commits, keep or revert them.",
        ),
    ),
    (
        ("contract_", "commit_unknown", "answer_refused"),
        (
            "L'agent n'a pas rendu de résultat exploitable : lire le résumé, puis « atlas spawn {key} ».",
            'The agent gave no usable result: read the summary, then "atlas spawn {key}".',
        ),
    ),
    (
        ("chantier_without_commits",),
        (
            "Le chantier s'est terminé sans commit : préciser la demande, puis « atlas spawn {key} ».",
            'The work ended without a commit: make the request clearer, then "atlas spawn {key}".',
        ),
    ),
    (
        ("deploy_",),
        (
            "Le déploiement en préproduction a échoué : réparer la commande, puis « atlas spawn {key} ».",
            'The deployment to pre-production failed: mend the command, then "atlas spawn {key}".',
        ),
    ),
    (
        ("browser_", "qa_ca_"),
        (
            "Le site n'a pas pu être ouvert dans un navigateur : voir « atlas doctor », puis « atlas spawn {key} ».",
            'The site could not be opened in a browser: see "atlas doctor", then "atlas spawn {key}".',
        ),
    ),
    (
        ("qa_", "attempts_", "same_failure_"),
        (
            "Les contrôles ne passent pas : corriger à la main d'après les erreurs, ou « atlas spawn {key} ».",
            'The checks do not pass: mend by hand from the errors, or "atlas spawn {key}".',
        ),
    ),
    (
        (
            "spawn_",
            "tries_",
            "runs_",
            "agent_",
            "did_not_start",
            "timed_out",
            "no_",
            "killed_",
            "wrapper_",
            "not_logged_in",
        ),
        (
            "L'agent n'a pas pu terminer : voir « atlas doctor », puis « atlas spawn {key} ».",
            'The agent could not finish: see "atlas doctor", then "atlas spawn {key}".',
        ),
    ),
    (
        ("cancel",),
        (
            "Arrêté à la main : « atlas spawn {key} » pour recommencer, « atlas cancel {key} » pour classer.",
            'Stopped by hand: "atlas spawn {key}" to start over, "atlas cancel {key}" to file it.',
        ),
    ),
)

# Alarms that leave by mail: title, and a sentence with the alarm's facts in it.
ALERTS: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "mailbox_silent": (
        ("La boîte n'est plus lue", "The mailbox is not read any more"),
        (
            "Atlas n'a pas pu lire {mailbox} depuis {minutes} minutes ({code}). Rien n'est perdu : les mails attendent sur le "
            "serveur. Voir « atlas doctor ».",
            "Atlas has not been able to read {mailbox} for {minutes} minutes ({code}). Nothing is lost: the mails wait on the "
            'server. See "atlas doctor".',
        ),
    ),
    "mailbox_read_again": (
        ("La boîte est de nouveau lue", "The mailbox is read again"),
        (
            "Atlas lit de nouveau {mailbox}, {minutes} minutes après l'alerte. Les mails arrivés entre-temps sont pris en charge.",
            "Atlas reads {mailbox} again, {minutes} minutes after the alert. Mails that came in meanwhile are being taken in.",
        ),
    ),
}


def pick(pair: tuple[str, str], language: str) -> str:
    """One of the two languages; whatever is not ``en`` is French, the house's default."""
    return pair[1] if language == "en" else pair[0]


def label(name: str, language: str) -> str:
    """The label called ``name``. Raises KeyError for a name that does not exist, which is a programming error."""
    return pick(LABELS[name], language)


def next_step(
    status: Status, code: str | None, language: str, *, intent: Intent | None = None, key: str = "KEY"
) -> str:
    """What a human should do now, in one sentence. ``intent`` is the final one and matters for what is done."""
    pair = _BY_STATUS[status]
    if status is Status.ACTIONED and intent is not None:
        pair = {"plan_only": _PLAN, "qa_passed_but_old_faults": _OLD_FAULTS}.get(code or "", _DONE.get(intent, pair))
    if status is Status.ESCALATED and code:
        pair = next((words for prefixes, words in _ESCALATED if code.startswith(prefixes)), pair)
    return pick(pair, language).replace("{key}", key)
