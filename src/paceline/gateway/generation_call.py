"""`GenerationCall`: what a client asks for, whatever front it came through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.core import Constraint, SamplingParams, SpeculationParams
from paceline.gateway.principal import Principal


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages for the model's chat template, and variables of the template that the client sets."""

    messages: Sequence[Mapping[str, object]]
    template_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationCall:
    """One call: `num_choices` answers to a chat, or to each of some prompts (texts or token ids).

    `model` None means the default one. Where `sampling` has no seed, each prompt gets one of its own. With `echo` an
    answer's text begins with its prompt's. `arrival_s` is the time of the monotonic clock at which the call came, and
    `size_bytes` the size of the whole call on the wire.
    """

    call_id: str
    model: str | None
    input: Chat | Sequence[str | list[int]]
    num_choices: int
    sampling: SamplingParams
    speculation: SpeculationParams
    constraint: Constraint | None = None
    echo: bool = False
    principal: Principal
    arrival_s: float
    size_bytes: int

    @property
    def num_requests(self) -> int:
        """Answers that the call asks for."""
        return self.num_choices * (1 if isinstance(self.input, Chat) else len(self.input))
