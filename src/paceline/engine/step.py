"""One step of the engine: the life of a token, from schedule to commit, in the order of docs/architecture.md.

Prompts, plain decoding and speculation use the same step. They differ only in the number of rows of a sequence.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from paceline.backends.protocol import Model
from paceline.controller.protocol import REASON_NO_DRAFT, Controller, Offer, StepOutcome, StepRoom
from paceline.core import Draft, Plan, Sequence, Verdict
from paceline.engine.acceptance_stats import AcceptanceStats
from paceline.engine.batch_builder import build_batch, compaction_moves
from paceline.engine.commit import Commit
from paceline.engine.drafter_group import EMPTY_DRAFT, DrafterGroup, DraftingCosts
from paceline.engine.mask_times import MaskTimes
from paceline.engine.prompt_scores import PromptScorer
from paceline.engine.scheduler import Schedule, Scheduler
from paceline.engine.verifier import Checks, Verifier, prepare_checks


@dataclass(frozen=True, slots=True)
class Stepper:
    """The parts that one step connects. The parts do not know each other."""

    scheduler: Scheduler
    controller: Controller
    drafters: DrafterGroup
    target: Model
    verifier: Verifier
    prompt_scorer: PromptScorer
    acceptance: AcceptanceStats
    mask_times: MaskTimes
    vocab_size: int

    def step(self) -> list[Commit]:
        """Advances each scheduled sequence by a chunk of its prompt, or by its accepted draft tokens and one more.

        Blocks for one forward pass of the target, and for the passes of a drafter's model if a plan names the drafter.
        """
        start_s = time.perf_counter()
        schedule = self.scheduler.schedule()
        self.drafters.follow(self.scheduler.running)
        drafting = self._draft(schedule)
        drafts = drafting.of_all(schedule)
        step_batch = build_batch(schedule.scheduled, drafts, self.target.kv.block_size)
        before_masks_s = time.perf_counter()
        checks = self._prepare_checks(schedule, drafts)
        mask_s = time.perf_counter() - before_masks_s
        logits = self.target.forward(step_batch.batch)
        verdicts = self.verifier.verify(checks, logits, step_batch.first_logit_rows)
        if step_batch.has_scored_rows:
            self.prompt_scorer.score(schedule.scheduled, step_batch, logits)
        commits = self._commit(schedule, verdicts)
        step_s = time.perf_counter() - start_s
        if checks.masks.bits is not None:
            self.mask_times.add(len(checks.masks.bits), mask_s, step_s)
        self._observe(schedule, drafting, verdicts, step_s)
        return [*commits, *_progress(schedule)]

    def _draft(self, schedule: Schedule) -> _Drafting:
        """Asks the drafters for the drafts that the controller plans, for the sequences that may draft."""
        if not self.drafters.names:
            return _no_drafting(schedule)
        items = schedule.drafting
        sequences = [item.sequence for item in items]
        windows = [item.max_window for item in items]
        costs = DraftingCosts()
        offers = self.drafters.offers(sequences, windows, costs)
        room = StepRoom(schedule.num_rows, schedule.num_prompt_rows, schedule.spare_rows)
        plans = [
            plan.with_window(min(plan.window, window))
            for plan, window in zip(self.controller.plan(sequences, offers, room), windows, strict=True)
        ]
        drafts = self.drafters.propose(sequences, plans, offers, costs)
        for item, plan in zip(items, plans, strict=True):
            item.state.reason = plan.reason
        return _Drafting(sequences, offers, plans, drafts, room, costs)

    def _prepare_checks(self, schedule: Schedule, drafts: list[Draft]) -> Checks:
        """Prepares what the verifier needs besides the logits: the sampled sequences with their drafts and samplers."""
        return prepare_checks(
            [item.sequence for item in schedule.sampled],
            [draft for item, draft in zip(schedule.scheduled, drafts, strict=True) if item.reaches_end],
            [item.state.sampler for item in schedule.sampled],
            self.vocab_size,
        )

    def _commit(self, schedule: Schedule, verdicts: list[Verdict]) -> list[Commit]:
        """Moves the KV of accepted nodes to their positions. The scheduler then appends the tokens."""
        moves = compaction_moves(schedule.sampled, verdicts, self.target.kv.block_size)
        if moves:
            self.target.kv.move(moves)
        commits = self.scheduler.commit(schedule, verdicts)
        for commit, verdict in zip(commits, verdicts, strict=True):
            num_committed = len(commit.token_ids)
            self.acceptance.record(verdict.drafter, verdict.num_drafted, commit.num_accepted, num_committed)
        return commits

    def _observe(self, schedule: Schedule, drafting: _Drafting, verdicts: list[Verdict], step_time_s: float) -> None:
        sampled = list(zip(schedule.sampled, verdicts, strict=True))
        self.drafters.follow(self.scheduler.running)  # drafters forget finished sequences before they get verdicts
        alive = [(item.sequence, verdict) for item, verdict in sampled if not item.sequence.is_finished]
        self.drafters.observe([sequence for sequence, _ in alive], [verdict for _, verdict in alive])
        if not drafting.sequences:
            return
        self.controller.observe(
            StepOutcome(
                sequences=drafting.sequences,
                offers=drafting.offers,
                plans=drafting.plans,
                drafts=drafting.drafts,
                verdicts=[verdict for item, verdict in sampled if item.may_draft],
                room=drafting.room,
                drafting_s=drafting.costs.seconds,
                passes=drafting.costs.pass_rows,
                target_s=step_time_s - sum(drafting.costs.seconds.values()),
            )
        )


def _progress(schedule: Schedule) -> list[Commit]:
    """Returns commits without tokens for the prompts that are not read to the end, if their clients want to know."""
    return [
        Commit.of_progress(item.state)
        for item in schedule.scheduled
        if item.sequence.request.has_progress and not item.reaches_end and not item.sequence.num_output_tokens
    ]


def _no_drafting(schedule: Schedule) -> _Drafting:
    """Returns empty drafts. It is used if all drafters are off or have failed."""
    for item in schedule.drafting:
        item.state.reason = REASON_NO_DRAFT
    room = StepRoom(schedule.num_rows, schedule.num_prompt_rows, schedule.spare_rows)
    return _Drafting([], [], [], [EMPTY_DRAFT] * len(schedule.drafting), room, DraftingCosts())


@dataclass(frozen=True, slots=True)
class _Drafting:
    """The sequences of a step that may draft, with the offer, plan and draft of each."""

    sequences: list[Sequence]
    offers: list[Offer]
    plans: list[Plan]
    drafts: list[Draft]
    room: StepRoom
    costs: DraftingCosts

    def of_all(self, schedule: Schedule) -> list[Draft]:
        """Returns a draft for each scheduled sequence. It is empty if the sequence may not draft."""
        own = iter(self.drafts)
        return [next(own) if item.may_draft else EMPTY_DRAFT for item in schedule.scheduled]
