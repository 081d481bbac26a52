"""`ApiError`: an error with its HTTP status, in OpenAI's shape; and the status of every error of the gateway."""

from __future__ import annotations

from types import MappingProxyType

from paceline.core.errors import InvalidRequestError, PacelineError
from paceline.gateway.errors import (
    EngineEndedError,
    EngineStartingError,
    QueueFullError,
    ServiceError,
    ShuttingDownError,
    UnknownModelError,
)

_STATUSES = MappingProxyType(
    {
        UnknownModelError: 404,
        QueueFullError: 429,
        EngineStartingError: 503,
        EngineEndedError: 503,
        ShuttingDownError: 503,
    }
)
_TYPES_BY_STATUS = MappingProxyType({429: "rate_limit_exceeded", 500: "server_error", 503: "service_unavailable"})


class ApiError(PacelineError):
    """A request gets this status; `retry_after_s` tells the client when to come again."""

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
    def body(self) -> dict[str, dict[str, str | None]]:
        """The error as OpenAI's clients expect it."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def kind(self) -> str:
        """OpenAI's word for errors of this status."""
        return _TYPES_BY_STATUS.get(self.status, "invalid_request_error")

    @property
    def headers(self) -> dict[str, str]:
        """Response headers beside the body."""
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}


def api_error_from(error: Exception) -> ApiError:
    """Returns any exception as the client is told it; one that nobody meant says nothing about the server's inside."""
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
