"""What the stage asks of a scanner, and how the address of clamd is written. No conversation happens here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from atlas_pipeline.errors import NotConfigured
from atlas_pipeline.model import ScanResult


class Scanner(Protocol):
    """Gives a verdict on bytes. It never raises for what the bytes are: a scanner in trouble is ``Verdict.ERROR``."""

    def scan(self, data: bytes) -> ScanResult:
        """The verdict on one run of bytes."""
        ...


@dataclass(frozen=True)
class ClamdAddress:
    """Where clamd listens: ``path`` of a Unix socket, or ``host`` and ``port``."""

    path: str | None = None
    host: str = ""
    port: int = 0


def parse_address(address: str) -> ClamdAddress:
    """Read ``unix:/path/to/socket`` or ``tcp:host:port`` (IPv6 in brackets). Raises NotConfigured for anything else."""
    kind, _, rest = address.strip().partition(":")
    if kind == "unix" and rest.startswith("/"):
        return ClamdAddress(path=rest)
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536:
        return ClamdAddress(host=host.removeprefix("[").removesuffix("]"), port=int(port))
    raise NotConfigured("clamd_address_invalid")
