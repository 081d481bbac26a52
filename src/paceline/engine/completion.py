"""`Completion`: the whole answer to one prompt, joined from its outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.core import FinishReason, Output, SpeculationStats, TokenLogprob


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished answer. Log-probabilities are None unless the request asked for them; for the other fields see
    `Output`."""

    prompt_token_ids: list[int]
    token_ids: list[int]
    text: str
    logprobs: list[TokenLogprob] | None
    finish_reason: FinishReason
    stop_reason: str | int | None
    num_cached_tokens: int
    speculation: SpeculationStats
    error: str | None = None
    prompt_logprobs: list[TokenLogprob] | None = None

    @classmethod
    def from_outputs(cls, prompt_token_ids: list[int], outputs: Iterable[Output]) -> Completion:
        """Joins the outputs of one request; raises ValueError if the last output has no finish reason."""
        outputs = list(outputs)
        last = outputs[-1]
        if last.finish_reason is None:
            raise ValueError(f"request {last.request_id} is not finished")
        logprobs = [entry for output in outputs for entry in output.logprobs or ()]
        return cls(
            prompt_token_ids=prompt_token_ids,
            token_ids=[token_id for output in outputs for token_id in output.token_ids],
            text="".join(output.text for output in outputs),
            logprobs=logprobs if any(output.logprobs is not None for output in outputs) else None,
            finish_reason=last.finish_reason,
            stop_reason=last.stop_reason,
            num_cached_tokens=last.num_cached_tokens,
            speculation=last.speculation,
            error=last.error,
            prompt_logprobs=outputs[0].prompt_logprobs,
        )
