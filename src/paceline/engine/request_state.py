"""`RequestState`: everything that the engine keeps for one request beside its plain `Sequence`.

Drafters and verifier see only the `Sequence`. Text, stop tests, the sampler and block hashes are kept here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.core import Sequence, SpeculationMode, SpeculationStats, TokenLogprob
from paceline.core.draft import NO_ROOM
from paceline.engine.text_stream import TextStream
from paceline.sampling.sequence_sampler import SequenceSampler


@dataclass(slots=True, eq=False)
class RequestState:
    """One request in the engine.

    `max_length` is the number of tokens, prompt included, at which the request ends with the finish reason `length`.
    `block_hashes` are the hashes of the leading blocks of its table that the prefix cache knows. `by_drafter` has the
    numbers of drafted and accepted tokens. `reason` says why the latest step that had room for a draft had none; at
    first it says that no step had room. `prompt_logprobs` collects the log-probabilities of the prompt's tokens, until
    they were sent; None means that nobody wants them, or no longer.
    """

    sequence: Sequence
    stream: TextStream
    sampler: SequenceSampler
    max_length: int
    block_hashes: list[bytes] = field(default_factory=list)
    num_preemptions: int = 0
    by_drafter: dict[str, tuple[int, int]] = field(default_factory=dict)
    reason: str | None = NO_ROOM
    prompt_logprobs: list[TokenLogprob] | None = None

    @property
    def max_window(self) -> int:
        """The most draft tokens that can still be committed; the last token always comes from the target itself."""
        return max(0, self.max_length - len(self.sequence.token_ids) - 1)

    def take_prompt_logprobs(self) -> list[TokenLogprob] | None:
        """Returns the log-probabilities of the prompt's tokens the first time, and None afterwards."""
        taken, self.prompt_logprobs = self.prompt_logprobs, None
        return taken

    @property
    def speculation(self) -> SpeculationStats:
        """The steps, drafted tokens and accepted tokens of this request so far."""
        return SpeculationStats(
            num_steps=self.sequence.num_steps,
            num_draft_tokens=self.sequence.num_draft_tokens,
            num_accepted_tokens=self.sequence.num_accepted_tokens,
            by_drafter=dict(self.by_drafter),
            reason=self._reason,
        )

    @property
    def _reason(self) -> str | None:
        speculation = self.sequence.request.speculation
        if speculation.mode is SpeculationMode.OFF or speculation.max_window == 0 or speculation.drafters == ():
            return "request"
        return None if self.sequence.num_draft_tokens else self.reason
