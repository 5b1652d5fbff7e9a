"""Access tokens for XOAUTH2, by the refresh token grant (RFC 6749, section 6).

A token is kept in memory until a minute before it ends. A provider may hand out a new refresh token with each answer; the new
one is used from then on in this process, and is not stored: after a restart the configured one has to be valid still.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx

from atlas_pipeline.errors import AccessRefused, MailboxUnavailable, NotConfigured, Refused

LEEWAY_SECONDS = 60.0
DEFAULT_SECONDS = 3600.0
MAX_ANSWER_BYTES = 65_536

# RFC 6749, section 5.2: the only words of an answer that may be repeated.
_KNOWN = {
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
}
_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True)
class OAuthGrant:
    """What the refresh takes. ``token_url`` is https, or http on loopback."""

    token_url: str
    client_id: str
    refresh_token: str = field(repr=False)
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None

    def __post_init__(self) -> None:
        """Raise NotConfigured ``oauth_url_invalid``, or Refused ``oauth_plain_text_refused`` for http:// beyond loopback."""
        try:
            parts = urlsplit(self.token_url)
        except ValueError:
            raise NotConfigured("oauth_url_invalid") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise NotConfigured("oauth_url_invalid")
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            raise Refused("oauth_plain_text_refused")


@dataclass
class _Held:
    token: str
    until: float
    refresh_token: str


# Sources are opened anew for each look; what they may share is the token.
_held: dict[OAuthGrant, _Held] = {}
_lock = threading.Lock()


def access_token(grant: OAuthGrant, *, timeout_seconds: float, transport: httpx.BaseTransport | None = None) -> str:
    """Return a token that is valid for a minute at least.

    Raises MailboxUnavailable (``oauth_unreachable``, ``oauth_server_error``, ``oauth_answer_unreadable``) for what may pass and
    AccessRefused ``oauth_refused``, with the RFC's error word, for what will not.
    """
    with _lock:
        held = _held.get(grant)
        if held is not None and held.until > time.monotonic():
            return held.token
        refresh = held.refresh_token if held is not None else grant.refresh_token
        answer = _ask(grant, refresh, timeout_seconds, transport)
        token, seconds = answer.get("access_token"), answer.get("expires_in", DEFAULT_SECONDS)
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise MailboxUnavailable("oauth_answer_unreadable")
        rotated = answer.get("refresh_token")
        lifetime = (
            float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) else DEFAULT_SECONDS
        )
        _held[grant] = _Held(
            token,
            time.monotonic() + lifetime - LEEWAY_SECONDS,
            rotated if isinstance(rotated, str) and rotated else refresh,
        )
        return token


def drop_token(grant: OAuthGrant, token: str) -> None:
    """The server refused this token before its end: ask for another one the next time."""
    with _lock:
        held = _held.get(grant)
        if held is not None and held.token == token:
            held.until = 0.0


def _ask(
    grant: OAuthGrant, refresh_token: str, timeout_seconds: float, transport: httpx.BaseTransport | None
) -> dict[str, object]:
    form = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": grant.client_id}
    if grant.client_secret:
        form["client_secret"] = grant.client_secret
    if grant.scope:
        form["scope"] = grant.scope
    try:
        with httpx.Client(timeout=timeout_seconds, transport=transport, follow_redirects=False) as client:
            response = client.post(grant.token_url, data=form, headers={"Accept": "application/json"})
    except httpx.HTTPError:
        raise MailboxUnavailable("oauth_unreachable") from None
    if response.status_code >= 500 or response.status_code in {408, 429}:
        raise MailboxUnavailable("oauth_server_error", status=response.status_code)
    answer = _object(response)
    if response.status_code != 200:
        word = answer.get("error")
        raise AccessRefused("oauth_refused", error=word if isinstance(word, str) and word in _KNOWN else None)
    return answer


def _object(response: httpx.Response) -> dict[str, object]:
    try:
        answer = response.json() if len(response.content) <= MAX_ANSWER_BYTES else None
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict):
        return answer
    if response.status_code == 200:
        raise MailboxUnavailable("oauth_answer_unreadable")
    return {}
