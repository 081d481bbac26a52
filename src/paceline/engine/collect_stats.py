"""`collect_stats`: makes a snapshot of an engine from the parts that keep counters."""

from __future__ import annotations

from paceline.controller.accounting import SpeculationTimes
from paceline.core import EngineStats
from paceline.engine.acceptance_stats import AcceptanceStats
from paceline.engine.mask_times import MaskTimes
from paceline.engine.scheduler import Scheduler


def collect_stats(
    scheduler: Scheduler, acceptance: AcceptanceStats, masks: MaskTimes, times: SpeculationTimes, num_steps: int
) -> EngineStats:
    """Returns the current gauges, and the counters since the start."""
    counters, total = scheduler.counters, acceptance.total
    return EngineStats(
        num_running=len(scheduler.running),
        num_waiting=scheduler.num_waiting,
        num_blocks=scheduler.blocks.num_blocks,
        num_free_blocks=scheduler.blocks.num_free_blocks,
        num_steps=num_steps,
        num_preemptions=counters.num_preemptions,
        num_prefix_query_tokens=counters.num_prefix_query_tokens,
        num_prefix_hit_tokens=counters.num_prefix_hit_tokens,
        num_drafts=total.num_drafts,
        num_draft_tokens=total.num_draft_tokens,
        num_accepted_tokens=total.num_accepted_tokens,
        num_accepted_per_position=tuple(total.accepted_per_position),
        num_drafts_per_size=tuple(acceptance.num_per_size),
        num_sequence_steps=acceptance.num_verdicts,
        num_decoded_tokens=acceptance.num_committed,
        num_masks=masks.num_masks,
        mask_s=masks.mask_s,
        masked_step_s=masks.step_s,
        decoding_s=times.step_s,
        wasted_s=times.wasted_s,
        lost_s=times.lost_s,
        plain_s=times.plain_s,
        compared_s=times.compared_s,
        by_drafter={
            name: counts.snapshot(times.drafting_s.get(name, 0.0)) for name, counts in acceptance.by_drafter.items()
        },
    )
