"""Checks whether automatic mode is ever slower than plain decoding, by alternating pairs of runs on each prompt.

On a busy machine a single run says little. The median of several ratios, each from two consecutive runs, says more.
The time of drafts without an accepted token is counted too. Nothing here prints.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.operations.bench import Bench, Measurement
from paceline.operations.timed_answers import StepTimes
from paceline.operations.workload import AUTO, PLAIN, Task, paired_modes


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCheck:
    """The result of one prompt. `ratios` has for each pair the speed of automatic mode divided by that of plain
    decoding. The shares are parts of automatic mode's step time: `wasted_share` is the time of drafts without an
    accepted token, and `lost_share` is the time by which drafters cost more than they saved."""

    task_id: str
    task: str
    ratios: tuple[float, ...]
    wasted_share: float
    lost_share: float
    is_text_equal: bool

    @property
    def median_ratio(self) -> float:
        """The median of `ratios`. Below 1, automatic mode is slower."""
        return statistics.median(self.ratios)


def check_pairs(
    bench: Bench, tasks: Sequence[Task], num_pairs: int, *, max_tokens: int | None = None, temperature: float = 0.0
) -> Iterator[PairCheck]:
    """Yields the result of each prompt, from `num_pairs` runs in each mode, in alternating order. Prompts whose answer
    is a single token are left out. The bench must have both modes."""
    modes = {mode.name: mode for mode in bench.modes}
    for task in tasks:
        pairs: list[tuple[Measurement, Measurement]] = []
        is_equal = True
        for number in range(num_pairs):
            runs = {
                name: bench.measure_one(task, modes[name], max_tokens=max_tokens, temperature=temperature)
                for name in paired_modes(number)
            }
            is_equal = is_equal and runs[PLAIN][0] == runs[AUTO][0]
            pairs.append((runs[PLAIN][1], runs[AUTO][1]))
        if all(auto.decode_s > 0.0 and plain.decode_s > 0.0 for plain, auto in pairs):
            yield _pair_check(task, pairs, is_equal)


def _pair_check(task: Task, pairs: list[tuple[Measurement, Measurement]], is_equal: bool) -> PairCheck:
    times = sum((StepTimes(auto.step_s, auto.wasted_s or 0.0, auto.lost_s or 0.0) for _, auto in pairs), StepTimes())
    return PairCheck(
        task_id=task.id,
        task=task.task,
        ratios=tuple(plain.decode_s / auto.decode_s for plain, auto in pairs),
        wasted_share=times.wasted_share,
        lost_share=times.lost_share,
        is_text_equal=is_equal,
    )
