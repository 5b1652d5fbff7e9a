"""Reading Authentication-Results (RFC 8601): comments and quotes are taken out first.

Both may quote a stranger: a HELO name inside a comment can spell ``dmarc=pass``.

Not here: whether the server that wrote it is ours (``trust.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_METHOD = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)(?:\s*/\s*\d+)?\s*=\s*([A-Za-z]+)\b(.*)", re.DOTALL)
_PROPERTY = re.compile(r"([A-Za-z0-9-]+)\s*\.\s*([A-Za-z0-9_.-]+)\s*=\s*([^\s;]+)")


@dataclass(frozen=True)
class Result:
    """One method's verdict, all lower-case: ``dkim``, ``pass``, {"header.d": "client.example"}."""

    method: str
    result: str
    properties: dict[str, str]


def read_results(value: str) -> tuple[str, tuple[Result, ...]] | None:
    """Return the authserv-id and the results, or None for a header whose quotes or comments don't close."""
    bare = _without_comments(value)
    if bare is None:
        return None
    head, *rest = bare.split(";")
    words = head.split()
    if not words:
        return None
    return words[0].lower(), tuple(result for piece in rest if (result := _result(piece)) is not None)


def _result(piece: str) -> Result | None:
    match = _METHOD.match(piece)
    if match is None:
        return None
    properties: dict[str, str] = {}
    for kind, name, value in _PROPERTY.findall(match.group(3)):
        properties.setdefault(f"{kind}.{name}".lower(), value.lower())
    return Result(match.group(1).lower(), match.group(2).lower(), properties)


def _without_comments(value: str) -> str | None:
    """Drop comments (nested ones too) and blank the separators inside quoted strings."""
    out: list[str] = []
    depth, quoted, escaped = 0, False, False
    for char in value:
        if escaped:
            escaped = False
            char = "_"  # noqa: PLW2901  # what was escaped is never syntax
        elif char == "\\" and (depth or quoted):
            escaped = True
            continue
        elif depth:
            depth += (char == "(") - (char == ")")
            continue
        elif char == '"':
            quoted = not quoted
            continue
        elif quoted and char in ";=() \t":
            char = "_"  # noqa: PLW2901
        elif char == "(":
            depth = 1
            char = " "  # noqa: PLW2901
        if not depth or char == " ":
            out.append(char)
    return None if depth or quoted or escaped else "".join(out)
