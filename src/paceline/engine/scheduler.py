"""`Scheduler`: decides which sequences run and how many rows each gets in a step (the `Schedule`). Only this module and
`commit` write sequences and block tables.

Every step serves all decoding sequences and at most one chunk of prompts, so neither starves the other. When no block
is free, the youngest sequence is preempted: its blocks are freed, and its tokens are computed again later.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass

from paceline.core import FinishReason, Sequence, SequenceStatus, Verdict
from paceline.engine.commit import Commit, commit_verdict
from paceline.engine.request_state import RequestState
from paceline.engine.text_stream import Finish
from paceline.kvcache import BlockManager, NoPrefixCache, PrefixCache, PrefixMatch

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepLimits:
    """The limits of a step: the number of sequences, of prompt rows, and of draft nodes of one sequence."""

    max_batch_size: int
    prefill_chunk_size: int
    num_speculative_tokens: int


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """One sequence's part of a step: its next `num_rows` uncomputed tokens, and KV slots for `max_window` draft nodes
    after its last token.

    `reaches_end` says that the rows include the last token, so the next one can be sampled.
    """

    state: RequestState
    num_rows: int
    reaches_end: bool
    max_window: int

    @property
    def sequence(self) -> Sequence:
        """The sequence, without its request state."""
        return self.state.sequence

    @property
    def may_draft(self) -> bool:
        """Whether this sequence may have a draft in this step."""
        return self.max_window > 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """One step: the scheduled sequences, oldest first, and the number of rows that drafts may add (`spare_rows`).

    The sequences in `drafting` may have a draft. The sequences in `sampled` get a verdict; they include those in
    `drafting`. `num_rows` is the number of rows without drafts. `num_prompt_rows` is the part of it for sequences that
    may not draft, which are mostly prompts.
    """

    scheduled: list[ScheduledSequence]
    drafting: list[ScheduledSequence]
    sampled: list[ScheduledSequence]
    num_rows: int
    num_prompt_rows: int
    spare_rows: int

    @classmethod
    def of(cls, scheduled: list[ScheduledSequence], max_rows: int) -> Schedule:
        """Returns the schedule of these sequences. With drafts, the step may have `max_rows` rows."""
        drafting = [item for item in scheduled if item.may_draft]
        sampled = [item for item in scheduled if item.reaches_end]
        num_rows = sum(item.num_rows for item in scheduled)
        num_drafting_rows = sum(item.num_rows for item in drafting)
        return cls(scheduled, drafting, sampled, num_rows, num_rows - num_drafting_rows, max(0, max_rows - num_rows))


@dataclass(slots=True)
class SchedulerCounters:
    """Counts since the engine started; see `EngineStats`."""

    num_preemptions: int = 0
    num_prefix_query_tokens: int = 0
    num_prefix_hit_tokens: int = 0


class Scheduler:
    """Holds the waiting queue (first come, first served), the running sequences, oldest first, and their blocks.

    `blocks` must have room for the longest sequence that is ever added.
    """

    def __init__(self, blocks: BlockManager, prefix_cache: PrefixCache | NoPrefixCache, limits: StepLimits) -> None:
        self.blocks = blocks
        self.prefix_cache = prefix_cache
        self.counters = SchedulerCounters()
        self._limits = limits
        self._waiting: deque[RequestState] = deque()
        self._running: list[RequestState] = []

    @property
    def num_waiting(self) -> int:
        """The number of waiting sequences. They have no blocks."""
        return len(self._waiting)

    @property
    def running(self) -> list[Sequence]:
        """The running sequences, oldest first. They have blocks."""
        return [state.sequence for state in self._running]

    @property
    def has_unfinished(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._waiting or self._running)

    def add(self, state: RequestState) -> None:
        """Puts a new sequence at the end of the queue."""
        self._waiting.append(state)

    def finish(self, state: RequestState, reason: FinishReason) -> None:
        """Removes a sequence and frees its blocks. Blocks in the prefix cache stay there until they are evicted.

        It must not be called during a step.
        """
        if state.sequence.status is SequenceStatus.RUNNING:
            self._running.remove(state)
            self._release(state)
        else:
            self._waiting.remove(state)
        state.sequence.status = SequenceStatus.FINISHED
        state.sequence.finish_reason = reason

    def schedule(self) -> Schedule:
        """Returns the rows of the next step. Preempts or admits sequences, depending on the free blocks."""
        num_running = len(self._running)
        self._reserve_last_tokens()
        if len(self._running) == num_running:
            self._admit()
        return self._share_rows()

    def commit(self, schedule: Schedule, verdicts: list[Verdict]) -> list[Commit]:
        """Advances every scheduled sequence by what the step computed. `verdicts` has one entry for each sequence in
        `schedule.sampled`.

        Removes finished sequences. An exception in one sequence's commit ends only that sequence, with an error.
        """
        for item in schedule.scheduled:
            item.sequence.num_computed_tokens += item.num_rows
        commits = [
            self._commit_one(item.state, verdict) for item, verdict in zip(schedule.sampled, verdicts, strict=True)
        ]
        for item in schedule.scheduled:
            self._settle_blocks(item.state)
        for commit in commits:
            if commit.finish is not None:
                self.finish(commit.state, commit.finish.reason)
        return commits

    def check_integrity(self) -> None:
        """Raises RuntimeError unless blocks, tables and prefix cache agree."""
        self.blocks.check_integrity(state.sequence.block_table for state in self._running)
        self.prefix_cache.check_integrity()
        if any(state.sequence.block_table for state in self._waiting):
            raise RuntimeError("a waiting sequence holds KV blocks")

    def _reserve_last_tokens(self) -> None:
        """Reserves slots for the last tokens of all running sequences, oldest first. May preempt the youngest."""
        for state in list(self._running):
            sequence = state.sequence
            while sequence.status is SequenceStatus.RUNNING:
                if self.blocks.can_grow(sequence.block_table, len(sequence.token_ids)):
                    self.blocks.grow(sequence.block_table, len(sequence.token_ids))
                    break
                self._preempt(self._running[-1])

    def _preempt(self, state: RequestState) -> None:
        self._running.remove(state)
        self._release(state)
        state.sequence.status = SequenceStatus.WAITING
        state.num_preemptions += 1
        self.counters.num_preemptions += 1
        self._waiting.appendleft(state)

    def _release(self, state: RequestState) -> None:
        self.blocks.trim(state.sequence.block_table, 0)
        state.sequence.num_computed_tokens = 0
        state.block_hashes = []

    def _admit(self) -> None:
        """Starts waiting sequences in order, while prompt rows are left and there are blocks for the next sequence."""
        backlog = sum(sequence.num_uncomputed_tokens for sequence in self.running if sequence.is_prefilling)
        while self._waiting and len(self._running) < self._limits.max_batch_size:
            if backlog >= self._limits.prefill_chunk_size or not self._try_start(self._waiting[0]):
                return
            backlog += self._running[-1].sequence.num_uncomputed_tokens

    def _try_start(self, state: RequestState) -> bool:
        """Starts the first waiting sequence, with blocks for all its tokens. Returns False if it must wait.

        One block for each running sequence stays free, so that the new sequence is not preempted at once.
        """
        sequence = state.sequence
        if state.prompt_logprobs is not None:
            match = PrefixMatch([], [])  # every row of the prompt must be computed
        else:
            match = self.prefix_cache.lookup(sequence.token_ids, sequence.request.tenant)
            if self._is_prefix_on_its_way(sequence, match):
                return False
        table = self.blocks.fork(match.block_ids)
        headroom = len(self._running) * self.blocks.block_size
        if not self.blocks.can_grow(table, len(sequence.token_ids) + headroom):
            self.blocks.trim(table, 0)
            return False
        self.blocks.grow(table, len(sequence.token_ids))
        self._start(state, table, match)
        return True

    def _is_prefix_on_its_way(self, sequence: Sequence, match: PrefixMatch) -> bool:
        """Returns whether a running sequence will soon compute more of this one's prefix, as choices of one call do."""
        end = self.prefix_cache.next_border(sequence.token_ids, match)
        if end is None:
            return False
        beginning, tenant = sequence.token_ids[:end], sequence.request.tenant
        own = [other for other in self.running if other.request.tenant == tenant]
        return any(other.num_computed_tokens < end and other.token_ids[:end] == beginning for other in own)

    def _start(self, state: RequestState, table: list[int], match: PrefixMatch) -> None:
        sequence = self._waiting.popleft().sequence
        sequence.block_table = table
        sequence.num_computed_tokens = len(match.block_ids) * self.blocks.block_size
        sequence.status = SequenceStatus.RUNNING
        state.block_hashes = match.hashes
        if state.num_preemptions == 0:
            sequence.num_cached_tokens = min(sequence.num_computed_tokens, sequence.num_prompt_tokens)
            self.counters.num_prefix_query_tokens += sequence.num_prompt_tokens
            self.counters.num_prefix_hit_tokens += sequence.num_cached_tokens
        self._running.append(state)

    def _share_rows(self) -> Schedule:
        prompt_rows = self._limits.prefill_chunk_size
        scheduled = []
        for state in self._running:
            num_uncomputed = state.sequence.num_uncomputed_tokens
            if num_uncomputed == 1:
                scheduled.append(ScheduledSequence(state, 1, True, self._reserve_window(state)))
            elif prompt_rows > 0:
                num_rows = min(num_uncomputed, prompt_rows)
                prompt_rows -= num_rows
                scheduled.append(ScheduledSequence(state, num_rows, num_rows == num_uncomputed, 0))
        max_rows = self._limits.prefill_chunk_size + self._limits.max_batch_size
        return Schedule.of(scheduled, max_rows)

    def _reserve_window(self, state: RequestState) -> int:
        """Reserves blocks for the useful draft nodes, as far as blocks are free, and returns their number."""
        wanted = state.sequence.usable_window(self._limits.num_speculative_tokens)
        table, length = state.sequence.block_table, len(state.sequence.token_ids)
        num_slots = (len(table) + self.blocks.num_free_blocks) * self.blocks.block_size
        window = max(0, min(wanted, state.max_window, num_slots - length))
        self.blocks.grow(table, length + window)
        return window

    def _commit_one(self, state: RequestState, verdict: Verdict) -> Commit:
        try:
            commit = commit_verdict(state, verdict)
        except Exception as error:
            _logger.exception("request %s ends with an error", state.sequence.sequence_id)
            return Commit.ended(state, Finish(FinishReason.ERROR), f"internal error: {error}")
        if commit.error is not None:
            _logger.error("request %s ends with an error: %s", state.sequence.sequence_id, commit.error)
        return commit

    def _settle_blocks(self, state: RequestState) -> None:
        """Frees the blocks of rejected draft nodes, and puts full blocks into the prefix cache."""
        sequence = state.sequence
        self.blocks.trim(sequence.block_table, len(sequence.token_ids))
        self.prefix_cache.commit(
            state.block_hashes,
            sequence.token_ids,
            sequence.block_table,
            sequence.num_computed_tokens,
            sequence.request.tenant,
        )
