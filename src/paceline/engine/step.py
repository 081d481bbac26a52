"""One step of the engine: the life of a token, from schedule to commit, in the order of docs/architecture.md.

Prompts, plain decoding and speculation are the same step; what differs is how many rows a sequence has in it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from paceline.core import Draft, Float32Array, Plan, Verdict
from paceline.engine.batch_builder import StepBatch, build_batch, compaction_moves
from paceline.engine.commit import Commit
from paceline.engine.drafter_group import NO_DRAFT, DrafterGroup
from paceline.engine.schedule import Schedule
from paceline.engine.scheduler import Scheduler
from paceline.models import Model
from paceline.speculation import AcceptanceStats, Controller, Verifier


@dataclass(frozen=True, slots=True)
class Stepper:
    """The parts that one step connects; none of them knows another."""

    scheduler: Scheduler
    controller: Controller
    drafters: DrafterGroup
    target: Model
    verifier: Verifier
    acceptance: AcceptanceStats

    def step(self) -> list[Commit]:
        """Advances every running sequence: by a chunk of its prompt, or by one token and what its draft guessed right.

        Blocks for one forward pass of the target, and for the draft model's where the controller wants it.
        """
        start_s = time.perf_counter()
        schedule = self.scheduler.schedule()
        self.drafters.follow(self.scheduler.running)
        plans, drafts = self._draft(schedule)
        step_batch = build_batch(schedule.scheduled, drafts, self.target.kv.block_size)
        logits = self.target.forward(step_batch.batch)
        verdicts = self._verify(schedule, drafts, step_batch, logits)
        commits = self._commit(schedule, verdicts)
        self._observe(schedule, plans, verdicts, time.perf_counter() - start_s)
        return commits

    def _draft(self, schedule: Schedule) -> tuple[list[Plan], list[Draft]]:
        """Plans of the sequences that may draft, and drafts of all scheduled ones."""
        drafting = schedule.drafting
        sequences = [item.sequence for item in drafting]
        windows = [item.max_window for item in drafting]
        free_drafts = self.drafters.propose_free(sequences, windows)
        plans = [
            replace(plan, window=min(plan.window, window))
            for plan, window in zip(
                self.controller.plan(sequences, free_drafts, schedule.spare_rows), windows, strict=True
            )
        ]
        proposed = iter(self.drafters.propose(sequences, plans, free_drafts))
        return plans, [next(proposed) if item.max_window > 0 else NO_DRAFT for item in schedule.scheduled]

    def _verify(
        self, schedule: Schedule, drafts: list[Draft], step_batch: StepBatch, logits: Float32Array
    ) -> list[Verdict]:
        """Verdicts of the sampled sequences."""
        return self.verifier.verify(
            [item.sequence for item in schedule.sampled],
            [draft for item, draft in zip(schedule.scheduled, drafts, strict=True) if item.reaches_end],
            logits,
            step_batch.first_logit_rows,
            [item.generation.sampler for item in schedule.sampled],
        )

    def _commit(self, schedule: Schedule, verdicts: list[Verdict]) -> list[Commit]:
        """Moves the KV of accepted tree nodes to their positions, then lets the scheduler append the tokens."""
        moves = compaction_moves(schedule.sampled, verdicts, self.target.kv.block_size)
        if moves:
            self.target.kv.move(moves)
        commits = self.scheduler.commit(schedule, verdicts)
        for commit, verdict in zip(commits, verdicts, strict=True):
            self.acceptance.record(verdict.drafter, verdict.num_drafted, commit.num_accepted)
        return commits

    def _observe(self, schedule: Schedule, plans: list[Plan], verdicts: list[Verdict], step_time_s: float) -> None:
        sampled = list(zip(schedule.sampled, verdicts, strict=True))
        self.drafters.follow(self.scheduler.running)
        alive = [(item.sequence, verdict) for item, verdict in sampled if not item.sequence.is_finished]
        self.drafters.observe([sequence for sequence, _ in alive], [verdict for _, verdict in alive])
        planned = [verdict for item, verdict in sampled if item.max_window > 0]
        self.controller.observe(plans, planned, step_time_s)
