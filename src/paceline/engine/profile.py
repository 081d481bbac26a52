"""The start-up profile: measures on this machine what steps cost, by real forward passes of the loaded models.

It takes under three seconds at the first start. The result is kept in the cache directory, with a key of everything
that the times depend on. Some later starts add a round, because the machine may have been busy at the first. The
profile replaces the models' KV stores, so it must run before an engine is built.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np

import paceline
from paceline.backends.protocol import BLOCK_SIZE, Backend, Model
from paceline.checkpoint.atomic_file import write_atomically
from paceline.controller.cost_model import DrafterCosts, RowTable, StepCosts
from paceline.drafters.chains.chain_batch import TokenRun, build_chain_batch

TARGET_ROWS = (1, 2, 4, 8, 12, 16, 32)
SEQUENCE_COUNTS = (1, 2, 4, 8, 16)
TIME_LIMIT_S = 2.5
_FIRST_ROUNDS = 6
_ENOUGH_ROUNDS = 12
_MOST_CONTEXT = 1008
_NUM_READ = 32
_FEWEST = 2
_FIRST_TOKEN = 16
_FIRST_TARGET_TOKEN = 128  # other tokens, or the target would reuse what its first layers computed
_MOST_KEPT = 64
_FORMAT = 2
_logger = logging.getLogger(__name__)


class PassTimes(msgspec.Struct, frozen=True):
    """The shortest times of one model's passes, as (rows, context, seconds). A busy machine can only add time.

    `read_s` is the time to read 32 tokens of text in one pass. It is None for a model that does not read texts first.
    """

    best: tuple[tuple[int, int, float], ...] = ()
    read_s: float | None = None

    def table(self) -> RowTable:
        """Returns the measured table, in which fewer rows never take longer. The cost model extrapolates it."""
        by_case = self.by_case()
        rows = tuple(sorted(count for count, context in by_case if context == 0))
        context_s, row_context_s = _context_slopes(by_case)
        return RowTable(rows, without_disturbance([by_case[count, 0] for count in rows]), context_s, row_context_s)

    def drafter_costs(self) -> DrafterCosts:
        """Returns the costs of a drafter that runs this model."""
        return DrafterCosts(self.table(), 0.0 if self.read_s is None else self.read_s / _NUM_READ)

    def by_case(self) -> dict[tuple[int, int], float]:
        """Returns the seconds by (rows, context)."""
        return {(count, context): seconds for count, context, seconds in self.best}


class ProfileTimes(msgspec.Struct, frozen=True):
    """The times of the target's and the drafters' models after `num_rounds` rounds."""

    num_rounds: int = 0
    target: PassTimes = PassTimes()
    drafters: dict[str, PassTimes] = {}

    def costs(self) -> StepCosts:
        """Returns the tables for the cost model."""
        return StepCosts(self.target.table(), {name: times.drafter_costs() for name, times in self.drafters.items()})


class ModelProfile:
    """Measures one model's passes. It starts from the times in `known`.

    No pass goes beyond `num_positions`. A drafter's model with its own KV must read texts, which is measured too.
    """

    def __init__(
        self,
        backend: Backend,
        model: Model,
        num_positions: int,
        known: PassTimes,
        *,
        is_target: bool,
        has_own_kv: bool = True,
    ) -> None:
        self._backend = backend
        self._model = model
        self._cases = pass_cases(num_positions, is_target=is_target)
        self._num_read = min(_NUM_READ, num_positions)
        self._is_target = is_target
        self._is_reader = has_own_kv and not is_target
        self._best = known.by_case()
        self._read_s = math.inf if known.read_s is None else known.read_s
        model.kv.allocate(_num_blocks())
        self._pass_s(1, 0)

    def measure(self, end_s: float) -> None:
        """Measures one round of all passes. After `end_s` it measures only until two cases are known.

        Within the time limit each pass is measured equally often. On a busy machine a pass that is measured more often
        would get a shorter best time.
        """
        for case in self._cases:
            if time.perf_counter() > end_s and len(self._best) >= _FEWEST:
                return
            self._best[case] = min(self._pass_s(*case), self._best.get(case, math.inf))
        if self._is_reader:
            batch = build_chain_batch(_chain(0, self._token_ids(_FIRST_TOKEN, self._num_read)), BLOCK_SIZE)
            self._read_s = min(
                self._read_s, self._backend.measure_pass_s(self._model, batch) * _NUM_READ / self._num_read
            )

    def times(self) -> PassTimes:
        """Returns the best times. If reading was not measured, it is assumed to take one pass for each token."""
        best = tuple((count, context, seconds) for (count, context), seconds in self._best.items())
        if not self._is_reader:
            return PassTimes(best)
        return PassTimes(best, self._best[1, 0] * _NUM_READ if math.isinf(self._read_s) else self._read_s)

    def _pass_s(self, count: int, context: int) -> float:
        """Returns the seconds of a pass with `count` rows, of one sequence (target) or of `count` (draft model)."""
        if self._is_target:
            runs = _chain(context, self._token_ids(_FIRST_TARGET_TOKEN, count))
        else:
            runs = _singles(context, self._token_ids(_FIRST_TOKEN, count))
        batch = build_chain_batch(runs, BLOCK_SIZE)
        batch = replace(batch, logit_rows=np.arange(batch.num_rows, dtype=np.int32))
        return self._backend.measure_pass_s(self._model, batch)

    def _token_ids(self, first: int, count: int) -> list[int]:
        return [token_id % self._model.config.vocab_size for token_id in range(first, first + count)]


def pass_cases(num_positions: int, *, is_target: bool) -> list[tuple[int, int]]:
    """Returns the (rows, context) of each pass to measure. The rows of a target are consecutive tokens of one sequence.
    Each row of a draft model belongs to another sequence. With context, passes of 1 and of 8 rows are measured."""
    counts = [count for count in TARGET_ROWS if count <= num_positions] if is_target else SEQUENCE_COUNTS
    context = min(_MOST_CONTEXT, (num_positions - TARGET_ROWS[-1]) // BLOCK_SIZE * BLOCK_SIZE)
    return [(count, 0) for count in counts] + ([(1, context), (8, context)] if context > 0 else [])


def _num_positions(model: Model, context_window_size: int) -> int:
    return min(context_window_size, model.config.max_context)


def _context_slopes(best: Mapping[tuple[int, int], float]) -> tuple[float, float]:
    """Returns the seconds that one position of context adds to a pass, and to each row; 0 if not measured."""
    context = max((context for _, context in best), default=0)
    if context == 0 or not {(1, context), (8, context), (8, 0)} <= best.keys():
        return 0.0, 0.0
    one = (best[1, context] - best[1, 0]) / context
    eight = (best[8, context] - best[8, 0]) / context
    row_s = max(0.0, (eight - one) / 7)
    return max(0.0, one - row_s), row_s


def without_disturbance(seconds: Sequence[float]) -> tuple[float, ...]:
    """Returns the times by rising row count, each lowered to the least of the later ones: fewer rows take no longer."""
    return tuple(reversed(list(accumulate(reversed(seconds), min))))


def profile(
    backend: Backend,
    target: Model,
    drafters: Mapping[str, Model],
    context_window_size: int,
    known: ProfileTimes,
    num_rounds: int,
    time_limit_s: float = TIME_LIMIT_S,
) -> ProfileTimes:
    """Measures a target and the drafters' models for up to `num_rounds` rounds. Returns the best times, with `known`.

    Blocks for about the time limit at most, or longer until two passes of each model are measured.
    """
    end_s = time.perf_counter() + time_limit_s
    drafter_profiles = {
        name: ModelProfile(
            backend,
            model,
            _num_positions(model, context_window_size),
            known.drafters.get(name, PassTimes()),
            is_target=False,
            has_own_kv=model.kv is not target.kv,
        )
        for name, model in drafters.items()
    }
    num_positions = _num_positions(target, context_window_size)
    target_profile = ModelProfile(backend, target, num_positions, known.target, is_target=True)
    num_done = 0
    while num_done < num_rounds and (num_done == 0 or time.perf_counter() < end_s):
        for model_profile in (*drafter_profiles.values(), target_profile):
            model_profile.measure(end_s)
        num_done += 1
    found: dict[str, PassTimes] = {name: drafter.times() for name, drafter in drafter_profiles.items()}
    return ProfileTimes(known.num_rounds + num_done, target_profile.times(), found)


def cached_profile(
    directory: Path,
    conditions: tuple[object, ...],
    context_window_size: int,
    backend: Backend,
    target: Model,
    drafters: Mapping[str, Model],
) -> StepCosts:
    """Returns the costs from the profile of earlier starts under the same conditions, or from a new profile.

    If the earlier starts measured fewer than 12 rounds, one more is measured. The new times are saved. `conditions` are
    everything that the times depend on besides the other arguments: files, backend, settings. A cache file that cannot
    be read or written is logged, and raises no error.
    """
    path = directory / "profiles" / f"{_key(conditions, context_window_size, target, drafters)}.json"
    known = _read(path)
    if known.num_rounds >= _ENOUGH_ROUNDS:
        return known.costs()
    num_rounds = 1 if known.num_rounds else _FIRST_ROUNDS
    times = profile(backend, target, drafters, context_window_size, known, num_rounds)
    try:
        write_atomically(path, msgspec.json.encode(times))
        _remove_oldest(path.parent)
    except OSError as error:
        _logger.warning("cannot write %s (%s); the next start is slower", path, error.strerror)
    return times.costs()


def _read(path: Path) -> ProfileTimes:
    """Returns the times in the file, or empty times if the file is absent or cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProfileTimes)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.MsgspecError) as error:
        _logger.warning("cannot read %s (%s); measuring the costs of steps again", path, error)
    return ProfileTimes()


def _remove_oldest(directory: Path) -> None:
    files = sorted(directory.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MOST_KEPT]:
        file.unlink(missing_ok=True)


def _key(conditions: tuple[object, ...], context_window_size: int, target: Model, drafters: Mapping[str, Model]) -> str:
    """Returns a hash of everything that the times depend on."""
    parts = (
        _FORMAT,
        paceline.__version__,
        conditions,
        tuple(drafters),
        pass_cases(_num_positions(target, context_window_size), is_target=True),
        [pass_cases(_num_positions(model, context_window_size), is_target=False) for model in drafters.values()],
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _num_blocks() -> int:
    return -(-(_MOST_CONTEXT + TARGET_ROWS[-1]) // BLOCK_SIZE) + SEQUENCE_COUNTS[-1]


def _chain(context: int, token_ids: list[int]) -> list[TokenRun]:
    return [TokenRun(list(range(_num_blocks())), context, token_ids, needs_logits=True)]


def _singles(context: int, token_ids: list[int]) -> list[TokenRun]:
    """Returns one run of one token for each sequence. The sequences share all but their last block."""
    shared = list(range(context // BLOCK_SIZE))
    return [
        TokenRun([*shared, len(shared) + index], context, [token_id], needs_logits=True)
        for index, token_id in enumerate(token_ids)
    ]
