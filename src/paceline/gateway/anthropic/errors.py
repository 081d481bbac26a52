"""Errors in the form of Anthropic's API."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel

from paceline.gateway.http.errors import ApiError

_TYPES_BY_STATUS = MappingProxyType(
    {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        405: "invalid_request_error",
        413: "request_too_large",
        429: "rate_limit_error",
        503: "overloaded_error",
    }
)


class ErrorDetail(BaseModel):
    """Why a request was refused or failed. `param` names the field that caused it, which is Paceline's addition."""

    type: str
    message: str
    param: str | None


class ErrorResponse(BaseModel):
    """The body of a response that is an error, in Anthropic's form."""

    type: Literal["error"]
    error: ErrorDetail


def error_body(error: ApiError) -> dict[str, Any]:
    """Returns the response body in the form that Anthropic's clients expect."""
    kind = _TYPES_BY_STATUS.get(error.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": str(error), "param": error.param}}
