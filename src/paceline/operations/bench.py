"""Measures plain decoding, each drafter with fixed windows, and automatic mode on a workload, one request at a time.

The engine runs in this process. Every task runs in all modes before the next task begins, so a machine whose speed
drifts affects all modes alike. Every run has a new tenant and an empty suffix store, except in the mode with a warm
store, which gives the same answer once before the measurement. The texts are compared with those of plain decoding.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paceline.config import EngineConfig
from paceline.controller.adaptive import AdaptiveController
from paceline.controller.cost_model import CostModel
from paceline.controller.options import Limits
from paceline.controller.protocol import Controller
from paceline.core import Request
from paceline.core.errors import PacelineError
from paceline.drafters import find_drafter_kind
from paceline.drafters.selection import without_constraint_drafters
from paceline.engine import Engine
from paceline.engine.assembly import LoadedPair, build_parts, load_pair, measure_costs
from paceline.engine.capacity import context_window_size, num_blocks_for
from paceline.operations.provenance import Provenance, read_pair_provenance
from paceline.operations.timed_answers import StepTimes, TimedAnswer, answer_all
from paceline.operations.workload import AUTO, PLAIN, Task

AUTO_WARM = "auto, warm store"
FIXED_WINDOWS = (3, 7)


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to decode. If `controller` is given, it plans the windows, and it keeps learning from task to task. If
    `is_warm`, the engine first gives the same answer to the same tenant once, without measuring."""

    name: str
    drafters: tuple[str, ...] = ()
    window: int = 0
    controller: Controller | None = None
    is_warm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measurement of one task in one mode.

    `decode_tokens_per_s` counts from the first output on; None if all tokens came in one output. `step_s` is the time
    of steps that could draft. `wasted_s` is the part of it that went into drafts of which nothing was accepted, and
    `lost_s` is how much more drafters cost than they saved; both are None in modes without a controller.
    """

    task_id: str
    task: str
    mode: str
    num_prompt_tokens: int
    num_tokens: int
    num_steps: int
    num_draft_tokens: int
    num_accepted_tokens: int
    time_to_first_token_s: float
    total_s: float
    decode_tokens_per_s: float | None
    is_text_equal: bool
    step_s: float = 0.0
    wasted_s: float | None = None
    lost_s: float | None = None

    @property
    def decode_s(self) -> float:
        """The seconds from the first output to the last."""
        return self.total_s - self.time_to_first_token_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All tasks of one kind (None: all kinds) in one mode.

    `decode_tokens_per_s` is the harmonic mean, `time_to_first_token_s` the median; all else are sums or ratios of sums.
    """

    mode: str
    task: str | None
    num_tasks: int
    num_tokens: int
    decode_tokens_per_s: float
    time_to_first_token_s: float
    tokens_per_step: float
    acceptance_rate: float | None
    is_text_equal: bool
    wasted_share: float | None = None
    lost_share: float | None = None


@dataclass(frozen=True, slots=True)
class Bench:
    """Models that are loaded once, and the modes to measure on them."""

    config: EngineConfig
    pair: LoadedPair
    modes: tuple[Mode, ...]

    @classmethod
    def load(cls, config: EngineConfig, windows: Sequence[int] = FIXED_WINDOWS) -> Bench:
        """Loads the models and lists the modes; raises what loading models raises.

        The modes are plain decoding, each drafter alone with each window, automatic mode, and automatic mode with a
        warm store if any drafter remembers answers.
        """
        pair = load_pair(config)
        modes = [Mode(PLAIN)]
        alone = without_constraint_drafters(pair.drafter_names)
        modes += [Mode(f"{name} {window}", (name,), window) for name in alone for window in windows]
        if pair.drafter_names:
            modes.append(auto_mode(config, pair))
        if any(find_drafter_kind(name).remembers_outputs(config) for name in pair.drafter_names):
            modes.append(replace(auto_mode(config, pair), name=AUTO_WARM, is_warm=True))
        settings = {"max_batch_size": 1, "has_prefix_cache": False}
        return cls(config.model_copy(update=settings), pair, tuple(modes))

    def measure(
        self, tasks: Sequence[Task], *, max_tokens: int | None = None, temperature: float = 0.0
    ) -> Iterator[Measurement]:
        """Yields the measurement of each task in each mode; `max_tokens` None means each task's own limit."""
        for task in tasks:
            plain_token_ids: list[int] | None = None
            for mode in self.modes:
                token_ids, measurement = self.measure_one(
                    task, mode, max_tokens=max_tokens, temperature=temperature, plain_token_ids=plain_token_ids
                )
                plain_token_ids = token_ids if plain_token_ids is None else plain_token_ids
                yield measurement

    def measure_one(
        self,
        task: Task,
        mode: Mode,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        plain_token_ids: list[int] | None = None,
    ) -> tuple[list[int], Measurement]:
        """Returns the tokens and the measurement of one task in one mode, on a new engine.

        The measurement says whether the tokens equal `plain_token_ids` (None: they count as equal). Raises
        PacelineError if a drafter failed.
        """
        engine = self._engine(mode)
        request = Request(
            request_id=task.id,
            prompt_token_ids=engine.tokenizer.encode_chat(task.messages),
            sampling=task.sampling(max_tokens=max_tokens, temperature=temperature),
            tenant=f"{task.id} under {mode.name}",
        )
        if mode.is_warm:
            answer_all(engine, [request])
        before = StepTimes.of(engine)
        [answer] = answer_all(engine, [request])
        if set(engine.drafter_names) != set(mode.drafters):
            raise PacelineError(f"task {task.id} failed under {mode.name}: a drafter was switched off")
        times = StepTimes.of(engine) - before
        is_equal = plain_token_ids in (None, answer.token_ids)
        return answer.token_ids, _measurement(task, mode, len(request.prompt_token_ids), answer, times, is_equal)

    def provenance(self) -> Provenance:
        """Returns the machine, the versions and the models of the measurements."""
        return read_pair_provenance(self.config, self.pair)

    def _engine(self, mode: Mode) -> Engine:
        num_blocks = num_blocks_for(context_window_size(self.config, self.pair.target.model.config))
        config = self.config.model_copy(update={"num_speculative_tokens": mode.window})
        parts = build_parts(self.pair, config, mode.drafters, num_blocks)
        if mode.controller is not None:
            parts = replace(parts, controller=mode.controller)
        return Engine.from_parts(config, parts)


def auto_mode(config: EngineConfig, pair: LoadedPair) -> Mode:
    """Returns automatic mode: all drafters, and a new controller that knows the costs but no text yet."""
    limits = Limits(config.num_speculative_tokens, config.fallback_threshold)
    controller = AdaptiveController(CostModel(measure_costs(pair, config)), limits)
    return Mode(AUTO, pair.drafter_names, config.num_speculative_tokens, controller)


def _measurement(
    task: Task, mode: Mode, num_prompt_tokens: int, answer: TimedAnswer, times: StepTimes, is_equal: bool
) -> Measurement:
    speculation = answer.outputs[-1].speculation
    return Measurement(
        task_id=task.id,
        task=task.task,
        mode=mode.name,
        num_prompt_tokens=num_prompt_tokens,
        num_tokens=len(answer.token_ids),
        num_steps=speculation.num_steps,
        num_draft_tokens=speculation.num_draft_tokens,
        num_accepted_tokens=speculation.num_accepted_tokens,
        time_to_first_token_s=answer.time_to_first_token_s,
        total_s=answer.times_s[-1],
        decode_tokens_per_s=answer.decode_tokens_per_s,
        is_text_equal=is_equal,
        step_s=times.step_s,
        wasted_s=times.wasted_s if mode.controller else None,
        lost_s=times.lost_s if mode.controller else None,
    )


def summarize(measurements: Sequence[Measurement]) -> list[Summary]:
    """Returns for each mode, in order of appearance, the summary of each kind of task and then of all tasks."""
    modes = dict.fromkeys(measurement.mode for measurement in measurements)
    kinds = [*dict.fromkeys(measurement.task for measurement in measurements), None]
    return [
        _summary(mode, kind, [m for m in measurements if m.mode == mode and kind in (None, m.task)])
        for mode in modes
        for kind in kinds
    ]


def _summary(mode: str, task: str | None, measurements: list[Measurement]) -> Summary:
    num_drafted = sum(m.num_draft_tokens for m in measurements)
    num_steps = sum(m.num_steps for m in measurements)
    rates = [m.decode_tokens_per_s for m in measurements if m.decode_tokens_per_s is not None]
    return Summary(
        mode=mode,
        task=task,
        num_tasks=len(measurements),
        num_tokens=sum(m.num_tokens for m in measurements),
        decode_tokens_per_s=statistics.harmonic_mean(rates) if rates else 0.0,
        time_to_first_token_s=statistics.median(m.time_to_first_token_s for m in measurements),
        tokens_per_step=sum(m.num_tokens for m in measurements) / num_steps,
        acceptance_rate=sum(m.num_accepted_tokens for m in measurements) / num_drafted if num_drafted else None,
        is_text_equal=all(m.is_text_equal for m in measurements),
        wasted_share=_share([m.wasted_s for m in measurements], measurements),
        lost_share=_share([m.lost_s for m in measurements], measurements),
    )


def _share(seconds: Sequence[float | None], measurements: Sequence[Measurement]) -> float | None:
    """Returns the share of these seconds in the step time; None if either is unknown."""
    known = [value for value in seconds if value is not None]
    step_s = sum(m.step_s for m in measurements)
    return sum(known) / step_s if known and step_s else None


def markdown_table(summaries: Sequence[Summary]) -> str:
    """Returns a Markdown table with a row for each kind of task and a column for each mode.

    A cell has the tokens per second, the speed-up over plain decoding and the tokens per step.
    """
    modes = list(dict.fromkeys(summary.mode for summary in summaries))
    kinds = list(dict.fromkeys(summary.task for summary in summaries))
    by_key = {(summary.mode, summary.task): summary for summary in summaries}
    lines = [f"| task | {' | '.join(modes)} |", f"|---|{'---:|' * len(modes)}"]
    for kind in kinds:
        cells = [_cell(by_key[mode, kind], by_key[PLAIN, kind]) for mode in modes]
        lines.append(f"| {kind or '**all**'} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(summary: Summary, plain: Summary) -> str:
    rate = f"{summary.decode_tokens_per_s:.1f}"
    if summary.mode == PLAIN or plain.decode_tokens_per_s == 0:
        return rate
    speed_up = f"{summary.decode_tokens_per_s / plain.decode_tokens_per_s:.2f}x"
    wasted = "" if summary.wasted_share is None else f", {100 * summary.wasted_share:.1f} % wasted"
    return f"{rate} ({speed_up}, {summary.tokens_per_step:.2f} a step{wasted})"
