"""The errors with which the gateway refuses a call. They are independent of HTTP: each front translates them."""

from __future__ import annotations

from paceline.core.errors import PacelineError


class ServiceError(PacelineError):
    """The gateway cannot answer a call now, or cannot answer it at all.

    `code` is an identifier that programs can rely on. `param` names the field that caused the error (None: no field
    did). `retry_after_s` is the time after which the client may try again, if there is one.
    """

    code: str = "internal_error"
    param: str | None = None
    retry_after_s: int | None = None


class UnknownModelError(ServiceError):
    """The call names a model that is not served here."""

    code = "model_not_found"
    param = "model"

    def __init__(self, model: str, served_name: str) -> None:
        super().__init__(f"model {model!r} is not served here: use {served_name!r} or 'default'")


class UnknownResponseError(ServiceError):
    """The call names a stored response that is not there, or no longer there."""

    code = "response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"there is no stored response {response_id!r}: it may have been removed to make room")


class QueueFullError(ServiceError):
    """Too many requests are waiting for their first token."""

    code = "queue_full"
    retry_after_s = 1

    def __init__(self, num_queued: int) -> None:
        super().__init__(f"{num_queued} requests are already waiting: try again later")


class EngineStartingError(ServiceError):
    """The engine was not ready in time."""

    code = "engine_starting"
    retry_after_s = 5

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the engine is still starting after {waited_s:g} s: try again later")


class EngineEndedError(ServiceError):
    """The engine process ended while it held the request."""

    code = "engine_crashed"
    retry_after_s = 1

    def __init__(self) -> None:
        super().__init__(
            "the engine process ended while it held this request and is being restarted: send the request again"
        )


class ShuttingDownError(ServiceError):
    """The server is shutting down."""

    code = "shutting_down"
    retry_after_s = 5

    def __init__(self) -> None:
        super().__init__("the server is shutting down: try again later")
