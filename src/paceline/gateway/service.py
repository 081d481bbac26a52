"""`GenerationService`: from a call to its answer, for every front. It knows no transport."""

from __future__ import annotations

from paceline.drafters.registry import drafter_names
from paceline.gateway.answer import Answer
from paceline.gateway.generation_call import GenerationCall
from paceline.gateway.pool import Pool
from paceline.sampling.request_check import check_speculation


class GenerationService:
    """Answers calls with the replicas of a pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._drafter_names = frozenset(drafter_names())

    async def begin(self, call: GenerationCall) -> Answer:
        """Chooses a replica and hands the call to it; returns once its engine has taken it.

        The replica checks what depends on the model, renders and tokenizes, and keeps the call in its queue. Raises
        InvalidRequestError for a call that cannot be honoured, ServiceError for one that is not answered now.
        """
        check_speculation(call.speculation, self._drafter_names)
        replica = await self.pool.choose(call.model)
        return await replica.begin(call)
