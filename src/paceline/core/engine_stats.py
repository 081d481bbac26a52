"""`EngineStats`: an engine's state and counters at one moment, the source of its metrics."""

from __future__ import annotations

import msgspec


class DrafterStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one drafter: drafts that were not empty, their tokens, and the time that proposing took.

    `num_accepted_per_position[i]` counts drafts whose token at depth i was accepted.
    """

    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_per_position: tuple[int, ...] = ()
    drafting_s: float = 0.0


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges and counters of an engine. The first four fields describe this moment; all others count since its start.

    `num_prefix_query_tokens` counts prompt tokens looked up in the prefix cache, `num_prefix_hit_tokens` those found.
    `num_drafts` counts drafts that were not empty, and `num_accepted_per_position[i]` those whose token at depth i was
    accepted. `num_sequence_steps` counts one for each sequence that is sampled in a step, and `num_decoded_tokens` the
    tokens that these committed. `num_drafts_per_size[n]` splits the former by the size n of the draft, which may be 0.

    `num_masks` counts the masks of constraints, `mask_s` is the time that they took, and `masked_step_s` is the time of
    the steps that had masks.

    `decoding_s` is the time of steps that could draft. `wasted_s` is the cost of drafts without an accepted token.
    `lost_s` sums, over ended sequences, how much drafters cost more than they saved. `plain_s` is the time that plain
    decoding is predicted to take for what took `compared_s`. The last four are 0 without a cost model.
    """

    num_running: int = 0
    num_waiting: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    num_prefix_query_tokens: int = 0
    num_prefix_hit_tokens: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_accepted_per_position: tuple[int, ...] = ()
    num_drafts_per_size: tuple[int, ...] = ()
    num_sequence_steps: int = 0
    num_decoded_tokens: int = 0
    num_masks: int = 0
    mask_s: float = 0.0
    masked_step_s: float = 0.0
    decoding_s: float = 0.0
    wasted_s: float = 0.0
    lost_s: float = 0.0
    plain_s: float = 0.0
    compared_s: float = 0.0
    by_drafter: dict[str, DrafterStats] = {}

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens committed per sequence and step, the target's own included; None before the first step."""
        return self.num_decoded_tokens / self.num_sequence_steps if self.num_sequence_steps else None

    @property
    def latency_reduction(self) -> float | None:
        """1 - actual / predicted plain time; None where nothing was predicted."""
        return 1.0 - self.compared_s / self.plain_s if self.plain_s else None
