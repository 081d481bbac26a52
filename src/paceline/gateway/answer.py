"""`Answer`: the choices of one call while they are generated. All fronts share this definition of an answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from paceline.core import FinishReason, Output, SpeculationStats
from paceline.gateway.logprob_places import LogprobPlacer, PlacedLogprob
from paceline.gateway.parsing.answer_parser import AnswerParser
from paceline.gateway.parsing.events import Part, merged
from paceline.gateway.parsing.message import Message


@dataclass(slots=True, kw_only=True)
class Choice:
    """One choice of an answer: its text so far, and what its latest output said.

    A stream has already sent the first `num_sent` characters of `text` and the first `num_logprobs_sent` entries of
    `logprobs`. `stop_reason` is the stop string or the stop token that ended it. `is_first` marks the first choice of a
    prompt. `placer` is None if the call asks for no log-probabilities. For a chat, `parser` turns the text into
    `message`; `new_parts` were not sent yet. `num_read_tokens` is the part of the prompt that is read, if the latest
    output has no tokens but says that. `num_reasoning_tokens` counts the tokens before the answer proper begins.
    """

    index: int
    is_first: bool
    num_prompt_tokens: int
    placer: LogprobPlacer | None = None
    parser: AnswerParser | None = None
    message: Message = field(default_factory=Message)
    new_parts: list[Part] = field(default_factory=list)
    text: str = ""
    num_sent: int = 0
    num_tokens: int = 0
    num_cached_tokens: int = 0
    num_reasoning_tokens: int = 0
    num_read_tokens: int | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    speculation: SpeculationStats = field(default_factory=SpeculationStats)
    logprobs: list[PlacedLogprob] = field(default_factory=list)
    num_logprobs_sent: int = 0

    def add(self, output: Output) -> None:
        """Adds one output to the choice."""
        self.num_read_tokens = output.num_read_tokens
        num_accepted = output.speculation.num_accepted_tokens - self.speculation.num_accepted_tokens
        self.text += output.text
        self.num_tokens += len(output.token_ids)
        self.num_cached_tokens = output.num_cached_tokens
        self.finish_reason = output.finish_reason
        self.stop_reason = output.stop_reason
        self.speculation = output.speculation
        if self.placer is not None:
            self.logprobs += self.placer.add(output, num_accepted)
        if self.parser is not None:
            parts = self.parser.push(output.text)
            if output.finish_reason is not None:
                parts += self.parser.finish()
            self.message.add(parts)
            self.new_parts += parts
            if self.message.reasoning and not (self.message.content or self.message.calls):
                self.num_reasoning_tokens = self.num_tokens

    @property
    def has_logprobs(self) -> bool:
        """Whether the client asked for log-probabilities."""
        return self.placer is not None

    @property
    def has_stopped_to_call(self) -> bool:
        """Whether the model has ended the answer with complete tool calls."""
        calls = self.message.calls
        return self.finish_reason is FinishReason.STOP and bool(calls) and all(call.is_complete for call in calls)

    def take_parts(self) -> list[Part]:
        """Returns the parts of the message that were not sent yet, and marks them as sent."""
        parts, self.new_parts = merged(self.new_parts), []
        return parts

    def take_text(self) -> str:
        """Returns the text that was not sent yet, and marks it as sent."""
        text = self.text[self.num_sent :]
        self.num_sent = len(self.text)
        return text

    def take_logprobs(self) -> list[PlacedLogprob]:
        """Returns the log-probabilities that were not sent yet, and marks them as sent."""
        logprobs = self.logprobs[self.num_logprobs_sent :]
        self.num_logprobs_sent = len(self.logprobs)
        return logprobs


class OutputSource(AsyncIterator[tuple[int, Output]], AbstractContextManager["OutputSource"]):
    """The outputs of one call as they arrive, each with the index of its choice; ends when every choice has ended.

    Leaving the context aborts all unfinished choices. Iteration raises the first error of any choice.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a replica generates for one call. `created_s` is Unix time."""

    call_id: str
    created_s: int
    model_name: str
    choices: list[Choice]
    outputs: OutputSource

    async def news(self) -> AsyncGenerator[Choice, None]:
        """Adds each output to its choice, then yields that choice.

        Closing the iterator aborts all unfinished choices, but only if iteration has begun: begin at once. Raises
        PacelineError if the engine fails on a choice.
        """
        with self.outputs:
            async for index, output in self.outputs:
                choice = self.choices[index]
                choice.add(output)
                yield choice

    async def complete(self) -> None:
        """Returns when every choice has ended; raises what `news` raises."""
        async for _ in self.news():
            pass
