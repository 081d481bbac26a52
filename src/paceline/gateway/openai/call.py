"""`Call`: one API call that the engine works on, from its prompts to its choices."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from paceline.core import Output
from paceline.gateway.arrival import Arrival
from paceline.gateway.gateway import Gateway
from paceline.gateway.generation import Generation
from paceline.gateway.openai.choices import Choice, choices_of, speculation_of, usage_of
from paceline.gateway.openai.engine_requests import GenerationBody, engine_requests
from paceline.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Call:
    """What the handlers of both APIs share; `outputs` runs it and must be begun at once."""

    call_id: str
    created_s: int
    model_name: str
    tokenizer: Tokenizer
    choices: list[Choice]
    generation: Generation

    @classmethod
    async def start(
        cls, gateway: Gateway, body: GenerationBody, arrival: Arrival, prefix: str, prompts: list[list[int]]
    ) -> Call:
        """Hands the choices of all prompts to the engine; raises ApiError where it takes none."""
        tokenizer = await gateway.model.tokenizer()
        call_id = f"{prefix}-{uuid.uuid4().hex}"
        requests = engine_requests(body, call_id, prompts, arrival.tenant)
        generation = await gateway.client.submit(requests, arrival.time_s)
        created_s = int(time.time())
        return cls(call_id, created_s, gateway.model.name, tokenizer, choices_of(requests, tokenizer), generation)

    async def outputs(self) -> AsyncGenerator[tuple[Choice, Output], None]:
        """Each output with its choice, already added to it; closing the iterator aborts what is unfinished."""
        with self.generation:
            async for index, output in self.generation:
                choice = self.choices[index]
                choice.add(output)
                yield choice, output

    def envelope(self, kind: str) -> dict[str, Any]:
        """The fields that begin every object of this call."""
        return {"id": self.call_id, "object": kind, "created": self.created_s, "model": self.model_name}

    def totals(self) -> dict[str, Any]:
        """What is said of all choices together when they are complete."""
        return {"usage": usage_of(self.choices), "speculation": speculation_of(self.choices)}
