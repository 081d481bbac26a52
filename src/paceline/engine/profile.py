"""The start-up profile: what steps cost on this machine, by real forward passes of the loaded models.

It takes under three seconds and is kept in the cache directory, keyed by everything that the times depend on. The
models' KV stores are replaced, so it comes before an engine is built.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np

import paceline
from paceline.checkpoint.atomic_file import write_atomically
from paceline.config import DrafterName, EngineConfig
from paceline.core import Batch
from paceline.models import Model, NativeModel
from paceline.models.machine_limits import cpu_name
from paceline.models.native import kernel_identity
from paceline.speculation import DrafterCosts, RowTable, StepCosts
from paceline.speculation.drafters.chain_batch import TokenRun, build_chain_batch

TARGET_ROWS = (1, 2, 4, 8, 12, 16, 32)
SEQUENCE_COUNTS = (1, 2, 4, 8, 16)
TIME_LIMIT_S = 2.5
_MAX_ROUNDS = 6
_MOST_CONTEXT = 1008
_BLOCK = 16
_NUM_READ = 32
_FEWEST = 2
_FIRST_TOKEN = 16
_FIRST_TARGET_TOKEN = 128  # others, or the target would go on where its own first layers ended
_MOST_KEPT = 64
_FORMAT = 1
_logger = logging.getLogger(__name__)


class ModelProfile:
    """The best times of one model's passes: a busy machine only ever adds time.

    The drafter of a model that `has_own_kv` must read texts first.
    """

    def __init__(
        self, model: Model, counts: tuple[int, ...], context: int, *, is_target: bool, has_own_kv: bool = True
    ) -> None:
        self._model = model
        self._counts = counts
        self._context = context
        self._is_target = is_target
        self._is_reader = has_own_kv and not is_target
        self._best: dict[tuple[int, int], float] = {}
        self._read_s = math.inf
        model.kv.allocate(_num_blocks())
        self._pass_s(1, 0)

    def measure(self, end_s: float) -> None:
        """One round of all passes; after `end_s` no more than the first time needs.

        Each pass comes equally often: of the one that came more often a disturbed machine would show a better best.
        """
        cases = [(count, 0) for count in self._counts] + [(1, self._context), (8, self._context)]
        for case in cases:
            if time.perf_counter() > end_s and len(self._best) >= _FEWEST:
                return
            self._best[case] = min(self._pass_s(*case), self._best.get(case, math.inf))
        if self._is_reader:
            batch = build_chain_batch(_chain(_NUM_READ, 0, _FIRST_TOKEN), _BLOCK)
            self._read_s = min(self._read_s, _seconds(self._model, batch))

    def table(self) -> RowTable:
        """What was measured, no row count dearer than more rows; the rest is left to extrapolation."""
        rows = tuple(count for count in self._counts if (count, 0) in self._best)
        context_s, row_context_s = self._context_slopes()
        return RowTable(rows, without_disturbance([self._best[count, 0] for count in rows]), context_s, row_context_s)

    def drafter_costs(self) -> DrafterCosts:
        """Of the drafter that runs this model."""
        if not self._is_reader:
            return DrafterCosts(self.table(), 0.0)
        missed_token_s = self._best[1, 0] if math.isinf(self._read_s) else self._read_s / _NUM_READ
        return DrafterCosts(self.table(), missed_token_s)

    def _pass_s(self, count: int, context: int) -> float:
        """Rows with logits: of one sequence for a target, each of a sequence of its own for a draft model."""
        runs = _chain(count, context, _FIRST_TARGET_TOKEN) if self._is_target else _singles(count, context)
        batch = build_chain_batch(runs, _BLOCK)
        return _seconds(self._model, replace(batch, logit_rows=np.arange(batch.num_rows, dtype=np.int32)))

    def _context_slopes(self) -> tuple[float, float]:
        """Seconds for each position of context of a sequence, and of a row; 0 where it was not measured."""
        context, best = self._context, self._best
        if context == 0 or not {(1, context), (8, context), (8, 0)} <= best.keys():
            return 0.0, 0.0
        one = (best[1, context] - best[1, 0]) / context
        eight = (best[8, context] - best[8, 0]) / context
        row_s = max(0.0, (eight - one) / 7)
        return max(0.0, one - row_s), row_s


def without_disturbance(seconds: Sequence[float]) -> tuple[float, ...]:
    """Times by rising row counts, each lowered to the least of those after it: fewer rows cannot take longer."""
    return tuple(reversed(list(accumulate(reversed(seconds), min))))


def profile(
    target: NativeModel,
    drafters: Mapping[DrafterName, Model],
    context_window_size: int,
    time_limit_s: float = TIME_LIMIT_S,
) -> StepCosts:
    """Measures a target and the models of drafters by their drafters' names; blocks for the time limit at most, but
    that each model has a few passes."""
    end_s = time.perf_counter() + time_limit_s
    context = max(0, min(_MOST_CONTEXT, (context_window_size - TARGET_ROWS[-1]) // _BLOCK * _BLOCK))
    drafter_profiles = {
        name: ModelProfile(model, SEQUENCE_COUNTS, context, is_target=False, has_own_kv=model.kv is not target.kv)
        for name, model in drafters.items()
    }
    target_profile = ModelProfile(target, TARGET_ROWS, context, is_target=True)
    for number in range(_MAX_ROUNDS):
        if number > 0 and time.perf_counter() > end_s:
            break
        for model_profile in (*drafter_profiles.values(), target_profile):
            model_profile.measure(end_s)
    costs: dict[str, DrafterCosts] = {name: drafter.drafter_costs() for name, drafter in drafter_profiles.items()}
    return StepCosts(target_profile.table(), costs)


def cached_profile(
    directory: Path,
    identities: tuple[str, ...],
    config: EngineConfig,
    target: NativeModel,
    drafters: Mapping[DrafterName, Model],
) -> StepCosts:
    """The profile of an earlier start under the same conditions, or a new one, which is kept.

    `identities` are those of the model files. A cache that cannot be read or written is no error, but
    is logged.
    """
    path = directory / "profiles" / f"{_key((*identities, *drafters), config, target)}.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=StepCosts)
    except FileNotFoundError:
        pass
    except (OSError, msgspec.MsgspecError) as error:
        _logger.warning("cannot read %s (%s); measuring the costs of steps again", path, error)
    costs = profile(target, drafters, min(config.context_window_size, target.config.max_context))
    try:
        write_atomically(path, msgspec.json.encode(costs))
        _remove_oldest(path.parent)
    except OSError as error:
        _logger.warning("cannot write %s (%s); the next start is slower", path, error.strerror)
    return costs


def _remove_oldest(directory: Path) -> None:
    files = sorted(directory.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MOST_KEPT]:
        file.unlink(missing_ok=True)


def _key(identities: tuple[str, ...], config: EngineConfig, target: NativeModel) -> str:
    """Of everything that the times depend on."""
    parts = (
        _FORMAT,
        paceline.__version__,
        kernel_identity(),
        identities,
        target.instruction_set,
        target.threads.num_threads,
        config.kv_cache_type,
        config.draft_vocab_size,
        config.draft_weight_bits,
        config.activation_bits,
        config.shared_layers,
        (platform.node(), cpu_name(), len(os.sched_getaffinity(0))),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _num_blocks() -> int:
    return -(-(_MOST_CONTEXT + TARGET_ROWS[-1]) // _BLOCK) + SEQUENCE_COUNTS[-1]


def _chain(num_rows: int, context: int, first_token: int) -> list[TokenRun]:
    token_ids = list(range(first_token, first_token + num_rows))
    return [TokenRun(list(range(_num_blocks())), context, token_ids, needs_logits=True)]


def _singles(num_sequences: int, context: int) -> list[TokenRun]:
    """Sequences that share all but their last block."""
    shared = list(range(context // _BLOCK))
    return [
        TokenRun([*shared, len(shared) + index], context, [token_id], needs_logits=True)
        for index, token_id in enumerate(range(_FIRST_TOKEN, _FIRST_TOKEN + num_sequences))
    ]


def _seconds(model: Model, batch: Batch) -> float:
    start_s = time.perf_counter()
    model.forward(batch)
    return time.perf_counter() - start_s
