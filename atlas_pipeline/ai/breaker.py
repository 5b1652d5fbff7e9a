"""The circuit breaker: a provider that keeps failing is left alone for a while, then tried with one call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from atlas_pipeline.errors import AccessRefused, AtlasError, NotConfigured, ProviderUnavailable

_MOST_RESTED = 3600.0  # seconds that a provider may ask for itself


@dataclass
class Breaker:
    """That of one model of a provider. Thread-safe. ``now`` is the monotonic clock in seconds, injected for tests."""

    failures: int
    rest_seconds: float
    now: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _failed: int = 0
    _rests_until: float | None = None

    def enter(self) -> None:
        """Before a call. Raises ProviderUnavailable("provider_resting", retry_after=seconds) while the provider is left alone."""
        with self._lock:
            if self._rests_until is None:
                return
            left = self._rests_until - self.now()
            if left > 0:
                raise ProviderUnavailable("provider_resting", retry_after=round(left, 3))
            # This call is the trial; the others rest on until it is over, or for as long again should it never be.
            self._rests_until = self.now() + self.rest_seconds

    def leave(self, error: AtlasError | None) -> None:
        """After it. A refused key or a wrong address ends the calls at once: the next would fare no better."""
        with self._lock:
            if isinstance(error, ProviderUnavailable | AccessRefused | NotConfigured):
                self._failed += 1
                tried = self._rests_until is not None
                hopeless = not isinstance(error, ProviderUnavailable) and error.code != "provider_request_rejected"
                if tried or hopeless or self._failed >= self.failures:
                    asked = float(error.detail.get("retry_after") or 0.0)
                    self._rests_until = self.now() + max(self.rest_seconds, min(asked, _MOST_RESTED))
            else:
                self._failed, self._rests_until = 0, None
