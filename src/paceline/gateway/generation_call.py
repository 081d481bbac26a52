"""`GenerationCall`: what a client asks for, independent of the front that received it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from paceline.core import Constraint, SpeculationParams
from paceline.gateway.parsing.tools import Tool, ToolChoice
from paceline.gateway.principal import Principal


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages for the model's chat template, the template variables that the client sets, and the tools that the model
    may or must call. `tools_field` is the field of the client's request that has the tools; errors name it."""

    messages: Sequence[Mapping[str, object]]
    template_options: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    tools_field: str = "tools"

    @property
    def allowed_tools(self) -> list[Tool]:
        """The tools that the model may call."""
        return self.tool_choice.allowed(self.tools)


@dataclass(frozen=True, slots=True)
class Infill:
    """Two texts, for a model that writes the text between them. `files` are names and texts of other files of the
    project. `begun` is the beginning of the text between, which the model continues."""

    prefix: str
    suffix: str
    files: tuple[tuple[str, str], ...] = ()
    begun: str = ""


Input: TypeAlias = Chat | Infill | Sequence[str | list[int]]
"""What the model answers: a chat, a gap to fill in, or prompts (texts or token ids)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationCall:
    """One call. It asks for `num_choices` answers to its input, or to each prompt of it.

    `model` None means the default model. `sampling` has the fields of `SamplingParams` that the client set; the model's
    defaults apply to the others. Without a seed, each prompt gets its own random seed. With `echo`, each answer begins
    with the text of its prompt. `arrival_s` is the arrival time on the monotonic clock, and `size_bytes` is the size of
    the whole call on the wire. A call for one answer may go on after `resumed_token_ids`, which an earlier answer has
    given. The choices of a prompt have the indices from `first_choice_index` on. With `has_progress`, the answer also
    says how much of the prompt is read.
    """

    call_id: str
    model: str | None
    input: Input
    num_choices: int
    sampling: Mapping[str, Any]
    speculation: SpeculationParams
    constraint: Constraint | None = None
    echo: bool = False
    principal: Principal
    arrival_s: float
    size_bytes: int
    resumed_token_ids: tuple[int, ...] = ()
    first_choice_index: int = 0
    has_progress: bool = False

    @property
    def num_requests(self) -> int:
        """The number of answers that the call asks for: `num_choices` for each prompt."""
        return self.num_choices * (1 if isinstance(self.input, Chat | Infill) else len(self.input))
