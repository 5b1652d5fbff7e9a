"""The agent's result file, read as what it is: a claim. Git, the tenant table and the routes' form decide what is
believed.

Never raises: a file that can't be used gives a contract with the status ``missing`` or ``invalid`` and a code. The
file:

    {"status": "ok", "tenant": "slug", "routes": ["/contact"], "commits": ["<sha>"],
     "summary": "markdown", "draft_reply": "text", "intent": "question"}

``status`` is ``ok``, or ``partial`` for a checkpoint, or another word. ``intent`` is there only to correct the
classifier.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Collection, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from atlas_pipeline.model import Contract, Intent
from atlas_pipeline.text import clean_text

MAX_BYTES = 1_000_000
MAX_ROUTES = 50
MAX_SUMMARY = 100_000
MAX_DRAFT = 50_000

_STATUS = re.compile(r"[a-z][a-z_]{0,31}")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\x9f\u2028\u2029\\]")

# A correction may only go down: towards changing less.
_WEIGHT = {Intent.CHANTIER: 2, Intent.RUN: 1, Intent.QUESTION: 0, Intent.NEGOCIATION: 0}


def read_contract(
    path: Path,
    *,
    tenants: AbstractSet[str],
    tenant: str | None,
    classified: Intent,
    commits_in_git: Sequence[str],
) -> Contract:
    """Read and judge the result file.

    ``tenants`` are the slugs that exist, ``tenant`` the one this message was resolved to, ``commits_in_git`` full
    hashes that git counts on the agent's branch. In the contract, ``tenant`` is always the resolved one, ``commits``
    are full hashes that git knows, and ``intent`` is a correction that is allowed, or None.
    """
    content, problem = _load(path)
    if content is None:
        status = "missing" if problem == "contract_missing" else "invalid"
        return Contract(status, tenant, (), (), "", "", None, (problem,))
    problems: list[str] = []
    return Contract(
        status=_status(content.get("status"), problems),
        tenant=_tenant(content.get("tenant"), tenants, tenant, problems),
        routes=_routes(content.get("routes"), problems),
        commits=_commits(content.get("commits"), commits_in_git, problems),
        summary=_text(content, "summary", MAX_SUMMARY, problems),
        draft_reply=_text(content, "draft_reply", MAX_DRAFT, problems),
        intent=_intent(content.get("intent"), classified, problems),
        problems=tuple(dict.fromkeys(problems)),
    )


def _load(path: Path) -> tuple[dict[str, Any] | None, str]:
    # The agent made this file: a link could point at a secret, a pipe would block for ever.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None, "contract_missing"
    except OSError:
        return None, "contract_not_a_file"
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None, "contract_not_a_file"
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        return None, "contract_too_large"
    try:
        value = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None, "contract_not_json"
    return (value, "") if isinstance(value, dict) else (None, "contract_not_an_object")


def _status(value: object, problems: list[str]) -> str:
    if isinstance(value, str) and _STATUS.fullmatch(value) and value != "missing":
        return value
    problems.append("status_invalid")
    return "invalid"


def _tenant(value: object, tenants: AbstractSet[str], resolved: str | None, problems: list[str]) -> str | None:
    if value is None or value == resolved or (resolved is None and value == ""):
        return resolved
    problems.append("tenant_differs" if isinstance(value, str) and value in tenants else "tenant_unknown")
    return resolved


def _routes(value: object, problems: list[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        problems.append("routes_invalid")
        return ()
    if len(value) > MAX_ROUTES:
        problems.append("routes_too_many")
    routes = []
    for route in value[:MAX_ROUTES]:
        problem = _route_problem(route)
        if problem:
            problems.append(problem)
        elif route not in routes:
            routes.append(route)
    return tuple(routes)


def _route_problem(route: object) -> str | None:
    if not isinstance(route, str) or not route or len(route) > 500:
        return "route_invalid"
    plain = unquote(route)
    if not route.startswith("/") or route.startswith("//") or plain.startswith("//") or "://" in plain:
        return "route_foreign"
    # Decoded twice, since a server in front may decode once more.
    if any(_UNPRINTABLE.search(text) for text in (route, plain.replace(" ", ""), unquote(plain).replace(" ", ""))):
        return "route_invalid"
    if ".." in re.split(r"[/?#]", unquote(plain)):
        return "route_invalid"
    return None if clean_text(route) == route else "route_invalid"


def _commits(value: object, known: Collection[str], problems: list[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        problems.append("commits_invalid")
        return ()
    claimed = set()
    for item in value[:1000]:
        name = item.strip().lower() if isinstance(item, str) else ""
        found = [sha for sha in known if sha.startswith(name)] if _COMMIT.fullmatch(name) else []
        if len(found) == 1:
            claimed.add(found[0])
        else:
            problems.append("commit_unknown")
    return tuple(sha for sha in known if sha in claimed)


def _text(content: dict[str, Any], name: str, limit: int, problems: list[str]) -> str:
    value = content.get(name)
    if value is None:
        value = ""
    if not isinstance(value, str):
        problems.append(f"{name}_invalid")
        return ""
    if len(value) > limit:
        problems.append(f"{name}_cut")
    return clean_text(value[:limit])


def _intent(value: object, classified: Intent, problems: list[str]) -> Intent | None:
    if value is None or value == classified.value:
        return None
    try:
        wanted = Intent(value) if isinstance(value, str) else None
    except ValueError:
        wanted = None
    if wanted is None:
        problems.append("intent_unknown")
    elif wanted in _WEIGHT and classified in _WEIGHT and _WEIGHT[wanted] < _WEIGHT[classified]:
        return wanted
    else:
        problems.append("intent_upgrade_refused")
    return None
