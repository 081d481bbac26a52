"""Commit: appends a verdict's tokens to a sequence one by one, up to the token that ends the sequence.

The scheduler calls it. Tokens that were accepted beyond the end are dropped and not counted, so nothing that a client
sees depends on how many tokens a step verified.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core import FinishReason, Output, TokenLogprob, Verdict
from paceline.engine.request_state import RequestState
from paceline.engine.text_stream import Finish


@dataclass(frozen=True, slots=True)
class Commit:
    """What one sequence gained in a step: tokens, their text and log-probabilities, and how many a draft had guessed.

    `first_token_index` is the index of the first of these tokens among all output tokens. For the other fields see
    `Output`.
    """

    state: RequestState
    first_token_index: int
    token_ids: list[int]
    text: str
    num_accepted: int
    logprobs: list[TokenLogprob] | None = None
    finish: Finish | None = None
    error: str | None = None
    num_read_tokens: int | None = None
    prompt_logprobs: list[TokenLogprob] | None = None

    @classmethod
    def ended(cls, state: RequestState, finish: Finish, error: str | None = None) -> Commit:
        """Returns a commit that ends a sequence without new tokens."""
        first = state.sequence.num_output_tokens
        prompt_logprobs = state.take_prompt_logprobs()
        return cls(state, first, [], "", 0, finish=finish, error=error, prompt_logprobs=prompt_logprobs)

    @classmethod
    def of_progress(cls, state: RequestState) -> Commit:
        """Returns a commit without tokens, which says how much of the prompt is read."""
        return cls(state, 0, [], "", 0, num_read_tokens=state.sequence.num_computed_tokens)

    def output(self, epoch: int) -> Output:
        """Returns the output for the client."""
        sequence = self.state.sequence
        return Output(
            request_id=sequence.sequence_id,
            epoch=epoch,
            first_token_index=self.first_token_index,
            token_ids=self.token_ids,
            text=self.text,
            logprobs=self.logprobs,
            prompt_logprobs=self.prompt_logprobs,
            finish_reason=self.finish.reason if self.finish else None,
            stop_reason=self.finish.stop_reason if self.finish else None,
            error=self.error,
            num_cached_tokens=sequence.num_cached_tokens,
            num_read_tokens=self.num_read_tokens,
            speculation=self.state.speculation,
        )


def commit_verdict(state: RequestState, verdict: Verdict) -> Commit:
    """Appends the verdict's tokens until one ends the sequence, and updates the request's state with them.

    The KV of the accepted nodes must already be in the slots after the sequence's tokens; the KV of the last token is
    not computed yet. A verdict with an error ends the sequence.
    """
    if verdict.error is not None:
        return Commit.ended(state, Finish(FinishReason.ERROR), f"the model gave no next token: {verdict.error}")
    sequence = state.sequence
    first_token_index = sequence.num_output_tokens
    token_ids, text, finish = _append(state, verdict)
    num_accepted = min(len(verdict.path), len(token_ids))
    sequence.num_computed_tokens += num_accepted
    _count(state, verdict, num_accepted)
    if finish is None:
        state.sampler.append(token_ids)
    has_logprobs = sequence.request.sampling.num_logprobs is not None
    logprobs = list(verdict.logprobs[: len(token_ids)]) if has_logprobs else None
    return Commit(
        state,
        first_token_index,
        token_ids,
        text,
        num_accepted,
        logprobs,
        finish,
        prompt_logprobs=state.take_prompt_logprobs(),
    )


def _append(state: RequestState, verdict: Verdict) -> tuple[list[int], str, Finish | None]:
    token_ids: list[int] = []
    text = ""
    for token_id in verdict.committed:
        token_ids.append(token_id)
        state.sequence.token_ids.append(token_id)
        progress = state.stream.push(token_id)
        text += progress.text
        if progress.finish is not None:
            return token_ids, text, progress.finish
    return token_ids, text, None


def _count(state: RequestState, verdict: Verdict, num_accepted: int) -> None:
    sequence = state.sequence
    sequence.num_steps += 1
    sequence.num_draft_tokens += verdict.num_drafted
    sequence.num_accepted_tokens += num_accepted
    if verdict.num_drafted:
        drafted, accepted = state.by_drafter.get(verdict.drafter, (0, 0))
        state.by_drafter[verdict.drafter] = (drafted + verdict.num_drafted, accepted + num_accepted)
