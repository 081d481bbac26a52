"""`EngineStats`: an engine's state and counters at one moment, the source of its metrics."""

from __future__ import annotations

import msgspec


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Gauges of now, and counters (all the others) since the engine started.

    `num_prefix_query_tokens` are prompt tokens looked up in the prefix cache, `num_prefix_hit_tokens` those found.
    `num_drafts` are sequences' steps with a draft that is not empty. `num_accepted_per_position[i]` counts drafts whose
    token at depth i was accepted.
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
