"""One GET on one route of the deployed site, judged.

Needs no browser and finds what a browser hides (a redirect to another host, an empty answer). What the page does once
its scripts run is ``browser_check``'s part.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from urllib.parse import urljoin

import httpx

from atlas_pipeline.model import RouteCheck
from atlas_pipeline.release.address import credentials, host_name, is_loopback, origin, route_url
from atlas_pipeline.release.wording import answered, one_line

LEVEL = "http"
MAX_REDIRECTS = 5
# A page is known to be there long before its last byte; more is not read.
MAX_BYTES = 2_000_000
_REDIRECTS = {301, 302, 303, 307, 308}


@dataclass(frozen=True)
class _Outcome:
    status: int | None
    error: str | None


def check_http(base_url: str, route: str, *, timeout_seconds: float, client: httpx.Client | None = None) -> RouteCheck:
    """GET the route below ``base_url`` within ``timeout_seconds``; at most 5 redirects, on the tenant's own host.

    Fails on a status of 400 and above, an empty body, a redirect that leaves the host, and no answer (``status`` is
    None then). Raises nothing for whatever the site does.
    """
    started = time.monotonic()
    if client is None:
        with new_client(base_url) as own:
            outcome = _follow(own, base_url, route, started + timeout_seconds)
    else:
        outcome = _follow(client, base_url, route, started + timeout_seconds)
    return RouteCheck(
        route=route,
        level=LEVEL,
        ok=outcome.error is None,
        status=outcome.status,
        milliseconds=round((time.monotonic() - started) * 1000),
        errors=() if outcome.error is None else (one_line(outcome.error),),
    )


def new_client(base_url: str) -> httpx.Client:
    """A client for one site, with the user and password of its URL.

    A proxy of the environment is used, except for loopback, which no proxy can reach.
    """
    return httpx.Client(follow_redirects=False, trust_env=not is_loopback(base_url), auth=credentials(base_url))


def _follow(client: httpx.Client, base_url: str, route: str, deadline: float) -> _Outcome:
    name = one_line(route, 120)
    url = route_url(base_url, route)
    status: int | None = None
    try:
        for _ in range(MAX_REDIRECTS + 1):
            remaining = max(0.01, deadline - time.monotonic())
            with client.stream("GET", url, timeout=remaining, follow_redirects=False) as response:
                status = response.status_code
                location = response.headers.get("location")
                if status not in _REDIRECTS or not location:
                    return _Outcome(status, _judge(name, response, deadline))
            url = urljoin(url, location)
            if origin(url) != origin(base_url):
                return _Outcome(status, f"GET {name} redirects to another host: {host_name(url)}")
        return _Outcome(status, f"GET {name} redirects more than {MAX_REDIRECTS} times")
    except httpx.TimeoutException:
        return _Outcome(status, f"GET {name} did not answer in time")
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return _Outcome(status, _unreachable(name, base_url, error))


def _judge(name: str, response: httpx.Response, deadline: float) -> str | None:
    status = response.status_code
    if status in {401, 403}:
        return f"GET {name} answered {answered(status)}: the page needs a login, or pre-production refused ours"
    if not 200 <= status < 300:
        return f"GET {name} answered {answered(status)}"
    read, blank = 0, True
    for chunk in response.iter_bytes():
        read += len(chunk)
        blank = blank and not chunk.strip()
        if read > MAX_BYTES:
            break
        if time.monotonic() > deadline:
            return f"GET {name} answered {answered(status)}, but its body did not arrive in time"
    return f"GET {name} answered {answered(status)} with an empty body" if blank else None


def _unreachable(name: str, base_url: str, error: Exception) -> str:
    if isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError)):
        return f"GET {name} is not possible: the address can't be read"
    if isinstance(error, httpx.ConnectError):
        if _caused_by(error, ssl.SSLError) or "CERTIFICATE" in str(error).upper():
            return f"GET {name} failed: the TLS certificate of {host_name(base_url)} is not accepted"
        return f"GET {name} failed: {host_name(base_url)} can't be reached"
    return f"GET {name} failed: the server broke off the answer ({type(error).__name__})"


def _caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, kind):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
