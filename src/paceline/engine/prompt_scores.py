"""`PromptScorer`: the log-probabilities of a prompt's own tokens, for requests that ask for them.

The row of a prompt's token gives the distribution of the token after it. The sampler is asked for that token under a
mask that allows no other, because it reports log-probabilities of the distribution before masks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.core import SamplingParams, TokenLogprob
from paceline.engine.batch_builder import StepBatch
from paceline.engine.scheduler import ScheduledSequence
from paceline.sampling.constraints import allow, empty_masks
from paceline.sampling.sampler import Logits, SampleQuery, Sampler


class PromptScorer:
    """Scores the rows of prompts in a step, with the sampler of the backend."""

    def __init__(self, sampler: Sampler, vocab_size: int) -> None:
        self._sampler = sampler
        self._rows = sampler.begin(SamplingParams(temperature=0.0), prompt_token_ids=(), seed=0)
        self._vocab_size = vocab_size

    def score(self, scheduled: Sequence[ScheduledSequence], step_batch: StepBatch, logits: Logits) -> None:
        """Adds to each request's state the log-probabilities of the prompt tokens whose rows the step had. Call it
        before the commit, while the sequences have their old positions."""
        row = step_batch.first_scored_row
        for item, positions in zip(scheduled, step_batch.scored_positions, strict=True):
            if positions:
                self._score_one(item, positions, row, logits)
                row += len(positions)

    def _score_one(self, item: ScheduledSequence, positions: range, first_row: int, logits: Logits) -> None:
        sequence, found = item.sequence, item.state.prompt_logprobs
        token_ids = sequence.token_ids[positions.start + 1 : positions.stop + 1]
        masks = empty_masks(len(token_ids), self._vocab_size)
        for place, token_id in enumerate(token_ids):
            allow(masks, place, token_id)
        num_logprobs = sequence.request.sampling.num_logprobs or 0
        queries = [
            SampleQuery(first_row + place, self._rows, position + 1, (), num_logprobs, place)
            for place, position in enumerate(positions)
        ]
        sampled = self._sampler.sample(logits, queries, masks)
        assert found is not None
        found[positions.start :] = [
            row.logprob or TokenLogprob(token_id, -np.inf) for row, token_id in zip(sampled, token_ids, strict=True)
        ]
