"""Replays acceptance traces with any cost model and the engine's own controllers, in virtual time.

The text is the same with every setting, so differences between settings are exact. What automatic mode loses against
the best fixed setting (its regret) contains no noise of the machine. Nothing here prints.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest

from laboratory.trace import PromptTrace, Proposal, Trace
from paceline.controller.adaptive import AdaptiveController
from paceline.controller.cost_model import CostModel, StepCosts
from paceline.controller.fixed import FixedController
from paceline.controller.options import Limits
from paceline.controller.protocol import Controller, Offer, StepOutcome, StepRoom
from paceline.core import Draft, Plan, Request, SamplingParams, Sequence, Verdict
from paceline.core.draft_tree import best_first, chain_length, child_by_token, cut
from paceline.core.sequence import SequenceStatus
from paceline.drafters.chains.growing_draft import GrowingDraft
from paceline.drafters.draft_model.kind import DraftModelKind
from paceline.drafters.draft_model.lookahead import num_worth_reading
from paceline.drafters.draft_model.text import MOST_UNREAD
from paceline.drafters.suffix.kind import SuffixKind
from paceline.operations.workload import AUTO, PLAIN

MAX_WINDOW = 16
FIXED_WINDOWS = (1, 2, 3, 5, 7, 10, 16)
_CHUNK = 256
_SPARE_ROWS = 264


@dataclass(frozen=True, slots=True)
class Setting:
    """How to draft. `drafter` None and window 0 is plain decoding. With `is_auto` the controller decides both."""

    name: str
    drafter: str | None = None
    window: int = 0
    is_auto: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One setting on some prompts. `wasted_share` is the share of time for drafts without an accepted token.
    `lost_share` is the share by which drafters cost more than they saved, added up over drafters and answers."""

    setting: str
    task: str | None
    num_tokens: int
    num_steps: int
    seconds: float
    wasted_share: float
    lost_share: float

    @property
    def tokens_per_s(self) -> float:
        """The speed of all streams together."""
        return self.num_tokens / self.seconds


@dataclass(slots=True, eq=False)
class _Stream:
    """One answer in progress."""

    trace: PromptTrace
    sequence: Sequence
    num_missed: dict[str, int] = field(default_factory=dict)

    @classmethod
    def start(cls, trace: PromptTrace, readers: abc.Sequence[str]) -> _Stream:
        """Returns a stream with the first token, from the prompt's pass. The `readers` must still read the prompt."""
        prompt = list(range(trace.num_prompt_tokens))
        sampling = SamplingParams(max_tokens=len(trace.token_ids))
        request = Request(request_id=trace.prompt_id, prompt_token_ids=prompt, sampling=sampling)
        sequence = Sequence(request, 0, [*prompt, trace.token_ids[0]], status=SequenceStatus.RUNNING)
        return cls(trace, sequence, dict.fromkeys(readers, min(MOST_UNREAD, trace.num_prompt_tokens)))

    @property
    def window(self) -> int:
        """The most draft tokens that can still be useful."""
        return max(0, min(MAX_WINDOW, len(self.trace.token_ids) - self.sequence.num_output_tokens - 1))

    def proposal(self, drafter: str) -> Proposal:
        """Returns what the drafter would propose now."""
        return self.trace.proposals[drafter][self.sequence.num_output_tokens - 1]

    def grow(self, drafter: str, plan: Plan) -> tuple[Draft, list[int]]:
        """Returns the draft that a model drafter makes from its recorded chain, and the rows of its passes."""
        guesses = list(self.proposal(drafter).guesses())
        growing = GrowingDraft(plan, plan.window)
        rows: list[int] = []
        is_open = True
        while is_open and len(growing.token_ids) < len(guesses):
            known = self._read_ahead(growing) if drafter == DraftModelKind.name else []
            rows.append(1 + len(known))
            num_drawn = len(growing.token_ids)
            is_open = growing.push_all(guesses[num_drawn : num_drawn + 1 + len(known)], known)
        return growing.finish(drafter), rows

    def _read_ahead(self, growing: GrowingDraft) -> list[int]:
        """Returns the suffix drafter's guesses after a draft. They are known only if the draft equals the text."""
        position = self.sequence.num_output_tokens + len(growing.token_ids)
        guesses = self.trace.proposals.get(SuffixKind.name, [])
        is_text = growing.token_ids == self.trace.token_ids[self.sequence.num_output_tokens : position]
        if not is_text or position > len(guesses):
            return []
        guess = guesses[position - 1]
        return guess.token_ids[: num_worth_reading(guess.confidences[: growing.room - 1], growing.plan)]

    def verify(self, draft: Draft) -> Verdict:
        """Returns the verdict that the target would give."""
        future = self.trace.token_ids[self.sequence.num_output_tokens :]
        children, path = child_by_token(draft), list[int]()
        for token_id in future[:-1]:
            child = children.get((path[-1] if path else None, token_id))
            if child is None:
                break
            path.append(child)
        return Verdict(tuple(path), tuple(future[: len(path)]), future[len(path)], (), len(draft), draft.drafter)

    def commit(self, verdict: Verdict, draft: Draft) -> None:
        """Appends the tokens. The draft's drafter has read all nodes of its chain but the last, and no branch."""
        self.sequence.token_ids += verdict.committed
        num_read = chain_length(draft) - 1
        for name in self.num_missed:
            if name != draft.drafter:
                self.num_missed[name] = min(MOST_UNREAD, self.num_missed[name] + len(verdict.committed))
            else:
                self.num_missed[name] += sum(node >= num_read for node in verdict.path)
        if self.sequence.num_output_tokens == len(self.trace.token_ids):
            self.sequence.status = SequenceStatus.FINISHED


class Simulation:
    """Replays prompts of one trace, `num_streams` at a time. The times come from `costs`."""

    def __init__(self, trace: Trace, costs: StepCosts, *, num_streams: int = 1) -> None:
        self._trace = trace
        self._clock = CostModel(costs)
        self._num_streams = num_streams
        self._made = [name for name in trace.made_drafters if name in costs.drafters]
        self._readers = [name for name in self._made if costs.drafters[name].missed_token_s > 0.0]

    def settings(self) -> list[Setting]:
        """Returns plain decoding, every drafter with every fixed window, and automatic mode."""
        names = {name: None for prompt in self._trace.prompts for name in prompt.proposals}
        fixed = [Setting(f"{name} {window}", name, window) for name in names for window in FIXED_WINDOWS]
        return [Setting(PLAIN), *fixed, Setting(AUTO, is_auto=True)]

    def replay(self, setting: Setting, prompts: abc.Sequence[PromptTrace], task: str | None = None) -> Replay:
        """Replays the prompts with a new controller."""
        controller = self._controller(setting)
        waiting = list(prompts)[::-1]
        running: list[_Stream] = []
        seconds, num_steps, num_tokens = 0.0, 0, 0
        while waiting or running:
            while waiting and len(running) < self._num_streams:
                running.append(_Stream.start(waiting.pop(), self._readers))
            before = sum(stream.sequence.num_output_tokens for stream in running)
            seconds += self._step(controller, running, setting)
            num_tokens += sum(stream.sequence.num_output_tokens for stream in running) - before
            num_steps += 1
            running = [stream for stream in running if not stream.sequence.is_finished]
        return Replay(
            setting=setting.name,
            task=task,
            num_tokens=num_tokens,
            num_steps=num_steps,
            seconds=seconds,
            wasted_share=controller.times.wasted_share,
            lost_share=controller.times.lost_share,
        )

    def _controller(self, setting: Setting) -> Controller:
        if setting.is_auto:
            return AdaptiveController(CostModel(self._clock.costs), Limits(MAX_WINDOW))
        return FixedController(setting.window, *(name for name in self._made if name == setting.drafter))

    def _step(self, controller: Controller, streams: list[_Stream], setting: Setting) -> float:
        """Simulates one step of all streams. Returns its seconds."""
        drafting = [stream for stream in streams if stream.window > 0]
        sequences = [stream.sequence for stream in drafting]
        offers = [self._offer(stream, setting) for stream in drafting]
        room = StepRoom(len(streams), len(streams) - len(drafting), _SPARE_ROWS)
        plans = controller.plan(sequences, offers, room)
        drafts, drafting_s, passes = self._draft(drafting, plans, offers)
        context = sum(len(stream.sequence.token_ids) for stream in streams) / len(streams)
        target_s = self._clock.step_s(len(streams) + sum(map(len, drafts)), context)
        verdicts = [stream.verify(draft) for stream, draft in zip(drafting, drafts, strict=True)]
        for stream in streams:
            if stream.window == 0:
                stream.commit(stream.verify(Draft()), Draft())
        for stream, verdict, draft in zip(drafting, verdicts, drafts, strict=True):
            stream.commit(verdict, draft)
        controller.observe(
            StepOutcome(
                sequences=sequences,
                offers=offers,
                plans=plans,
                drafts=drafts,
                verdicts=verdicts,
                room=room,
                drafting_s=drafting_s,
                target_s=target_s,
                passes=passes,
            )
        )
        return target_s + sum(drafting_s.values())

    def _offer(self, stream: _Stream, setting: Setting) -> Offer:
        names = stream.trace.proposals if setting.is_auto else [setting.drafter] if setting.drafter else []
        free = [best_first(stream.proposal(name).draft(name)) for name in names if name not in self._made]
        drafts = tuple(cut(draft, stream.window) for draft in free if len(draft) > 0)
        return Offer(
            stream.window, drafts, {name: stream.num_missed.get(name, 0) for name in names if name in self._made}
        )

    def _draft(
        self, streams: list[_Stream], plans: list[Plan], offers: list[Offer]
    ) -> tuple[list[Draft], dict[str, float], dict[str, list[int]]]:
        """Returns the drafts of all plans, each drafter's seconds, and the rows of the draft model's passes."""
        drafts = [offer.take(plan) for offer, plan in zip(offers, plans, strict=True)]
        seconds: dict[str, float] = {}
        passes: dict[str, list[int]] = {}
        for name in self._made:
            users = [i for i, plan in enumerate(plans) if plan.drafter == name and plan.window > 0]
            if users:
                made, seconds[name], rows = self._make(name, [streams[i] for i in users], [plans[i] for i in users])
                if name == DraftModelKind.name:
                    passes[name] = rows
                for index, draft in zip(users, made, strict=True):
                    drafts[index] = draft
        return drafts, seconds, passes

    def _make(self, name: str, streams: list[_Stream], plans: list[Plan]) -> tuple[list[Draft], float, list[int]]:
        """Returns drafts, seconds and rows of passes. As model drafters do, reads in chunks, shortest backlog first."""
        budget, num_read = _CHUNK, 0
        drafts = {id(stream): Draft() for stream in streams}
        passes: list[int] = []
        pairs = zip(streams, plans, strict=True)
        for stream, plan in sorted(pairs, key=lambda pair: pair[0].num_missed.get(name, 0)):
            missed = stream.num_missed.get(name, 0)
            count = min(missed, budget)
            budget -= count
            num_read += count
            if missed > 0:
                stream.num_missed[name] -= count
            if count == missed and budget > 0:
                drafts[id(stream)], rows = stream.grow(name, plan)
                passes = [sum(pair) for pair in zip_longest(passes, rows, fillvalue=0)]
        context = sum(len(stream.sequence.token_ids) for stream in streams) / len(streams)
        passes_s = sum(self._clock.depth_s(name, num_rows, context) for num_rows in passes)
        return [drafts[id(stream)] for stream in streams], self._clock.catch_up_s(name, num_read) + passes_s, passes


def replay_all(trace: Trace, costs: StepCosts, *, num_streams: int = 1) -> Iterator[Replay]:
    """Yields the replay of every setting on every kind of task, then on all prompts."""
    simulation = Simulation(trace, costs, num_streams=num_streams)
    tasks = list(dict.fromkeys(prompt.task for prompt in trace.prompts))
    for task in [*tasks, None]:
        prompts = [prompt for prompt in trace.prompts if task in (None, prompt.task)]
        for setting in simulation.settings():
            yield simulation.replay(setting, prompts, task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """One kind of task (None: all), with speed-ups over plain decoding. `regret` is how much slower automatic mode is
    than the best fixed setting; below 0 it is faster."""

    task: str | None
    plain_tokens_per_s: float
    auto_speed_up: float
    best_fixed: str
    best_fixed_speed_up: float
    wasted_share: float
    lost_share: float

    @property
    def regret(self) -> float:
        """The speed that automatic mode loses, as a share of the best fixed setting's."""
        return 1.0 - self.auto_speed_up / self.best_fixed_speed_up


def regrets(replays: abc.Sequence[Replay]) -> list[Regret]:
    """Returns one regret for each kind of task, in order of appearance."""
    result = []
    for task in dict.fromkeys(replay.task for replay in replays):
        own = {replay.setting: replay for replay in replays if replay.task == task}
        plain, auto = own.pop(PLAIN), own.pop(AUTO)
        best = max((plain, *own.values()), key=lambda replay: replay.tokens_per_s)
        result.append(
            Regret(
                task=task,
                plain_tokens_per_s=plain.tokens_per_s,
                auto_speed_up=auto.tokens_per_s / plain.tokens_per_s,
                best_fixed=best.setting,
                best_fixed_speed_up=best.tokens_per_s / plain.tokens_per_s,
                wasted_share=auto.wasted_share,
                lost_share=auto.lost_share,
            )
        )
    return result
