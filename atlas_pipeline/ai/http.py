"""One JSON call to a provider's HTTP interface. No provider's own shapes belong here, and no retries: ``router``.

Which outcome is which error:

    connect, read time-out, cut body, no JSON in a 200    ProviderUnavailable
    408, 429, 5xx (529 too)                               ProviderUnavailable, ``retry_after`` in its detail if given
    any other 1xx, 2xx; 409, 425; an error in a 200       ProviderUnavailable
    401, 402, 403                                         AccessRefused
    404, 3xx                                              NotConfigured: URL or model are wrong, for every mail alike
    413, 422                                              InvalidAnswer: this very request is not wanted
    400 and any other 4xx                                 NotConfigured: model, parameters or account; no mail's fault
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from atlas_pipeline.ai.retry_after import seconds_to_wait
from atlas_pipeline.errors import AccessRefused, InvalidAnswer, NotConfigured, ProviderUnavailable

_GRACE_SECONDS = 0.5
MAX_BODY_BYTES = 16 * 1024 * 1024
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


def is_confidential(url: httpx.URL) -> bool:
    """Whether nobody on the way reads what is sent there: TLS, or this very machine."""
    return bool(url.host) and (url.scheme == "https" or (url.scheme == "http" and url.host in _LOOPBACK))


@dataclass
class JsonApi:
    """A provider's base URL and the way to reach it. Thread-safe; ``close`` it when done.

    ``transport`` and ``now`` are injected for tests.
    """

    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    transport: httpx.BaseTransport | None = field(default=None, repr=False)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def __post_init__(self) -> None:
        """Refuse an address over which the key and the mail would travel in the clear; no connection is made yet."""
        try:
            url = httpx.URL(self.base_url)
        except httpx.InvalidURL:
            raise NotConfigured("provider_url_invalid") from None
        if not is_confidential(url):
            raise NotConfigured("provider_url_not_https")
        if not all(value.isascii() and value.isprintable() for value in self.headers.values()):
            raise NotConfigured("provider_key_malformed")
        self._client = self._fresh()

    def _fresh(self) -> httpx.Client:
        return httpx.Client(base_url=self.base_url, headers=self.headers, transport=self.transport)

    def close(self) -> None:
        """Close the connections kept alive."""
        self._client.close()

    def _hang_up(self, client: httpx.Client) -> None:
        """Cut a call that trickles on: httpx's time-outs begin anew with every byte, in headers too.

        Other calls over the same connections are cut with it, and asked again.
        """
        if self.transport is None:
            self._client = self._fresh() if self._client is client else self._client
            client.close()

    def post(self, path: str, payload: Mapping[str, object], *, timeout_seconds: float) -> dict[str, Any]:
        """The JSON object answered with 200, asked for once."""
        body = json.dumps(payload).encode("ascii")  # escapes every non-ASCII character, so that none can fail to encode
        deadline = time.monotonic() + timeout_seconds
        client = self._client
        clock = threading.Timer(timeout_seconds + _GRACE_SECONDS, self._hang_up, [client])
        clock.daemon = True
        clock.start()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            with client.stream("POST", path, content=body, headers=headers, timeout=timeout_seconds) as response:
                self._check_status(response)
                return _read_object(response, deadline)
        except httpx.TimeoutException:
            raise ProviderUnavailable("provider_timed_out", seconds=timeout_seconds) from None
        except httpx.ConnectError:
            raise ProviderUnavailable("provider_unreachable") from None
        except (httpx.RequestError, httpx.StreamError, RuntimeError, OSError):  # the last two: hung up by us
            if time.monotonic() > deadline:
                raise ProviderUnavailable("provider_timed_out", seconds=timeout_seconds) from None
            raise ProviderUnavailable("provider_cut_off") from None
        finally:
            clock.cancel()

    def _check_status(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == 200:
            return
        if status in {408, 409, 425, 429} or status >= 500 or status < 300:
            code = "provider_rate_limited" if status == 429 else "provider_overloaded"
            wait = seconds_to_wait(response.headers.get("Retry-After"), self.now())
            raise ProviderUnavailable(code, status=status, retry_after=wait)
        if status in {401, 402, 403}:
            raise AccessRefused("provider_access_refused", status=status)
        if status == 404 or 300 <= status < 400:
            raise NotConfigured("provider_url_or_model_unknown", status=status)
        error = InvalidAnswer if status in {413, 422} else NotConfigured
        raise error("provider_request_rejected", status=status)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all there once: some APIs hand the model's own JSON over as part of theirs."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidAnswer("answer_key_doubled")
    return value


def _read_object(response: httpx.Response, deadline: float) -> dict[str, Any]:
    """The body as a JSON object. The deadline is ours: httpx's time-out restarts with every byte that trickles in."""
    chunks = bytearray()
    for chunk in response.iter_bytes():
        chunks += chunk
        if len(chunks) > MAX_BODY_BYTES:
            raise ProviderUnavailable("provider_body_too_long")
        if time.monotonic() > deadline:
            raise ProviderUnavailable("provider_timed_out")
    try:
        value = json.loads(bytes(chunks), object_pairs_hook=_unique)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ProviderUnavailable("provider_body_invalid") from None
    except ValueError:  # a number of thousands of digits: JSON, and nothing that was asked for
        raise InvalidAnswer("answer_not_json") from None
    if not isinstance(value, dict):
        raise ProviderUnavailable("provider_body_invalid")
    if value.get("error") is not None and not {"choices", "content", "data"} & value.keys():
        raise ProviderUnavailable("provider_error_answered")
    return value
