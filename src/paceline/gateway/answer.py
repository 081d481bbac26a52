"""`Answer`: the choices of one call while they are generated. What an answer is, is decided here for all fronts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from paceline.core import FinishReason, Output, SpeculationStats
from paceline.gateway.logprob_places import LogprobPlacer, PlacedLogprob


@dataclass(slots=True, kw_only=True)
class Choice:
    """One choice: its text so far, of which a stream has sent `num_sent` characters, and what the last output said.

    `is_first` says that it is the first of its prompt's choices. `logprobs` are those of the text's tokens, of which a
    stream has sent `num_logprobs_sent`; `placer` is None where the call asks for none.
    """

    index: int
    is_first: bool
    num_prompt_tokens: int
    placer: LogprobPlacer | None = None
    text: str = ""
    num_sent: int = 0
    num_tokens: int = 0
    num_cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    speculation: SpeculationStats = field(default_factory=SpeculationStats)
    logprobs: list[PlacedLogprob] = field(default_factory=list)
    num_logprobs_sent: int = 0

    def add(self, output: Output) -> None:
        """Takes over the news of one output."""
        self.text += output.text
        self.num_tokens += len(output.token_ids)
        self.num_cached_tokens = output.num_cached_tokens
        self.finish_reason = output.finish_reason
        self.speculation = output.speculation
        if self.placer is not None:
            self.logprobs += self.placer.add(output)

    @property
    def has_logprobs(self) -> bool:
        """Whether the client asked for log-probabilities."""
        return self.placer is not None

    def take_text(self) -> str:
        """Returns the text not sent yet, which counts as sent from now on."""
        text = self.text[self.num_sent :]
        self.num_sent = len(self.text)
        return text

    def take_logprobs(self) -> list[PlacedLogprob]:
        """Returns the log-probabilities not sent yet, which count as sent from now on."""
        logprobs = self.logprobs[self.num_logprobs_sent :]
        self.num_logprobs_sent = len(self.logprobs)
        return logprobs


class OutputSource(AsyncIterator[tuple[int, Output]], AbstractContextManager["OutputSource"]):
    """The outputs of one call's choices as they arrive, each with its choice's index; ends when every choice has.

    Leaving the context aborts what is unfinished. Iteration raises the first error of any choice.
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
        """Yields the choice of each output, which it already has; must be begun at once.

        Closing the iterator aborts what is unfinished. Raises PacelineError where the engine fails on a choice.
        """
        with self.outputs:
            async for index, output in self.outputs:
                choice = self.choices[index]
                choice.add(output)
                yield choice

    async def complete(self) -> None:
        """Returns when every choice has ended; raises as `news` does."""
        async for _ in self.news():
            pass
