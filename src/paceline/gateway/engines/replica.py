"""`Replica`: one engine behind the gateway. The pool chooses among replicas; fronts never see which one answers."""

from __future__ import annotations

from typing import Protocol

from paceline.gateway.answer import Answer
from paceline.gateway.generation_call import GenerationCall


class Replica(Protocol):
    """One engine that answers calls for one model.

    `name` tells it apart from others in metrics and logs. `served_name` is the model's name for clients, `model_names`
    are all names by which they may ask for it.
    """

    name: str
    served_name: str
    model_names: frozenset[str]

    @property
    def is_ready(self) -> bool:
        """Whether a call would be answered at once."""
        ...

    @property
    def num_outstanding(self) -> int:
        """Requests that it holds and has not finished."""
        ...

    @property
    def context_window_size(self) -> int | None:
        """Most tokens of prompt and answer; None as long as that is not known."""
        ...

    async def begin(self, call: GenerationCall) -> Answer:
        """Checks the call against the model, makes its prompts, and hands it to the engine.

        Waits for an engine that is starting. Raises InvalidRequestError and ServiceError.
        """
        ...

    async def wait_open(self) -> None:
        """Returns when a call would be taken; raises ServiceError where that takes too long, too many wait, or the
        server ends."""
        ...

    async def run(self) -> None:
        """Keeps the engine running until it is cancelled; raises where it cannot be started the first time."""
        ...

    async def wait_ready(self) -> None:
        """Returns when the engine has become ready for the first time, or the replica is closed."""
        ...

    def close(self) -> None:
        """Refuses new calls; those that are being answered go on."""
        ...

    async def wait_idle(self) -> None:
        """Returns when no call is being answered."""
        ...

    def end(self) -> None:
        """Ends with ShuttingDownError whatever is still being answered."""
        ...
