"""`SharedLayersDrafter`: the target's own first layers guess (self-speculation), for targets without a small sibling.

It has neither weights nor KV of its own: it reads the target's K and V of the committed text, and writes those of what
it drafts to the slots that the scheduler reserved for the draft, where the target writes the same bits later. So there
is nothing to catch up with, to move or to free, whatever happens to a sequence.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline.backends.native.model import ThreadPool
from paceline.backends.native.sampler import RowSampler
from paceline.backends.protocol import Model
from paceline.core import Draft, Plan, Sequence, Verdict
from paceline.drafters.chains.chain_batch import TokenRun, build_chain_batch
from paceline.drafters.chains.drawing import Drawing, draw
from paceline.drafters.chains.growing_draft import GrowingDraft


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
        """Drafts of up to `window` nodes, as far as the block table has slots for them; blocks for one pass of the
        first layers for each depth."""
        drawings = [self._open(sequence, plan) for sequence, plan in zip(sequences, plans, strict=True)]
        active = [drawing for drawing in drawings if drawing.draft.window > 0]
        while active:
            batch = build_chain_batch([_last_token(drawing) for drawing in active], self._model.kv.block_size)
            active = draw(active, self._model.forward(batch), threads=self._threads)
        return [drawing.draft.finish(self.name) for drawing in drawings]

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Nothing to do: what was committed is in the target's KV."""

    def end(self, sequence: Sequence) -> None:
        """Nothing to do."""

    def _open(self, sequence: Sequence, plan: Plan) -> Drawing:
        """The last drafted token is not fed back, so it needs no slot."""
        num_slots = len(sequence.block_table) * self._model.kv.block_size
        window = max(0, min(plan.window, num_slots - len(sequence.token_ids) + 1))
        sampler = self._samplers[sequence.sequence_id]
        return Drawing(sequence=sequence, sampler=sampler, draft=GrowingDraft(plan, window))


def _last_token(drawing: Drawing) -> TokenRun:
    """The run that gives the logits after the draft, or after the text where nothing was drawn yet."""
    token_ids, drawn = drawing.sequence.token_ids, drawing.draft.token_ids
    position = len(token_ids) - 1 + len(drawn)
    return TokenRun(drawing.sequence.block_table, position, [(drawn or token_ids)[-1]], needs_logits=True)
