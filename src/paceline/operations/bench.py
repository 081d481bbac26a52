"""Measures an engine in process on a workload: plain decoding, each drafter with a fixed window, and automatic mode,
one request at a time.

Every task runs under all modes before the next task begins, so that a machine whose speed drifts treats them alike.
The texts are compared too: a speed-up with another text would be none. Nothing here prints.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from paceline.config import DrafterName, EngineConfig
from paceline.core import SamplingParams
from paceline.core.errors import PacelineError
from paceline.engine import Engine
from paceline.engine.loading import LoadedPair, build_parts, load_pair, measure_costs, resolve_pair
from paceline.operations.provenance import Provenance, read_model_provenance, read_provenance
from paceline.operations.workload import Task
from paceline.speculation import AdaptiveController, Controller, CostModel, Limits

PLAIN = "plain"
AUTO = "auto"
FIXED_WINDOWS = (3, 7)


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to decode. `controller` plans in place of a fixed window, and learns from one task to the next."""

    name: str
    drafters: tuple[DrafterName, ...] = ()
    window: int = 0
    controller: Controller | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One task under one mode. `decode_tokens_per_s` counts from the first token on; None for a single token."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All tasks of one kind (None: all kinds) under one mode: totals, median time to first token."""

    mode: str
    task: str | None
    num_tasks: int
    num_tokens: int
    decode_tokens_per_s: float
    time_to_first_token_s: float
    tokens_per_step: float
    acceptance_rate: float | None
    is_text_equal: bool


@dataclass(frozen=True, slots=True)
class Bench:
    """Models loaded once, and the modes to measure."""

    config: EngineConfig
    pair: LoadedPair
    modes: tuple[Mode, ...]

    @classmethod
    def load(cls, config: EngineConfig, windows: Sequence[int] = FIXED_WINDOWS) -> Bench:
        """Modes: plain, each drafter alone with each window, and automatic. Raises what loading models raises."""
        pair = load_pair(config)
        modes = [Mode(PLAIN)]
        modes += [Mode(f"{name} {window}", (name,), window) for name in pair.drafter_names for window in windows]
        if pair.drafter_names:
            limits = Limits(config.num_speculative_tokens, config.fallback_threshold)
            controller = AdaptiveController(CostModel(measure_costs(pair, config)), limits)
            modes.append(Mode(AUTO, pair.drafter_names, config.num_speculative_tokens, controller))
        settings = {"max_batch_size": 1, "has_prefix_cache": False}
        return cls(config.model_copy(update=settings), pair, tuple(modes))

    def measure(self, tasks: Sequence[Task], *, max_tokens: int | None = None) -> Iterator[Measurement]:
        """Greedy; `max_tokens` None takes each task's own."""
        for task in tasks:
            plain_token_ids: list[int] | None = None
            for mode in self.modes:
                limit = task.max_tokens if max_tokens is None else min(max_tokens, task.max_tokens)
                token_ids, measurement = self._measure_one(task, mode, limit, plain_token_ids)
                plain_token_ids = token_ids if plain_token_ids is None else plain_token_ids
                yield measurement

    def provenance(self) -> Provenance:
        """Of this machine and these models."""
        resolved = resolve_pair(self.config)
        target, draft = resolved.target, resolved.draft
        model = self.pair.target.model
        return read_provenance(
            model.instruction_set,
            model.threads.num_threads,
            read_model_provenance(target.name, target.path),
            read_model_provenance(draft.name, draft.path) if draft else None,
        )

    def _measure_one(
        self, task: Task, mode: Mode, max_tokens: int, plain_token_ids: list[int] | None
    ) -> tuple[list[int], Measurement]:
        engine = self._engine(mode)
        prompt = engine.tokenizer.encode_chat(task.messages)
        start_s = time.perf_counter()
        outputs, times_s = [], []
        for output in engine.stream(prompt, SamplingParams(max_tokens=max_tokens, temperature=0.0)):
            outputs.append(output)
            times_s.append(time.perf_counter() - start_s)
        last = outputs[-1]
        if last.error is not None or set(engine.drafter_names) != set(mode.drafters):
            raise PacelineError(
                f"task {task.id} failed under {mode.name}: {last.error or 'a drafter was switched off'}"
            )
        token_ids = [token_id for output in outputs for token_id in output.token_ids]
        num_later = len(token_ids) - len(outputs[0].token_ids)
        return token_ids, Measurement(
            task_id=task.id,
            task=task.task,
            mode=mode.name,
            num_prompt_tokens=len(prompt),
            num_tokens=len(token_ids),
            num_steps=last.speculation.num_steps,
            num_draft_tokens=last.speculation.num_draft_tokens,
            num_accepted_tokens=last.speculation.num_accepted_tokens,
            time_to_first_token_s=times_s[0],
            total_s=times_s[-1],
            decode_tokens_per_s=num_later / (times_s[-1] - times_s[0]) if num_later else None,
            is_text_equal=plain_token_ids in (None, token_ids),
        )

    def _engine(self, mode: Mode) -> Engine:
        num_blocks = -(-self.config.context_window_size // self.config.block_size)
        config = self.config.model_copy(update={"num_speculative_tokens": mode.window})
        parts = build_parts(self.pair, config, mode.drafters, num_blocks)
        if mode.controller is not None:
            parts = replace(parts, controller=mode.controller)
        return Engine.from_parts(config, parts)


def summarize(measurements: Sequence[Measurement]) -> list[Summary]:
    """For each mode, in order of appearance: each kind of task, then all."""
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
    )


def markdown_table(summaries: Sequence[Summary]) -> str:
    """One row a kind of task, one column a mode: tokens per second, and what drafts did."""
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
    return f"{rate} ({speed_up}, {summary.tokens_per_step:.2f} a step)"
