"""One GET on one route of the deployed site, judged.

Needs no browser and finds what a browser hides (a redirect to another host, an empty answer). What the page does once
its scripts run is ``browser_check``'s part.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import httpx

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import RouteCheck
from atlas_pipeline.release.address import credentials, host_name, is_loopback, origin, route_url
from atlas_pipeline.release.wording import answered, one_line

LEVEL = "http"
MAX_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_HTML_TYPES = {"text/html", "application/xhtml+xml"}
_HTML_START = re.compile(rb"\s*(<!doctype html|<html)", re.IGNORECASE)


@dataclass(frozen=True)
class Limits:
    """What a page may cost a visitor: seconds until its first byte, redirects included, and the bytes of its document."""

    first_byte_seconds: float = 5.0
    page_bytes: int = 5_000_000


@dataclass(frozen=True)
class _Outcome:
    status: int | None
    errors: tuple[str, ...] = ()


def check_http(
    base_url: str,
    route: str,
    *,
    timeout_seconds: float,
    client: httpx.Client | None = None,
    limits: Limits = Limits(),  # frozen
) -> RouteCheck:
    """GET the route below ``base_url`` within ``timeout_seconds``; at most 5 redirects, on the tenant's own host.

    Fails on a status of 400 and above, an empty body, HTML that is not served as such, more time or bytes than
    ``limits`` allow, a redirect that leaves the host, and no answer (``status`` is None then). Raises nothing for
    whatever the site does.
    """
    started = time.monotonic()
    if client is None:
        with new_client(base_url) as own:
            outcome = _follow(own, base_url, route, started, timeout_seconds, limits)
    else:
        outcome = _follow(client, base_url, route, started, timeout_seconds, limits)
    return RouteCheck(
        route=route,
        level=LEVEL,
        ok=not outcome.errors,
        status=outcome.status,
        milliseconds=round((time.monotonic() - started) * 1000),
        errors=tuple(one_line(error) for error in outcome.errors),
    )


def new_client(base_url: str, *, ca_file: Path | None = None) -> httpx.Client:
    """A client for one site, with the user and password of its URL, that trusts the authorities of ``ca_file`` as well.

    A proxy of the environment is used, except for loopback, which no proxy can reach. Raises NotConfigured
    (``qa_ca_file_unreadable``).
    """
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except (OSError, ValueError):
            raise NotConfigured("qa_ca_file_unreadable") from None
    return httpx.Client(
        follow_redirects=False, trust_env=not is_loopback(base_url), auth=credentials(base_url), verify=context
    )


def _follow(
    client: httpx.Client, base_url: str, route: str, started: float, timeout_seconds: float, limits: Limits
) -> _Outcome:
    name = one_line(route, 120)
    url = route_url(base_url, route)
    deadline = started + timeout_seconds
    status: int | None = None
    try:
        for _ in range(MAX_REDIRECTS + 1):
            remaining = max(0.01, deadline - time.monotonic())
            with client.stream("GET", url, timeout=remaining, follow_redirects=False) as response:
                status = response.status_code
                location = response.headers.get("location")
                if status not in _REDIRECTS or not location:
                    waited = time.monotonic() - started
                    errors = [*_judge(name, response, deadline, limits), *_slow(name, waited, limits)]
                    return _Outcome(status, tuple(errors))
            url = urljoin(url, location)
            if origin(url) != origin(base_url):
                return _Outcome(status, (f"GET {name} redirects to another host: {host_name(url)}",))
        return _Outcome(status, (f"GET {name} redirects more than {MAX_REDIRECTS} times",))
    except httpx.TimeoutException:
        return _Outcome(status, (f"GET {name} did not answer in time",))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        return _Outcome(status, (_unreachable(name, base_url, error),))


def _slow(name: str, waited: float, limits: Limits) -> Iterator[str]:
    if waited > limits.first_byte_seconds:
        # No figure that differs from one look to the next: the same fault has to read the same.
        yield f"GET {name} is slow: its first byte took more than {limits.first_byte_seconds:g} s"


def _judge(name: str, response: httpx.Response, deadline: float, limits: Limits) -> Iterator[str]:
    status = response.status_code
    if status in {401, 403}:
        yield f"GET {name} answered {answered(status)}: the page needs a login, or pre-production refused ours"
        return
    if not 200 <= status < 300:
        yield f"GET {name} answered {answered(status)}"
        return
    read, blank, start = 0, True, b""
    for chunk in response.iter_bytes():
        read += len(chunk)
        start = (start + chunk)[:200] if len(start) < 200 else start
        blank = blank and not chunk.strip()
        if read > limits.page_bytes:
            yield f"GET {name} is huge: its document has more than {limits.page_bytes} bytes"
            break
        if time.monotonic() > deadline:
            yield f"GET {name} answered {answered(status)}, but its body did not arrive in time"
            break
    if blank:
        yield f"GET {name} answered {answered(status)} with an empty body"
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if _HTML_START.match(start) and kind not in _HTML_TYPES:
        shown = one_line(kind, 60) or "no content type"
        yield f"GET {name} is an HTML page served as {shown}: the browser does not show it as a page"


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
