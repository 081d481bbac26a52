"""`ProcessReplica`: the `Replica` of an engine process on this host, together with the tokenizer of its model."""

from __future__ import annotations

import time
from collections.abc import Sequence

from paceline.core import Request, SamplingParams
from paceline.core.messages import ModelInfo
from paceline.gateway.answer import Answer, Choice
from paceline.gateway.engines.call_preparer import CallPreparer, PreparedCall
from paceline.gateway.engines.model_card import ModelCard
from paceline.gateway.engines.process.client import EngineClient
from paceline.gateway.engines.process.engine_requests import engine_requests
from paceline.gateway.engines.process.supervisor import Supervisor
from paceline.gateway.engines.prompt_encoder import check_num_messages
from paceline.gateway.errors import ShuttingDownError
from paceline.gateway.generation_call import Chat, GenerationCall
from paceline.gateway.logprob_places import LogprobPlacer
from paceline.sampling import check_sampling_params
from paceline.tokenizer import Tokenizer


class ProcessReplica:
    """Prepares calls in the gateway, and has the engine process generate."""

    def __init__(
        self,
        name: str,
        *,
        served_name: str,
        own_model_name: str,
        preparer: CallPreparer,
        client: EngineClient,
        supervisor: Supervisor,
    ) -> None:
        self.name = name
        self.served_name = served_name
        self.model_names = frozenset({served_name, own_model_name})
        self._preparer = preparer
        self._client = client
        self._supervisor = supervisor

    @property
    def is_ready(self) -> bool:
        """Whether the tokenizer is loaded and the engine is ready."""
        return self._client.is_ready and self._preparer.encoder.is_ready

    @property
    def num_outstanding(self) -> int:
        """The number of requests that the engine holds or whose prompts are being made."""
        return self._client.num_outstanding

    @property
    def context_window_size(self) -> int | None:
        """The context window of the latest engine; None before an engine was ready for the first time."""
        return None if self._client.model is None else self._client.model.context_window_size

    @property
    def max_batch_size(self) -> int | None:
        """The most sequences in one step of the latest engine; None before an engine was ready for the first time."""
        return None if self._client.model is None else self._client.model.max_batch_size

    @property
    def model_identity(self) -> str:
        """Says which model gives the texts, and with which settings; empty before an engine was ready for the first
        time."""
        return "" if self._client.model is None else self._client.model.identity

    @property
    def card(self) -> ModelCard | None:
        """The facts about the model; None until its file was read."""
        return self._preparer.encoder.card

    async def tokenizer(self) -> Tokenizer:
        """Returns the model's tokenizer as soon as it is loaded."""
        return await self._preparer.encoder.tokenizer()

    async def count_tokens(self, chat: Chat, size_bytes: int) -> int:
        """Returns the number of tokens in a chat's prompt; raises InvalidRequestError if the template refuses it."""
        return await self._preparer.encoder.count_tokens(chat, size_bytes)

    async def begin(self, call: GenerationCall) -> Answer:
        """Sends the choices of all prompts to the engine; raises InvalidRequestError and ServiceError."""
        model = await self._client.wait_ready()
        tokenizer = await self._preparer.encoder.tokenizer()
        defaults = {} if self.card is None else self.card.sampling
        sampling = SamplingParams(**{**defaults, **call.sampling})
        check_sampling_params(sampling, model.vocab_size)
        prepared = await self._prepare(call, model)
        requests = engine_requests(call, prepared.prompts, sampling, prepared.constraint)
        outputs = await self._client.submit(requests, call.arrival_s)
        return Answer(
            call_id=call.call_id,
            created_s=int(time.time()),
            model_name=self.served_name,
            choices=_choices(requests, tokenizer, prepared, call.num_choices),
            outputs=outputs,
        )

    async def _prepare(self, call: GenerationCall, model: ModelInfo) -> PreparedCall:
        if isinstance(call.input, Chat):
            check_num_messages(len(call.input.messages), model)
        with self._client.preparing(call.num_requests):
            return await self._preparer.prepare(call, model)

    async def wait_open(self) -> None:
        """Returns when the engine is ready; raises ServiceError if it does not become ready in time."""
        await self._client.wait_ready()

    async def run(self) -> None:
        """Starts the process, and again whenever it ends; raises if the process cannot start the first time."""
        await self._supervisor.run()

    async def wait_ready(self) -> None:
        """Returns when tokenizer and engine are ready; raises if the tokenizer cannot be loaded."""
        await self._preparer.encoder.tokenizer()
        await self._client.wait_attached()

    def close(self) -> None:
        """Refuses new calls."""
        self._client.close()

    async def wait_idle(self) -> None:
        """Returns when the engine holds no request."""
        await self._client.wait_idle()

    def end(self) -> None:
        """Fails the requests that the engine still holds, with ShuttingDownError."""
        self._client.detach(ShuttingDownError())
        self._preparer.close()


def _choices(
    requests: Sequence[Request], tokenizer: Tokenizer, prepared: PreparedCall, num_choices: int
) -> list[Choice]:
    """Returns a choice for each request, in order. Each begins with its prompt's text if that is to be echoed."""
    return [
        Choice(
            index=index,
            is_first=request.choice_index == 0,
            num_prompt_tokens=len(request.prompt_token_ids),
            placer=None
            if request.sampling.num_logprobs is None
            else LogprobPlacer(tokenizer, request.prompt_token_ids, has_prompt=request.sampling.has_prompt_logprobs),
            text=prepared.echoed[index // num_choices] if prepared.echoed else "",
            parser=prepared.new_parser() if prepared.new_parser else None,
        )
        for index, request in enumerate(requests)
    ]
