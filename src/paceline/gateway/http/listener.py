"""Opens the listening socket. The server does so before anything slow, so a port in use is reported at once."""

from __future__ import annotations

import errno
import socket

from paceline.core.errors import UsageError

_BACKLOG = 2048


def open_listener(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at the address; port 0 takes any free port. Raises UsageError if it cannot."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise UsageError(f"{host!r} is not an address of this machine ({error}): choose another with --host") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise _as_usage_error(error, host, port) from error
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """Returns the URL at which clients on this machine reach the listener."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


def _as_usage_error(error: OSError, host: str, port: int) -> UsageError:
    if error.errno == errno.EADDRINUSE:
        return UsageError(f"port {port} on {host} is in use: choose another with --port")
    if error.errno == errno.EACCES:
        return UsageError(f"this user may not listen at port {port} on {host}: choose another with --port")
    return UsageError(
        f"cannot listen at port {port} on {host} ({error.strerror}): choose another with --host or --port"
    )
