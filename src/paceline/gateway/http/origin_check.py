"""`OriginCheck`: keeps web pages of strangers from using the server through a visitor's browser.

A browser sends the page's address in the header `Origin`. It is refused unless it is the server's own address or an
allowed one. A server that listens at the loopback interface also refuses names in the header `Host` that are not the
machine's own: a stranger's name could lead there (DNS rebinding), and then the page would have the server's own origin.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from paceline.gateway.http.errors import ApiError

_WEB_SCHEMES = frozenset({"http", "https"})
_NO_ORIGIN = "null"  # what browsers send for pages without an address, such as those in sandboxed frames


class OriginCheck:
    """Raises ApiError with status 403 for requests of strangers' pages, and passes on all others.

    `allowed_origins` are addresses of pages (`*` allows all); `allowed_hosts` are names in `Host` that are accepted
    besides the machine's own, such as the name of a proxy's site. A request without `Host` is not from a browser.
    """

    def __init__(
        self, app: ASGIApp, *, is_loopback: bool, allowed_origins: Collection[str], allowed_hosts: Collection[str]
    ) -> None:
        self._app = app
        self._is_loopback = is_loopback
        self._allowed_origins = frozenset(allowed_origins)
        self._allowed_hosts = frozenset(map(_name_of, allowed_hosts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI scope."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            self._check(headers.get("host", ""), headers.get("origin"))
        await self._app(scope, receive, send)

    def _check(self, host: str, origin: str | None) -> None:
        name = _name_of(host)
        if host and self._is_loopback and not is_loopback_name(name) and name not in self._allowed_hosts:
            message = f"this server does not answer for the host {name[:100]!r}: allow it with --allowed-hosts"
            raise ApiError(403, message, code="forbidden_host")
        if origin is None or not self._allowed_origins.isdisjoint({origin, "*"}):
            return
        scheme, _, place = origin.partition("://")
        is_web = scheme.lower() in _WEB_SCHEMES or origin == _NO_ORIGIN
        if is_web and place.lower() != host.lower():
            message = f"pages of {origin[:100]!r} may not use this server: allow them with --cors-origins"
            raise ApiError(403, message, code="forbidden_origin")


def _name_of(host: str) -> str:
    """Returns the name in a host, in lower case and without its port; empty if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback_name(name: str) -> bool:
    """Returns whether a host name or address is the machine's own loopback interface."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
