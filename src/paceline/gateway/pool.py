"""`Pool`: holds the replicas of one gateway and chooses which of them gets a call."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.gateway.engines.model_card import ModelCard
from paceline.gateway.engines.replica import Replica
from paceline.gateway.errors import ServiceError, UnknownModelError

DEFAULT_MODEL = "default"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that clients can ask for. `context_window_size` is None until an engine has loaded the model, and `card`
    is None until the model file was read. Texts of models with the same `identity` are the same; it is empty until an
    engine was ready."""

    name: str
    context_window_size: int | None
    card: ModelCard | None = None
    identity: str = ""


class Pool:
    """One or more replicas. Clients can also ask for the first replica's model by the name `default`."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = tuple(replicas)
        self._num_calls: Counter[Replica] = Counter()

    @property
    def default_model(self) -> str:
        """The name of the model that answers calls without a model name."""
        return self.replicas[0].served_name

    @property
    def is_ready(self) -> bool:
        """Whether any replica is ready."""
        return any(replica.is_ready for replica in self.replicas)

    @property
    def num_slots(self) -> int:
        """How many sequences all engines together can work on at a time; 0 until an engine was ready."""
        return sum(replica.max_batch_size or 0 for replica in self.replicas)

    def num_slots_of(self, model: str) -> int:
        """How many sequences the engines of this model can work on at a time; raises UnknownModelError."""
        return sum(replica.max_batch_size or 0 for replica in self._serving(model))

    @property
    def num_outstanding(self) -> int:
        """The number of requests that all engines together hold."""
        return sum(replica.num_outstanding for replica in self.replicas)

    def is_model_ready(self, name: str) -> bool:
        """Returns whether a replica of this model is ready; raises UnknownModelError."""
        return any(replica.is_ready for replica in self._serving(name))

    async def choose(self, model: str | None) -> Replica:
        """Returns the replica that gets the next call for this model (None: the default model).

        Of the ready replicas it takes the one with the fewest outstanding requests, and among equals the one that got
        the fewest calls so far. If none is ready, it waits for the first. Raises UnknownModelError and what
        `Replica.wait_open` raises.
        """
        serving = self._serving(model)
        if not any(replica.is_ready for replica in serving):
            await _first_open(serving)
        chosen = min(
            serving, key=lambda replica: (not replica.is_ready, replica.num_outstanding, self._num_calls[replica])
        )
        self._num_calls[chosen] += 1
        return chosen

    def any_replica(self, model: str | None) -> Replica:
        """Returns a replica that serves this model (None: the default model); raises UnknownModelError."""
        return self._serving(model)[0]

    def find_model(self, name: str) -> ServedModel:
        """Returns the model with this name; raises UnknownModelError."""
        candidates = self._serving(name)
        sizes = (replica.context_window_size for replica in candidates)
        cards = (replica.card for replica in candidates)
        return ServedModel(
            candidates[0].served_name,
            next((size for size in sizes if size is not None), None),
            next((card for card in cards if card is not None), None),
            next((replica.model_identity for replica in candidates if replica.model_identity), ""),
        )

    def models(self) -> list[ServedModel]:
        """Returns every model once."""
        names = dict.fromkeys(replica.served_name for replica in self.replicas)
        return [self.find_model(name) for name in names]

    async def run(self) -> None:
        """Runs all replicas until it is cancelled. Raises the error of the first replica that cannot start."""
        try:
            async with asyncio.TaskGroup() as group:
                for replica in self.replicas:
                    group.create_task(replica.run())
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def close(self) -> None:
        """Refuses new calls; calls in progress go on."""
        for replica in self.replicas:
            replica.close()

    async def wait_idle(self) -> None:
        """Returns when no call is in progress. Call `close` first, or new calls may arrive meanwhile."""
        for replica in self.replicas:
            await replica.wait_idle()

    def end(self) -> None:
        """Ends all calls in progress with an error."""
        for replica in self.replicas:
            replica.end()

    def _serving(self, model: str | None) -> list[Replica]:
        wanted = self.default_model if model is None or model == DEFAULT_MODEL else model
        found = [replica for replica in self.replicas if wanted in replica.model_names]
        if not found:
            raise UnknownModelError(wanted, self.default_model)
        return found


async def _first_open(replicas: Sequence[Replica]) -> None:
    """Returns when any of the replicas takes calls; raises the last error if none of them does."""
    waiting = [asyncio.ensure_future(replica.wait_open()) for replica in replicas]
    try:
        for number, opening in enumerate(asyncio.as_completed(waiting), 1):
            try:
                await opening
            except ServiceError:
                if number == len(waiting):
                    raise
            else:
                return
    finally:
        for opening in waiting:
            opening.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
