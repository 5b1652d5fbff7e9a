"""Hides secrets in the output of commands, so that it may be kept and shown.

Two sources: the values of environment variables whose name sounds like a secret, and things that look like one
wherever they come from. Masking is a net, not a proof; the output is kept out of ``repr`` all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

MASK = "***"
# Shorter values would turn every "1" of the output into stars.
SHORTEST = 6
# A private key of 4096 bits has 3.3 kB.
PEM_CHARACTERS = 4_096

_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|PASSPHRASE|_PWD|_PASS\b|_KEY\b|APIKEY|CREDENTIAL|AUTH|PRIVATE|COOKIE|_DSN", re.IGNORECASE
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_URL_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,200}:)[^\s/]{1,500}(?=@)", re.IGNORECASE)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(?i)\b([\w-]{0,40}(?:password|passwd|secret|token|api[_-]?key|access[_-]?key)[\w-]{0,20}[\"']?\s{0,4}[=:]\s{0,4}[\"']?)[^\s\"',;&]{4,}"
)
_TOKEN = re.compile(
    r"\b(gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)


class Masker:
    """Knows the secrets of one environment. No secret it can know is longer than ``longest`` characters."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # Long ones first: a secret may be part of another.
        self._values = sorted(_secrets(environment), key=len, reverse=True)
        self.longest = max(PEM_CHARACTERS, len(self._values[0]) if self._values else 0)

    def mask(self, text: str) -> str:
        """The text with every known or likely secret replaced by stars."""
        for value in self._values:
            text = text.replace(value, MASK)
        text = _PEM.sub(MASK, text)
        text = _URL_PASSWORD.sub(rf"\1{MASK}", text)
        text = _BEARER.sub(rf"\1 {MASK}", text)
        text = _ASSIGNED.sub(rf"\1{MASK}", text)
        return _TOKEN.sub(MASK, text)


def _secrets(environment: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for name, value in environment.items():
        if _NAME.search(name):
            found.add(value)
        if "://" in value and "@" in value:
            found |= _url_passwords(value)
    return {value for value in found if len(value) >= SHORTEST}


def _url_passwords(value: str) -> set[str]:
    """The password in a URL, as it stands there and decoded."""
    try:
        password = urlsplit(value).password
    except ValueError:
        return set()
    return {password, unquote(password)} if password else set()
