"""Errors in the form of the protocol."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from paceline.gateway.http.errors import ApiError


class ErrorResponse(BaseModel):
    """The body of a response that is an error."""

    error: str


def error_body(error: ApiError) -> dict[str, Any]:
    """Returns the response body in the form that clients of the protocol expect."""
    return {"error": str(error)}
