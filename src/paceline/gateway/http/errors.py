"""`ApiError`: an error with an HTTP status. Every other error is translated to one, and each front has a form for
it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from paceline.core.errors import InvalidRequestError, PacelineError
from paceline.gateway.errors import (
    EngineEndedError,
    EngineStartingError,
    QueueFullError,
    ServiceError,
    ShuttingDownError,
    UnknownModelError,
    UnknownResponseError,
)

_STATUSES = MappingProxyType(
    {
        UnknownModelError: 404,
        UnknownResponseError: 404,
        QueueFullError: 429,
        EngineStartingError: 503,
        EngineEndedError: 503,
        ShuttingDownError: 503,
    }
)
_TYPES_BY_STATUS = MappingProxyType(
    {403: "permission_error", 429: "rate_limit_exceeded", 500: "server_error", 503: "service_unavailable"}
)


class ApiError(PacelineError):
    """An error response with this status; `retry_after_s` tells the client when to try again."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @property
    def kind(self) -> str:
        """The error type that OpenAI's API uses for this status."""
        return _TYPES_BY_STATUS.get(self.status, "invalid_request_error")

    @property
    def headers(self) -> dict[str, str]:
        """The response headers."""
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}


def openai_error_body(error: ApiError) -> dict[str, Any]:
    """Returns the response body in the form that OpenAI's clients expect. Paths without a front have it too."""
    return {"error": {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}}


def api_error_from(error: Exception) -> ApiError:
    """Returns the error that the client sees for any exception. Unexpected exceptions reveal nothing of the server."""
    match error:
        case ApiError():
            return error
        case ServiceError():
            return ApiError(
                _STATUSES.get(type(error), 500),
                str(error),
                param=error.param,
                code=error.code,
                retry_after_s=error.retry_after_s,
            )
        case InvalidRequestError():
            return ApiError(400, str(error), param=error.param, code=error.code)
        case PacelineError():
            return ApiError(500, str(error), code="engine_error")
        case _:
            return ApiError(500, "the server failed on this request: see its log", code="internal_error")
