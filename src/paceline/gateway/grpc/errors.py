"""Translates errors to gRPC's status codes."""

from __future__ import annotations

from types import MappingProxyType

import grpc

from paceline.gateway.http.errors import ApiError

_CODES = MappingProxyType(
    {
        400: grpc.StatusCode.INVALID_ARGUMENT,
        401: grpc.StatusCode.UNAUTHENTICATED,
        403: grpc.StatusCode.PERMISSION_DENIED,
        404: grpc.StatusCode.NOT_FOUND,
        413: grpc.StatusCode.RESOURCE_EXHAUSTED,
        429: grpc.StatusCode.RESOURCE_EXHAUSTED,
        503: grpc.StatusCode.UNAVAILABLE,
    }
)


def code_of(error: ApiError) -> grpc.StatusCode:
    """Returns gRPC's code for an error."""
    return _CODES.get(error.status, grpc.StatusCode.INTERNAL)


def metadata_of(error: ApiError) -> tuple[tuple[str, str], ...]:
    """Returns the trailing metadata of an error: the fields that HTTP has in body and headers."""
    found = {"error-code": error.code, "error-param": error.param, "retry-after": error.headers.get("retry-after")}
    return tuple((name, _ascii(value)) for name, value in found.items() if value is not None)


def _ascii(text: str) -> str:
    """Returns a text that may be a metadata value: those may only have printable ASCII characters."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text[:200])
