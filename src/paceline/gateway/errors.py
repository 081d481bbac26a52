"""Why the gateway does not answer a call. These errors know no transport: each front says them in its own way."""

from __future__ import annotations

from paceline.core.errors import PacelineError


class ServiceError(PacelineError):
    """A call is not answered now, or not here.

    `code` is a stable word for programs, `param` the field of the call that is to blame (None: none is), and
    `retry_after_s` when the client may come again (None: it need not).
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


class QueueFullError(ServiceError):
    """Too many requests wait for their first token."""

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
    """The server was told to end."""

    code = "shutting_down"
    retry_after_s = 5

    def __init__(self) -> None:
        super().__init__("the server is shutting down: try again later")
