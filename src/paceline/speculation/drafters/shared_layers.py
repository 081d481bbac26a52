"""`SharedLayersDrafter`: the target's own first layers guess (self-speculation), for targets without a small sibling.

It has neither weights nor KV of its own: it reads the target's K and V of the committed text, and writes those of what
it drafts to the slots that the scheduler reserved for the draft, where the target writes the same bits later. So there
is nothing to catch up with, to move or to free, whatever happens to a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.core import Draft, Plan, Sequence, Verdict
from paceline.models import Model, ThreadPool
from paceline.models.sampling import RowSampler
from paceline.speculation.drafters.chain_batch import TokenRun, build_chain_batch
from paceline.speculation.drafters.guess import Guess, draw


class SharedLayersDrafter:
    """Drafts chains with `first_layers`, whose KV is the target's: one pass and one sampling call for each depth.

    `samplers` are the target's, by sequence id. `threads` sample (None: the calling thread alone).
    """

    name = "shared-layers"
    is_free = False

    def __init__(
        self, first_layers: Model, samplers: Mapping[str, RowSampler], *, threads: ThreadPool | None = None
    ) -> None:
        self._model = first_layers
        self._samplers = samplers
        self._threads = threads

    def begin(self, sequence: Sequence) -> None:
        """Nothing to do."""

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> list[Draft]:
        """Chains of up to `window` tokens, as far as the block table has slots for them; blocks for one pass of the
        first layers for each depth."""
        guesses = [self._open(sequence, plan) for sequence, plan in zip(sequences, plans, strict=True)]
        active = [guess for guess in guesses if guess.window > 0]
        while active:
            batch = build_chain_batch([_last_token(guess) for guess in active], self._model.kv.block_size)
            active = draw(active, self._model.forward(batch), threads=self._threads)
        return [guess.draft(self.name) for guess in guesses]

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Nothing to do: what was committed is in the target's KV."""

    def end(self, sequence: Sequence) -> None:
        """Nothing to do."""

    def _open(self, sequence: Sequence, plan: Plan) -> Guess:
        """The last drafted token is not fed back, so it needs no slot."""
        num_slots = len(sequence.block_table) * self._model.kv.block_size
        window = max(0, min(plan.window, num_slots - len(sequence.token_ids) + 1))
        return Guess(sequence=sequence, sampler=self._samplers[sequence.sequence_id], window=window, plan=plan)


def _last_token(guess: Guess) -> TokenRun:
    """The run that gives the logits after the guess, or after the text where nothing was guessed yet."""
    token_ids = guess.sequence.token_ids
    position = len(token_ids) - 1 + len(guess.token_ids)
    return TokenRun(guess.sequence.block_table, position, [(guess.token_ids or token_ids)[-1]], needs_logits=True)
