"""The other side of ``flow.domains``: the agency's house tells a client's own house which agents write for a prompt domain.

One route, read only, over HTTP on loopback: TLS belongs to the proxy in front of it, as the UI's does. Nothing that is not public
inside the agency leaves by it: codenames, nicknames and roles.
"""

from __future__ import annotations

import hmac
import time

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from atlas_pipeline.agents.designate import agents_for_domain
from atlas_pipeline.errors import DatabaseUnavailable, NotConfigured, Refused
from atlas_pipeline.flow.domains import PATH, signature
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.store import registry

# A question that was overheard may be asked again for so long; it gives away no more than it did the first time.
WINDOW_SECONDS = 300


def application(parts: Parts) -> Starlette:
    """The ASGI application. Raises NotConfigured("mother_ship_secret_missing"): without a secret nobody can be told apart.

    401 for a question that is unsigned, signed with another secret, or older (or newer) than ``WINDOW_SECONDS``; 400 for a domain
    that does not exist; 503 while the database is down. Bodies are ``{"error": code}``, or ``{"agents": [{"codename", "nickname",
    "role", "role_en"}, …]}``, the executing ones first.
    """
    if parts.settings.mother_ship_secret is None:
        raise NotConfigured("mother_ship_secret_missing")
    secret = parts.settings.mother_ship_secret.get_secret_value()

    def answer(request: Request) -> JSONResponse:
        if not _is_signed(request, secret):
            return _refusal("signature_invalid", 401)
        try:
            with parts.db.transaction() as conn:
                rows = {str(row["codename"]): row for row in registry.active(conn)}
            named = agents_for_domain(list(rows.values()), request.query_params.get("domain", ""))
        except Refused as error:
            return _refusal(error.code, 400)
        except DatabaseUnavailable as error:
            return _refusal(error.code, 503)
        columns = ("codename", "nickname", "role", "role_en")
        return JSONResponse({"agents": [{name: rows[one][name] for name in columns} for one in named]})

    # A plain function: Starlette runs it in a thread, so that a slow database holds up no other question.
    return Starlette(routes=[Route(PATH, answer, methods=["GET"])])


def _is_signed(request: Request, secret: str) -> bool:
    moment = request.headers.get("X-Atlas-Time", "")
    # Ten digits reach to the year 2286; int() would take more, and other alphabets' digits too.
    if not (moment.isascii() and moment.isdigit() and len(moment) <= 10):
        return False
    if abs(time.time() - int(moment)) > WINDOW_SECONDS:
        return False
    target = f"{request.url.path}?{request.url.query}"
    given = request.headers.get("X-Atlas-Signature", "")
    return hmac.compare_digest(signature(secret, target, moment).encode(), given.encode())


def _refusal(code: str, status: int) -> JSONResponse:
    return JSONResponse({"error": code}, status_code=status)
