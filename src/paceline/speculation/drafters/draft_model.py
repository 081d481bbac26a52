"""`DraftModelDrafter`: a smaller model guesses, with a KV store and block manager of its own.

What it has not seen of a sequence (prompt, other drafters' tokens) it reads lazily, in chunks. It counts in its own
model's tokens of the text; `draft_text` relates them to the target's, and `guess` draws the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.core import Draft, Plan, Sequence, Verdict
from paceline.kvcache import BlockManager
from paceline.models import Model, ThreadPool
from paceline.models.sampling import RowSampler
from paceline.speculation.drafters.chain_batch import TokenRun, build_chain_batch
from paceline.speculation.drafters.draft_text import DraftText, DraftVocabulary, SameVocabulary
from paceline.speculation.drafters.guess import Guess, draw


@dataclass(slots=True)
class _DraftCache:
    """What of a sequence is in the draft model's KV: `num_computed` tokens of `text`, then `ahead`, drafted ones."""

    text: DraftText
    block_table: list[int] = field(default_factory=list)
    num_computed: int = 0
    ahead: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Guess(Guess):
    """A draft in the making, with what the draft model has of its text."""

    cache: _DraftCache

    @property
    def lag(self) -> int:
        """Tokens of the text that the draft model has not seen; at least one, whose logits start the draft."""
        return len(self.cache.text.token_ids) - self.cache.num_computed

    @property
    def num_slots(self) -> int:
        """Slots of the whole text and of all drafted tokens that are fed back."""
        return len(self.cache.text.token_ids) + self.window - 1


class DraftModelDrafter:
    """Drafts chains with `model`, batched over sequences: one forward pass and one sampling call for each depth.

    `samplers` are the target's, by sequence id; `vocabulary` says how the model's tokens relate to the target's.
    `num_blocks` KV blocks are allocated; a sequence that finds none free, or has no room in `max_length` tokens (None:
    the model's context), gets empty drafts. A call reads at most `prefill_chunk_size` unseen tokens over all sequences,
    and a sequence drafts once it has none left. `threads` sample (None: the calling thread alone).
    """

    name = "draft-model"
    is_free = False

    def __init__(
        self,
        model: Model,
        samplers: Mapping[str, RowSampler],
        *,
        num_blocks: int,
        prefill_chunk_size: int = 256,
        max_length: int | None = None,
        vocabulary: DraftVocabulary | None = None,
        threads: ThreadPool | None = None,
    ) -> None:
        model.kv.allocate(num_blocks)
        self._model = model
        self._samplers = samplers
        self._threads = threads
        self._prefill_chunk_size = prefill_chunk_size
        self._max_length = max_length or model.config.max_context
        self._vocabulary = vocabulary or SameVocabulary()
        self._blocks = BlockManager(num_blocks, model.kv.block_size)
        self._caches: dict[str, _DraftCache] = {}

    @property
    def num_free_blocks(self) -> int:
        """KV blocks that no sequence holds."""
        return self._blocks.num_free_blocks

    def begin(self, sequence: Sequence) -> None:
        """Starts with nothing computed; costs nothing until the first proposal."""
        self._caches[sequence.sequence_id] = _DraftCache(self._vocabulary.text_of(sequence))

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> list[Draft]:
        """Chains of up to `window` tokens; blocks for one forward pass of the draft model for each depth."""
        guesses = [self._open(sequence, plan) for sequence, plan in zip(sequences, plans, strict=True)]
        runs, active = self._unseen([guess for guess in guesses if guess.window > 0])
        while runs:
            logits = self._model.forward(build_chain_batch(runs, self._blocks.block_size))
            rows = self._vocabulary.target_rows(logits)
            active = draw(active, rows, threads=self._threads, is_known=self._is_known)
            runs = [self._feed_back(guess) for guess in active]
        return [guess.draft(self.name) for guess in guesses]

    def num_missed(self, sequence: Sequence) -> int:
        """Tokens of the text before the last one that are still to be read before a draft can start."""
        cache = self._caches[sequence.sequence_id]
        self._settle(cache)
        return max(0, len(cache.text.token_ids) - cache.num_computed - 1)

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Keeps the KV of drafted tokens that were committed and trims the rest."""
        for sequence in sequences:
            self._settle(self._caches[sequence.sequence_id])

    def end(self, sequence: Sequence) -> None:
        """Frees the sequence's blocks."""
        self._blocks.trim(self._caches.pop(sequence.sequence_id).block_table, 0)

    def _settle(self, cache: _DraftCache) -> None:
        """Follows the committed text: the KV of what it shares with what was computed stays."""
        num_same = cache.text.update()
        if num_same < cache.num_computed:
            cache.num_computed = num_same
            cache.ahead.clear()
        token_ids, first = cache.text.token_ids, cache.num_computed
        for drafted, token_id in zip(cache.ahead, token_ids[first : first + len(cache.ahead)], strict=False):
            if drafted != token_id:
                break
            cache.num_computed += 1
        # The last token's logits are wanted next, so it is computed again even where its KV is there.
        cache.num_computed = max(0, min(cache.num_computed, len(token_ids) - 1))
        cache.ahead.clear()
        self._blocks.trim(cache.block_table, cache.num_computed)

    def _open(self, sequence: Sequence, plan: Plan) -> _Guess:
        """A guess with its slots reserved; its window is 0 where there is no room."""
        cache = self._caches[sequence.sequence_id]
        self._settle(cache)
        sampler = self._samplers[sequence.sequence_id]
        length = len(cache.text.token_ids)
        room = self._max_length - length + 1 if length > 0 else 0
        window = max(0, min(plan.window, room))
        guess = _Guess(sequence=sequence, sampler=sampler, window=window, plan=plan, cache=cache)
        if guess.window > 0 and self._blocks.can_grow(cache.block_table, guess.num_slots):
            self._blocks.grow(cache.block_table, guess.num_slots)
        else:
            guess.window = 0
        return guess

    def _unseen(self, guesses: list[_Guess]) -> tuple[list[TokenRun], list[_Guess]]:
        """The tokens to read now, those of who lacks the fewest first, and who lacks none then, in the runs' order."""
        runs: list[TokenRun] = []
        ready: list[_Guess] = []
        budget = self._prefill_chunk_size
        for guess in sorted(guesses, key=lambda guess: guess.lag):
            count = min(guess.lag, budget)
            if count == 0:
                break
            budget -= count
            is_ready = count == guess.lag
            first = guess.cache.num_computed
            token_ids = guess.cache.text.token_ids[first : first + count]
            runs.append(TokenRun(guess.cache.block_table, first, token_ids, needs_logits=is_ready))
            guess.cache.num_computed += count
            if is_ready:
                ready.append(guess)
        return runs, ready

    def _is_known(self, token_id: int) -> bool:
        """Whether the target has the token."""
        return self._vocabulary.draft_id(token_id) is not None

    def _feed_back(self, guess: _Guess) -> TokenRun:
        """The run that gives the logits after the guess's last token."""
        draft_id = self._vocabulary.draft_id(guess.token_ids[-1])
        assert draft_id is not None  # else it would not have been drawn
        cache = guess.cache
        position = len(cache.text.token_ids) + len(cache.ahead)
        cache.ahead.append(draft_id)
        return TokenRun(cache.block_table, position, [draft_id], needs_logits=True)
