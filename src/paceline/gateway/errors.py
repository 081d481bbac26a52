"""`ApiError`: an error with its HTTP status, in OpenAI's shape, and the errors that the gateway itself gives."""

from __future__ import annotations

from paceline.core.errors import InvalidRequestError, PacelineError

_TYPES_BY_STATUS = (
    (429, "rate_limit_exceeded"),
    (500, "server_error"),
    (503, "service_unavailable"),
)


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
        return dict(_TYPES_BY_STATUS).get(self.status, "invalid_request_error")

    @property
    def headers(self) -> dict[str, str]:
        """Response headers beside the body."""
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}


def model_not_found(model: str, served_name: str) -> ApiError:
    """The request names a model that is not served here."""
    message = f"model {model!r} is not served here: use {served_name!r} or 'default'"
    return ApiError(404, message, param="model", code="model_not_found")


def engine_crashed() -> ApiError:
    """The engine process ended while it held the request."""
    message = "the engine process ended while it held this request and is being restarted: send the request again"
    return ApiError(503, message, code="engine_crashed", retry_after_s=1)


def engine_starting(waited_s: float) -> ApiError:
    """The engine was not ready in time."""
    message = f"the engine is still starting after {waited_s:g} s: try again later"
    return ApiError(503, message, code="engine_starting", retry_after_s=5)


def shutting_down() -> ApiError:
    """The server was told to end."""
    return ApiError(503, "the server is shutting down: try again later", code="shutting_down", retry_after_s=5)


def queue_full(num_queued: int) -> ApiError:
    """Too many requests wait for their first token."""
    message = f"{num_queued} requests are already waiting: try again later"
    return ApiError(429, message, code="queue_full", retry_after_s=1)


def api_error_from(error: Exception) -> ApiError:
    """Any exception as what the client is told; one that nobody meant says nothing of its inside."""
    match error:
        case ApiError():
            return error
        case InvalidRequestError():
            return ApiError(400, str(error), param=error.param, code=error.code)
        case PacelineError():
            return ApiError(500, str(error), code="engine_error")
        case _:
            return ApiError(500, "the server failed on this request: see its log", code="internal_error")
