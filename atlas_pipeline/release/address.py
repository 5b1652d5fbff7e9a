"""Addresses of the deployed site: joining routes, telling hosts apart, keeping passwords out of what is shown."""

from __future__ import annotations

import ipaddress
from urllib.parse import unquote, urlsplit, urlunsplit

from atlas_pipeline.release.wording import one_line


def route_url(base_url: str, route: str) -> str:
    """The address of a route below the base URL, without user and password.

    Whatever the route holds, the host stays the base URL's.
    """
    return without_login(base_url).rstrip("/") + "/" + route.lstrip("/\\")


def site_root(base_url: str) -> str:
    """Scheme, host and port of a base URL that could be read; no path, no password."""
    parts = urlsplit(without_login(base_url))
    return f"{parts.scheme}://{parts.netloc}"


def origin(url: str) -> tuple[str, int] | None:
    """Host and port; None for what is no web address.

    The two default ports count as one, so an upgrade to https stays on the site. Other ports are told apart: on
    loopback another port is another program.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in {"http", "https", "ws", "wss"} or not parts.hostname:
        return None
    return parts.hostname.lower(), 443 if port in {None, 80, 443} else port


def host_name(url: str) -> str:
    """Host and port as people read them, without user and password."""
    try:
        return one_line(urlsplit(url).netloc.rpartition("@")[2] or url, 120)
    except ValueError:
        return "an address that can't be read"


def path_name(url: str) -> str:
    """The path of an address with its query, for a sentence; inline addresses are named by their kind."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "an address that can't be read"
    if parts.scheme in {"data", "blob", "about", "javascript"}:
        return f"{parts.scheme}:"
    return one_line((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), 120)


def credentials(base_url: str) -> tuple[str, str] | None:
    """User and password of a base URL, decoded; None without."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return None
    return (unquote(parts.username), unquote(parts.password or "")) if parts.username else None


def with_login(url: str, login: str) -> str:
    """The address with ``user:password``, both percent-encoded, in place of what it carries."""
    parts = urlsplit(without_login(url))
    return urlunsplit(parts._replace(netloc=f"{login}@{parts.netloc}"))


def is_loopback(url: str) -> bool:
    """Whether the host is this machine by its very name."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def without_login(url: str) -> str:
    """The address without user and password; one that can't be read stays as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
