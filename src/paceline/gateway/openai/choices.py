"""What was generated so far for each choice of a call, and what responses say of it: usage and speculation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from paceline.core import FinishReason, Output, Request, SpeculationStats
from paceline.gateway.openai.logprobs import LogprobPlacer, PlacedLogprob
from paceline.tokenizer import Tokenizer


@dataclass(slots=True)
class Choice:
    """One choice: its text so far, of which a stream has sent `num_sent` characters, and what the last output said.

    `logprobs` are those of the text's tokens, of which a stream has sent `num_logprobs_sent`.
    """

    index: int
    request: Request
    placer: LogprobPlacer
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
        self.logprobs += self.placer.add(output)

    @property
    def has_logprobs(self) -> bool:
        """Whether the client asked for log-probabilities."""
        return self.request.sampling.num_logprobs is not None

    def take_text(self) -> str:
        """The text not sent yet, which counts as sent from now on."""
        text = self.text[self.num_sent :]
        self.num_sent = len(self.text)
        return text

    def take_logprobs(self) -> list[PlacedLogprob]:
        """The log-probabilities not sent yet, which count as sent from now on."""
        logprobs = self.logprobs[self.num_logprobs_sent :]
        self.num_logprobs_sent = len(self.logprobs)
        return logprobs


def choices_of(requests: Iterable[Request], tokenizer: Tokenizer) -> list[Choice]:
    """A choice for each request, in order."""
    return [
        Choice(index, request, LogprobPlacer(tokenizer, request.prompt_token_ids))
        for index, request in enumerate(requests)
    ]


def usage_of(choices: list[Choice]) -> dict[str, Any]:
    """OpenAI's usage; the prompt of several choices counts once."""
    prompts = [choice for choice in choices if choice.request.choice_index == 0]
    num_prompt_tokens = sum(len(choice.request.prompt_token_ids) for choice in prompts)
    num_completion_tokens = sum(choice.num_tokens for choice in choices)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_completion_tokens,
        "total_tokens": num_prompt_tokens + num_completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(choice.num_cached_tokens for choice in prompts)},
    }


def usage_so_far(choice: Choice, num_tokens: int) -> dict[str, int]:
    """Returns the usage of one choice when its client has got `num_tokens` of it."""
    num_prompt_tokens = len(choice.request.prompt_token_ids)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": num_prompt_tokens + num_tokens,
    }


class ChunkUsage:
    """Says what a stream's chunks have in their field `usage`, as the request's `stream_options` want it."""

    def __init__(self, *, has_usage_chunk: bool, has_usage_in_chunks: bool) -> None:
        self._empty: dict[str, Any] = {"usage": None} if has_usage_chunk else {}
        self._is_continuous = has_usage_in_chunks

    def field(self, choice: Choice, num_tokens: int) -> dict[str, Any]:
        """Returns the field for a chunk of this choice, or nothing."""
        return {"usage": usage_so_far(choice, num_tokens)} if self._is_continuous else self._empty


def speculation_of(choices: list[Choice]) -> dict[str, Any]:
    """Paceline's extension: what drafts brought for these choices together."""
    drafted: Counter[str] = Counter()
    accepted: Counter[str] = Counter()
    for choice in choices:
        for name, (num_drafted, num_accepted) in choice.speculation.by_drafter.items():
            drafted[name] += num_drafted
            accepted[name] += num_accepted
    num_steps = sum(choice.speculation.num_steps for choice in choices)
    num_tokens = sum(choice.num_tokens for choice in choices)
    return {
        "steps": num_steps,
        "drafted": sum(choice.speculation.num_draft_tokens for choice in choices),
        "accepted": sum(choice.speculation.num_accepted_tokens for choice in choices),
        "tokens_per_step": round(num_tokens / num_steps, 3) if num_steps else 0.0,
        "by_drafter": {name: {"drafted": drafted[name], "accepted": accepted[name]} for name in drafted},
        "reason": _reason(choices),
    }


def _reason(choices: list[Choice]) -> str | None:
    """Why nothing was drafted: the first choice's reason, where that holds for all of them."""
    reasons = [choice.speculation.reason for choice in choices]
    return None if None in reasons else next(iter(reasons), None)
