"""Tests the adaptive controller step by step: limits, requests, pauses, starts and probes."""

from __future__ import annotations

import pytest

from paceline.controller.adaptive import AdaptiveController
from paceline.controller.cost_model import CostModel, DrafterCosts, RowTable, StepCosts
from paceline.controller.options import Limits
from paceline.controller.probing import Guard, ProbeBudget, RetryBackoff
from paceline.controller.protocol import Offer, StepOutcome, StepRoom
from paceline.core import Draft, Request, SamplingParams, Sequence, SpeculationParams, Verdict
from paceline.core.sequence import SequenceStatus

CHEAP_ROWS = StepCosts(RowTable((1, 64), (1.0, 1.2)))
WITH_MODEL = StepCosts(
    RowTable((1, 64), (1.0, 1.2)), {"draft-model": DrafterCosts(RowTable((1, 8), (0.1, 0.12)), 0.02)}
)
GUESS = Draft.chain([7] * 8, "ngram", [0.8] * 8)


def sequence(*, max_tokens: int | None = None, **speculation: object) -> Sequence:
    request = Request(
        request_id="s",
        prompt_token_ids=[1, 2],
        sampling=SamplingParams(max_tokens=max_tokens),
        speculation=SpeculationParams(**speculation),
    )
    return Sequence(request, 0, [1, 2, 3], status=SequenceStatus.RUNNING)


def controller(costs: StepCosts = CHEAP_ROWS, **limits: object) -> AdaptiveController:
    return AdaptiveController(CostModel(costs), Limits(**({"num_speculative_tokens": 16} | limits)))


class Run:
    """One sequence. In each step its draft is right for `num_right` tokens; the times come from the cost model."""

    def __init__(self, control: AdaptiveController, own: Sequence) -> None:
        self.control = control
        self.sequence = own
        self.true_costs = CostModel(control.costs.costs)
        self.passes: dict[str, list[int]] = {}
        self.is_model_sure = True
        self.could_draw = True

    def step(self, num_right: int, free: Draft | None = GUESS, num_missed: int | None = None):
        """Runs one step and returns its plan."""
        missed = {} if num_missed is None else {"draft-model": num_missed}
        offer = Offer(16, () if free is None else (free,), missed)
        room = StepRoom(1, 0, 100)
        [plan] = self.control.plan([self.sequence], [offer], room)
        drafting_s = {}
        draft = Draft.chain([7] * plan.window, plan.drafter, [0.8] * plan.window) if plan.window else Draft()
        if plan.drafter == "draft-model" and not (self.is_model_sure and self.could_draw):
            draft = Draft(drafter="draft-model") if self.could_draw else Draft()
        if plan.drafter == "draft-model" and (num_missed or 0) <= 256 and self.could_draw:
            drafting_s = {"draft-model": 0.1 * plan.window + 0.02 * (num_missed or 0)}
        num_accepted = min(num_right, len(draft))
        committed = [7] * num_accepted + ([7] if num_accepted < num_right else [9])
        verdict = Verdict(
            tuple(range(num_accepted)), tuple(committed[:-1]), committed[-1], (), len(draft), draft.drafter
        )
        self.sequence.token_ids += committed
        self.control.observe(
            StepOutcome(
                sequences=[self.sequence],
                offers=[offer],
                plans=[plan],
                drafts=[draft],
                verdicts=[verdict],
                room=room,
                drafting_s=drafting_s,
                target_s=self.true_costs.step_s(1 + len(draft), 0.0),
                passes=self.passes,
            )
        )
        return plan


def test_a_draft_that_pays_is_taken_and_grows_with_success():
    run = Run(controller(), sequence())
    windows = [run.step(16).window for _ in range(4)]
    assert 0 < windows[0] <= 4
    assert windows[-1] == 8
    times = run.control.times
    assert times.plain_s > 1.5 * times.compared_s


def test_a_draft_that_is_always_wrong_is_left_out():
    run = Run(controller(), sequence())
    plans = [run.step(0) for _ in range(300)]
    assert sum(plan.window > 0 for plan in plans[-50:]) == 0
    assert plans[-1].reason == "does not pay"
    assert run.control.times.wasted_share < 0.02


@pytest.mark.parametrize("num_right", [0, 3])
def test_reading_a_text_is_wasted_where_no_draft_behind_it_is_accepted(num_right):
    run = Run(controller(WITH_MODEL), sequence())
    while run.step(num_right, free=None, num_missed=200).window == 0:
        pass
    prefill_s = 200 * 0.02
    assert run.control.times.drafting_s["draft-model"] > prefill_s
    assert run.control.times.wasted_s < 2.0  # the next draft may be right
    run.sequence.status = SequenceStatus.FINISHED
    assert run.control.times.wasted_s == pytest.approx(0.0 if num_right else prefill_s, abs=2.0)


def test_a_drafter_that_becomes_right_is_noticed_without_being_tried():
    run = Run(controller(), sequence())
    for _ in range(200):
        run.step(0)
    assert any(run.step(8).window > 0 for _ in range(30))


def test_requests_limit_what_is_drafted():
    for own, most, reason in [
        (sequence(max_window=2), 2, None),
        (sequence(max_window=0), 0, "request"),
        (sequence(drafters=("draft-model",)), 0, "request"),
        (sequence(max_tokens=4), 2, None),
    ]:
        run = Run(controller(), own)
        plan = run.step(0)
        assert plan.window <= most
        assert plan.reason == reason


def test_users_limit_the_window():
    run = Run(controller(num_speculative_tokens=3), sequence())
    assert max(run.step(16).window for _ in range(5)) == 3


def test_spare_rows_bound_the_sum_of_windows():
    control = controller()
    sequences = [sequence() for _ in range(4)]
    plans = control.plan(sequences, [Offer(16, (GUESS,))] * 4, StepRoom(4, 0, 5))
    assert 0 < sum(plan.window for plan in plans) <= 5
    assert control.plan([], [], StepRoom(0, 0, 5)) == []


def test_without_drafters_there_is_a_reason():
    assert Run(controller(), sequence()).step(0, free=None).reason == "no draft"


def test_a_drafter_below_the_threshold_rests_until_a_probe_passes():
    run = Run(controller(fallback_threshold=0.5), sequence())
    plans = [run.step(1) for _ in range(60)]
    resting = [plan for plan in plans if plan.reason == "fallback_threshold"]
    assert len(resting) > 30
    for _ in range(600):
        last = run.step(8)
    assert last.window > 0


def test_the_probe_of_a_drafter_below_the_threshold_is_no_longer_than_a_first_draft():
    control = controller(WITH_MODEL, fallback_threshold=0.9)
    run = Run(control, sequence())
    for _ in range(63):
        run.step(1, free=None, num_missed=1)
    probe = Run(control, sequence()).step(1, free=None, num_missed=1)
    assert 0 < probe.window <= 3


def test_a_model_starts_once_what_is_left_repays_reading_the_text():
    run = Run(controller(WITH_MODEL), sequence())
    plans = [run.step(4, free=None, num_missed=1500) for _ in range(8)]
    assert plans[0].window == 0  # the drafter must have missed some tokens first
    assert any(plan.drafter == "draft-model" and plan.window > 0 for plan in plans)
    short = Run(controller(WITH_MODEL), sequence(max_tokens=4))
    assert all(short.step(0, free=None, num_missed=100).window == 0 for _ in range(3))


def test_a_model_is_not_started_where_free_drafts_do_as_well():
    run = Run(controller(WITH_MODEL), sequence())
    plans = [run.step(8, num_missed=2000) for _ in range(40)]
    assert {plan.drafter for plan in plans} <= {"ngram", "none"}


def test_a_model_that_was_good_comes_back_at_once_after_a_copied_passage():
    run = Run(controller(WITH_MODEL), sequence())
    before = [run.step(4, free=None, num_missed=1) for _ in range(12)][-1]
    copied = [run.step(8, num_missed=9 * (count + 1)) for count in range(8)]
    assert all(plan.drafter == "ngram" and plan.window == 8 for plan in copied[2:])
    after = run.step(4, free=None, num_missed=80)
    assert after.drafter == "draft-model"
    assert after.window > 0
    assert after.deepen_above[0] < 1.2 * before.deepen_above[0]  # the copied passage did not raise the price of time


def test_a_models_plan_says_what_branches_and_reading_ahead_are_worth():
    run = Run(controller(WITH_MODEL), sequence())
    plan = [run.step(4, free=None, num_missed=1) for _ in range(60)][-1]
    assert plan.read_above == pytest.approx([0.02 / 7 / 0.1] * 8)  # the price of one more row in a draft pass
    assert len(plan.branch_above) == plan.window
    row_price, pass_price = 0.2 / 63, 0.1
    assert plan.deepen_above[0] / plan.branch_above[1] > (row_price + pass_price) / (1.3 * row_price)


def test_a_model_that_finds_no_token_likely_is_evidence_too():
    run = Run(controller(WITH_MODEL), sequence())
    run.is_model_sure = False
    windows = [run.step(0, free=None, num_missed=1).window for _ in range(200)]
    assert windows[0] > 1
    assert sum(window > 0 for window in windows) < 15
    assert max(windows[windows.index(0) :]) == 1  # after a pause one token is enough to show that things have changed
    run.is_model_sure = True
    assert [run.step(6, free=None, num_missed=1).window for _ in range(200)][-1] > 6


def test_a_model_that_could_not_draw_is_no_evidence():
    run = Run(controller(WITH_MODEL), sequence())
    run.could_draw = False
    assert all(run.step(0, free=None, num_missed=1).drafter == "draft-model" for _ in range(100))


def test_depths_that_share_passes_are_cheaper():
    run = Run(controller(WITH_MODEL), sequence())
    before = [run.step(8, free=None, num_missed=1) for _ in range(60)][-1]
    run.passes = {"draft-model": [5, 3]}
    after = [run.step(8, free=None, num_missed=1) for _ in range(60)][-1]
    assert after.deepen_above[0] < 0.6 * before.deepen_above[0]


def test_a_model_that_is_always_wrong_is_probed_ever_more_rarely():
    run = Run(controller(WITH_MODEL), sequence())
    drafted = [run.step(0, free=None, num_missed=0).window > 0 for _ in range(3000)]
    assert sum(drafted[:1000]) > sum(drafted[2000:])
    assert sum(drafted[2000:]) <= 10
    assert run.control.times.wasted_share < 0.02


def test_one_long_draft_that_was_wrong_is_no_reason_to_pause():
    guard = Guard()
    guard.record(1.0, 1.0, 1)
    guard.record(-4.0, 1.0, 2)
    assert not guard.is_pausing(3)
    guard.record(0.2, 1.0, 3)
    guard.record(-0.1, 1.0, 4)
    assert not guard.is_pausing(5)
    guard.record(-0.1, 1.0, 5)
    assert guard.is_pausing(6)


def test_a_guard_pauses_longer_each_time_and_forgives():
    guard = Guard()
    pauses = []
    for step in range(400):
        if not guard.is_pausing(step):
            guard.record(-1.0, 1.0, step)
            if guard.is_pausing(step + 1):
                pauses.append(guard.resume_at - step)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 8 * pauses[0]
    guard.record(40.0, 1.0, 400)
    assert not guard.is_in_doubt


def test_a_probe_must_fit_the_budget_and_waits_longer_after_failure():
    budget = ProbeBudget(total_s=1000.0, spent_s=9.0)
    assert budget.can_afford(2.0, 1.0)
    assert not budget.can_afford(4.0, 1.0)
    retry = RetryBackoff()
    first = next(count for count in range(1, 1000) if retry.wait())
    retry.record(has_paid=False)
    assert next(count for count in range(1, 1000) if retry.wait()) == 2 * first
    retry.record(has_paid=True)
    assert next(count for count in range(1, 1000) if retry.wait()) == first
