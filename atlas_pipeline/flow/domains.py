"""Who writes for a prompt domain: this house's agents, or the mother ship's where this house is a tenant's own."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
import time
from dataclasses import dataclass

import httpx

from atlas_pipeline.agents.designate import DOMAINS, agents_for_domain
from atlas_pipeline.agents.load import CODENAME
from atlas_pipeline.ai.http import is_confidential
from atlas_pipeline.errors import AtlasError, NotConfigured, ProviderUnavailable
from atlas_pipeline.flow.parts import Parts
from atlas_pipeline.store import registry

__all__ = ["DOMAINS", "DomainAgents", "agents_for", "signature"]

log = logging.getLogger(__name__)

PATH = "/api/agents"
TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class DomainAgents:
    """Codenames, best first; ``source`` is ``local`` or ``mother_ship``, ``code`` why the mother ship did not answer."""

    codenames: tuple[str, ...]
    source: str
    code: str | None = None


def agents_for(parts: Parts, domain: str, *, transport: httpx.BaseTransport | None = None) -> DomainAgents:
    """Ask the mother ship where there is one, else our own registry. Raises Refused("domain_unknown")."""
    with parts.db.transaction() as conn:
        ours = tuple(agents_for_domain(registry.active(conn), domain))
    settings = parts.settings
    if settings.mother_ship_url is None:
        return DomainAgents(ours, "local")
    try:
        if settings.mother_ship_secret is None:
            raise NotConfigured("mother_ship_secret_missing")
        secret = settings.mother_ship_secret.get_secret_value()
        return DomainAgents(_asked(settings.mother_ship_url, secret, domain, transport), "mother_ship")
    except AtlasError as error:
        log.warning("the mother ship gave no agents for %s (%s); our own are taken", domain, error.code)
        return DomainAgents(ours, "local", error.code)


def signature(secret: str, target: str, moment: str) -> str:
    """HMAC-SHA-256 (hex) over method, path with query, and the time in seconds: what the other side checks."""
    return hmac.new(secret.encode(), f"GET\n{target}\n{moment}".encode(), hashlib.sha256).hexdigest()


def _asked(base: str, secret: str, domain: str, transport: httpx.BaseTransport | None) -> tuple[str, ...]:
    try:
        confidential = is_confidential(httpx.URL(base))
    except (httpx.InvalidURL, UnicodeError):
        raise NotConfigured("mother_ship_url_invalid") from None
    if not confidential:
        raise NotConfigured("mother_ship_url_not_https")
    target, moment = f"{PATH}?domain={domain}", str(int(time.time()))
    deadline = time.monotonic() + TIMEOUT_SECONDS
    headers = {"X-Atlas-Time": moment, "X-Atlas-Signature": signature(secret, target, moment)}
    body = bytearray()
    with httpx.Client(base_url=base, transport=transport, timeout=TIMEOUT_SECONDS) as client:
        # httpx's time-outs begin anew with every byte, those of headers too: a server that trickles is hung up on.
        clock = threading.Timer(TIMEOUT_SECONDS, client.close)
        clock.daemon = True
        clock.start()
        try:
            with client.stream("GET", target, headers=headers) as response:
                if response.status_code != 200:
                    raise ProviderUnavailable("mother_ship_refused", status=response.status_code)
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > _MAX_BYTES:
                        raise ProviderUnavailable("mother_ship_answer_invalid")
        except httpx.TimeoutException:
            raise ProviderUnavailable("mother_ship_timed_out") from None
        except (httpx.RequestError, httpx.StreamError, httpx.InvalidURL, UnicodeError, RuntimeError, OSError):
            # The last two: hung up by us. The error of an internationalised name is a UnicodeError.
            late = time.monotonic() >= deadline
            raise ProviderUnavailable("mother_ship_timed_out" if late else "mother_ship_unreachable") from None
        finally:
            clock.cancel()
    return _read(bytes(body))


def _read(body: bytes) -> tuple[str, ...]:
    """``{"agents": [{"codename": …}, …]}``, or ProviderUnavailable("mother_ship_answer_invalid")."""
    try:
        named = [str(agent["codename"]) for agent in json.loads(body)["agents"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ProviderUnavailable("mother_ship_answer_invalid") from None
    if not all(CODENAME.fullmatch(name) and len(name) <= 64 for name in named):
        raise ProviderUnavailable("mother_ship_answer_invalid")
    if not named:
        raise ProviderUnavailable("mother_ship_knows_none")
    return tuple(named)
