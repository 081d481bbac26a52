"""`GenerationService`: answers the calls of every front. It knows nothing of HTTP."""

from __future__ import annotations

from paceline.drafters.registry import drafter_names
from paceline.gateway.answer import Answer
from paceline.gateway.generation_call import Chat, GenerationCall
from paceline.gateway.pool import Pool
from paceline.sampling.request_check import check_speculation
from paceline.tokenizer import Tokenizer


class GenerationService:
    """Answers calls with the replicas of a pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._drafter_names = frozenset(drafter_names())

    async def begin(self, call: GenerationCall) -> Answer:
        """Chooses a replica, hands the call to it, and returns once the call was sent to the replica's engine.

        The replica checks what depends on the model, renders, tokenizes and queues. Raises InvalidRequestError for a
        call that cannot be honoured, and ServiceError for a call that cannot be answered now.
        """
        check_speculation(call.speculation, self._drafter_names)
        replica = await self.pool.choose(call.model)
        return await replica.begin(call)

    async def count_tokens(self, chat: Chat, model: str | None, size_bytes: int) -> int:
        """Returns the number of tokens in the prompt of a chat, also if it does not fit into the context window.

        `size_bytes` is the size of the call on the wire. Raises UnknownModelError, and InvalidRequestError if the
        template refuses the chat.
        """
        return await self.pool.any_replica(model).count_tokens(chat, size_bytes)

    async def tokenizer(self, model: str | None) -> Tokenizer:
        """Returns the tokenizer of a served model (None: of the default one); raises UnknownModelError."""
        return await self.pool.any_replica(model).tokenizer()
