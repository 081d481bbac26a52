"""`DraftModelDrafter`: a smaller model guesses, with a KV store and block manager of its own.

It samples by the target's rule with the target's noise. Its guess is therefore right whenever the same token has the
highest perturbed score in both models. It reads unread tokens (the prompt, other drafters' tokens) only when it is
asked to draft, in chunks. Lengths and positions are those of its own model's tokens; `text` converts the tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from paceline.backends.protocol import Model
from paceline.core import Plan, Sequence, Verdict
from paceline.drafters.chains.chain_batch import TokenRun, build_chain_batch
from paceline.drafters.chains.drawing import Drawer, SequenceDraft
from paceline.drafters.chains.growing_draft import GrowingDraft
from paceline.drafters.draft_model.lookahead import Lookahead
from paceline.drafters.draft_model.text import (
    MOST_UNREAD,
    NUM_FIRST_TOKENS,
    DraftVocabulary,
    SameVocabulary,
    ShortenedText,
)
from paceline.drafters.protocol import Drafter, Proposals
from paceline.kvcache import BlockManager, NoPrefixCache, PrefixCache
from paceline.sampling.sequence_sampler import SequenceSampler


@dataclass(slots=True)
class _DraftCache:
    """A sequence's tokens in the draft model's KV: `num_computed` tokens of `text`, then the drafted tokens `ahead`.
    `block_hashes` are the hashes of the leading blocks that are in the prefix cache."""

    text: ShortenedText
    tenant: str
    block_table: list[int]
    num_computed: int
    block_hashes: list[bytes]
    lookahead: Lookahead = field(default_factory=Lookahead)
    ahead: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _CachedDraft(SequenceDraft):
    """A draft in progress, with the draft model's cache of its text."""

    cache: _DraftCache

    @property
    def lag(self) -> int:
        """The number of unread tokens of the text, at least 1, because the last token's logits start the draft."""
        return len(self.cache.text.token_ids) - self.cache.num_computed

    @property
    def num_slots(self) -> int:
        """The number of slots for the whole text and for all drafted tokens that are fed back."""
        return len(self.cache.text.token_ids) + self.growing.window - 1


class DraftModelDrafter(Drafter):
    """Drafts chains with `model`, batched over sequences, with one forward pass and one or two sampling calls for each
    depth. If the plan has thresholds for them, the draft also gets second choices as branches, and a pass also reads
    guesses of the suffix tree, so one pass can give several tokens of the chain.

    `samplers` are the target's, by sequence id. `vocabulary` converts between the model's and the target's tokens.
    The drafter allocates `num_blocks` KV blocks. A sequence gets a short draft or none if too few blocks are free, or
    if it has no room in `max_length` tokens (None: the model's context). A call reads at most `prefill_chunk_size`
    unread tokens over all sequences, and a sequence drafts when it has none left. With `has_prefix_cache`, the KV of a
    text is kept for sequences of the same tenant that begin alike, unless the vocabulary tokenizes text again.
    """

    name = "draft-model"
    is_free = False

    def __init__(
        self,
        model: Model,
        samplers: Mapping[str, SequenceSampler],
        drawer: Drawer,
        *,
        num_blocks: int,
        prefill_chunk_size: int = 256,
        max_length: int | None = None,
        vocabulary: DraftVocabulary | None = None,
        has_prefix_cache: bool = False,
    ) -> None:
        model.kv.allocate(num_blocks)
        self._model = model
        self._samplers = samplers
        self._drawer = drawer
        self._prefill_chunk_size = prefill_chunk_size
        self._max_length = max_length or model.config.max_context
        self._vocabulary = vocabulary or SameVocabulary()
        self._blocks = BlockManager(num_blocks, model.kv.block_size)
        is_cached = has_prefix_cache and self._vocabulary.keeps_tokens
        self._prefixes = PrefixCache(self._blocks) if is_cached else NoPrefixCache()
        self._caches: dict[str, _DraftCache] = {}

    @property
    def num_free_blocks(self) -> int:
        """The number of KV blocks that no sequence holds."""
        return self._blocks.num_free_blocks

    def begin(self, sequence: Sequence) -> None:
        """Starts with the KV of the text's beginning that is in the prefix cache. Runs no model."""
        text = ShortenedText(self._vocabulary.text_of(sequence))
        text.update()
        tenant = sequence.request.tenant
        match = self._prefixes.lookup(text.token_ids, tenant)
        if len(text.token_ids) - len(match.block_ids) * self._blocks.block_size > MOST_UNREAD:
            text.leave_out_middle()
            match = self._prefixes.lookup(text.token_ids, tenant)
        table = self._blocks.fork(match.block_ids)
        num_computed = len(table) * self._blocks.block_size
        self._caches[sequence.sequence_id] = _DraftCache(text, tenant, table, num_computed, match.hashes)

    def propose(self, sequences: list[Sequence], plans: list[Plan]) -> Proposals:
        """Returns drafts of up to `window` nodes. Blocks for at most one forward pass for each depth."""
        drafts = [self._open(sequence, plan) for sequence, plan in zip(sequences, plans, strict=True)]
        runs, active = self._unseen([draft for draft in drafts if draft.growing.window > 0])
        pass_rows: list[int] = []
        while runs:
            logits = self._model.forward(build_chain_batch(runs, self._blocks.block_size))
            if active:
                pass_rows.append(len(logits))
            rows = self._vocabulary.target_rows(logits, self._drawer.sampler)
            going_on = self._drawer.draw(active, rows, is_known=self._is_known)
            for draft in active:
                _forget_wrong(draft)
            active = going_on
            runs = [self._feed_back(draft) for draft in active]
        return Proposals([draft.growing.finish(self.name) for draft in drafts], pass_rows)

    def num_missed(self, sequence: Sequence) -> int | None:
        """Returns how many tokens before the last one must be read before a draft can start. Returns None if the text
        is empty, or does not fit into the context or the free blocks."""
        cache = self._caches[sequence.sequence_id]
        self._settle(cache)
        return len(cache.text.token_ids) - cache.num_computed - 1 if self._room(cache) > 0 else None

    def observe(self, sequences: list[Sequence], verdicts: list[Verdict]) -> None:
        """Keeps the KV of drafted tokens that were committed and trims the rest."""
        for sequence in sequences:
            self._keep(self._caches[sequence.sequence_id])

    def end(self, sequence: Sequence) -> None:
        """Frees the sequence's blocks. Those in the prefix cache stay there until their space is needed."""
        cache = self._caches.pop(sequence.sequence_id)
        self._keep(cache)
        self._blocks.trim(cache.block_table, 0)

    def _keep(self, cache: _DraftCache) -> None:
        """Puts the blocks that the committed text fills into the prefix cache, for sequences of the same tenant."""
        self._settle(cache)
        self._prefixes.commit(
            cache.block_hashes, cache.text.token_ids, cache.block_table, cache.num_computed, cache.tenant
        )

    def _settle(self, cache: _DraftCache) -> None:
        """Updates the text. Keeps the KV of the tokens that text and cache have in common, and trims the rest."""
        num_same = cache.text.update()
        if num_same < cache.num_computed:
            cache.num_computed = num_same
            cache.ahead.clear()
        token_ids, first = cache.text.token_ids, cache.num_computed
        if len(token_ids) - first > MOST_UNREAD:
            self._leave_out_middle(cache)
            token_ids, first = cache.text.token_ids, cache.num_computed
        for drafted, token_id in zip(cache.ahead, token_ids[first : first + len(cache.ahead)], strict=False):
            if drafted != token_id:
                break
            cache.num_computed += 1
        # The last token is computed again even if its KV exists, because its logits start the next draft.
        cache.num_computed = max(0, min(cache.num_computed, len(token_ids) - 1))
        cache.ahead.clear()
        self._blocks.trim(cache.block_table, cache.num_computed)

    def _leave_out_middle(self, cache: _DraftCache) -> None:
        """Keeps only the KV of the first tokens, because the others get new positions."""
        cache.text.leave_out_middle()
        cache.num_computed = min(cache.num_computed, NUM_FIRST_TOKENS)
        del cache.block_hashes[cache.num_computed // self._blocks.block_size :]
        cache.ahead.clear()

    def _open(self, sequence: Sequence, plan: Plan) -> _CachedDraft:
        """Returns a new draft with its slots reserved. Its window is 0 if there is no room."""
        cache = self._caches[sequence.sequence_id]
        self._settle(cache)
        sampler = self._samplers[sequence.sequence_id]
        window = min(plan.window, self._room(cache))
        draft = _CachedDraft(sequence=sequence, sampler=sampler, growing=GrowingDraft(plan, window), cache=cache)
        if window > 0:
            self._blocks.grow(cache.block_table, draft.num_slots)
        return draft

    def _room(self, cache: _DraftCache) -> int:
        """Returns the most tokens that may be drafted. The last of them needs no slot."""
        length = len(cache.text.token_ids)
        num_blocks = len(cache.block_table) + self._blocks.num_free_blocks
        num_slots = min(self._max_length, num_blocks * self._blocks.block_size)
        return max(0, num_slots - length + 1) if length > 0 else 0

    def _unseen(self, drafts: list[_CachedDraft]) -> tuple[list[TokenRun], list[_CachedDraft]]:
        """Returns the runs to read in this pass, shortest backlog first, and the drafts that can start after it."""
        runs: list[TokenRun] = []
        ready: list[_CachedDraft] = []
        budget = self._prefill_chunk_size
        for draft in sorted(drafts, key=lambda draft: draft.lag):
            count = min(draft.lag, budget)
            if count == 0:
                break
            budget -= count
            is_ready = count == draft.lag
            first = draft.cache.num_computed
            token_ids = draft.cache.text.token_ids[first : first + count]
            draft.cache.num_computed += count
            if is_ready:
                token_ids = token_ids + self._read_ahead(draft)
                ready.append(draft)
            runs.append(TokenRun(draft.cache.block_table, first, token_ids, is_ready, 1 + len(draft.known)))
        return runs, ready

    def _read_ahead(self, draft: _CachedDraft) -> list[int]:
        """Chooses the guesses to read after the draft's last token, and returns them as the draft model's tokens.

        They are the tokens that the sequence's constraint forces, or else those that the text suggests."""
        growing, cache = draft.growing, draft.cache
        known = draft.sampler.forced_token_ids(growing.token_ids, growing.room - 1)
        draft.is_forced = bool(known)
        if not known:
            text = draft.sequence.token_ids
            known = cache.lookahead.ahead_of(text, growing.token_ids, growing.plan, growing.room - 1)
        draft_ids: list[int] = []
        for draft_id in map(self._vocabulary.draft_id, known):
            if draft_id is None:
                break
            draft_ids.append(draft_id)
        draft.known = known[: len(draft_ids)]
        cache.ahead += draft_ids
        return draft_ids

    def _is_known(self, token_id: int) -> bool:
        """Returns whether the target has the token."""
        return self._vocabulary.draft_id(token_id) is not None

    def _feed_back(self, draft: _CachedDraft) -> TokenRun:
        """Returns the run that gives the logits after the draft's last token and after each guess that is read."""
        draft_id = self._vocabulary.draft_id(draft.growing.token_ids[-1])
        assert draft_id is not None  # else it would not have been drawn
        cache = draft.cache
        position = len(cache.text.token_ids) + len(cache.ahead)
        cache.ahead.append(draft_id)
        draft_ids = [draft_id, *self._read_ahead(draft)]
        return TokenRun(cache.block_table, position, draft_ids, needs_logits=True, num_logits=len(draft_ids))


def _forget_wrong(draft: _CachedDraft) -> None:
    """Removes from the cache the guesses that did not become tokens of the draft."""
    ahead, known = draft.cache.ahead, draft.known
    num_before = len(ahead) - len(known)
    pairs = zip(known, draft.growing.token_ids[num_before:], strict=False)
    num_right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    del ahead[num_before + num_right :]
