"""Errors in the form of Ollama's API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from paceline.gateway.http.errors import ApiError


class ErrorResponse(BaseModel):
    """The body of a response that is an error, in Ollama's form."""

    error: str


def error_body(error: ApiError) -> dict[str, Any]:
    """Returns the response body in the form that Ollama's clients expect."""
    return {"error": str(error)}
