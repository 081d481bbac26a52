"""Errors in the form of llama-server's API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from paceline.gateway.http.errors import ApiError


class ErrorDetail(BaseModel):
    """Why a request was refused or failed. `param` names the field that caused it, which is Paceline's addition."""

    code: int
    message: str
    type: str
    param: str | None


class ErrorResponse(BaseModel):
    """The body of a response that is an error, in llama-server's form."""

    error: ErrorDetail


def error_body(error: ApiError) -> dict[str, Any]:
    """Returns the response body in the form that llama-server's clients expect."""
    return {"error": {"code": error.status, "message": str(error), "type": error.kind, "param": error.param}}
