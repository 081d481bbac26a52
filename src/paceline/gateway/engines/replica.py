"""`Replica`: one engine behind the gateway. The pool chooses a replica for each call; fronts do not see which."""

from __future__ import annotations

from typing import Protocol

from paceline.gateway.answer import Answer
from paceline.gateway.engines.model_card import ModelCard
from paceline.gateway.generation_call import Chat, GenerationCall
from paceline.tokenizer import Tokenizer


class Replica(Protocol):
    """One engine that answers calls for one model.

    `name` identifies the replica in metrics and logs. `served_name` is the model's name in responses; `model_names` are
    all names by which clients may ask for it.
    """

    name: str
    served_name: str
    model_names: frozenset[str]

    @property
    def is_ready(self) -> bool:
        """Whether the replica takes calls without waiting for its engine to start."""
        ...

    @property
    def num_outstanding(self) -> int:
        """The number of requests that the replica has taken and not finished."""
        ...

    @property
    def context_window_size(self) -> int | None:
        """The most tokens that prompt and answer may have together; None until the engine was ready once."""
        ...

    @property
    def max_batch_size(self) -> int | None:
        """The most sequences in one step; None until the engine was ready once."""
        ...

    @property
    def model_identity(self) -> str:
        """Says which model gives the texts, and with which settings that change them; empty until the engine was ready
        once."""
        ...

    @property
    def card(self) -> ModelCard | None:
        """The facts about the model; None until its file was read."""
        ...

    async def tokenizer(self) -> Tokenizer:
        """Returns the model's tokenizer as soon as it is loaded."""
        ...

    async def count_tokens(self, chat: Chat, size_bytes: int) -> int:
        """Returns the number of tokens in a chat's prompt; raises InvalidRequestError if the template refuses it."""
        ...

    async def begin(self, call: GenerationCall) -> Answer:
        """Checks the call against the model, renders and tokenizes its prompts, and hands it to the engine.

        Waits if the engine is starting. Raises InvalidRequestError and ServiceError.
        """
        ...

    async def wait_open(self) -> None:
        """Returns when the replica takes calls.

        Raises ServiceError if that takes too long, if too many calls wait already, or if the server shuts down.
        """
        ...

    async def run(self) -> None:
        """Keeps the engine running until cancelled; raises if the engine cannot start the first time."""
        ...

    async def wait_ready(self) -> None:
        """Returns when the engine has become ready for the first time, or when the replica is closed."""
        ...

    def close(self) -> None:
        """Refuses new calls; calls in progress go on."""
        ...

    async def wait_idle(self) -> None:
        """Returns when no call is in progress."""
        ...

    def end(self) -> None:
        """Ends all calls in progress with ShuttingDownError."""
        ...
