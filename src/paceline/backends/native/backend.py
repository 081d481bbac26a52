"""`NativeBackend`: the C++ core with its pool of threads, on this machine's CPU."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

from paceline import _native
from paceline.backends.native.model import NativeModel, check_native
from paceline.backends.native.sampler import NativeSampler
from paceline.backends.protocol import LoadOptions, Model
from paceline.checkpoint import GgufFile
from paceline.core import Batch, ModelConfig
from paceline.core.errors import ConfigError
from paceline.machine.cores import cpu_name
from paceline.machine.memory import available_memory_bytes


class NativeBackend:
    """One pool of threads, which models and sampler share; they use it one call at a time.

    `instruction_set` None takes the one that PACELINE_ISA names, or else the machine's best. Raises ConfigError for an
    instruction set that the machine does not have, and where the threads cannot be started.
    """

    name = "native"

    def __init__(self, num_threads: int, instruction_set: str | None = None) -> None:
        try:
            self.threads = _native.ThreadPool(num_threads)
        except RuntimeError as error:
            raise ConfigError(f"num_threads is {num_threads}: {error}") from error
        try:
            self._instruction_set = instruction_set or _native.default_instruction_set()
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if self._instruction_set not in _native.instruction_sets():
            raise ConfigError(f"instruction set {instruction_set!r} cannot run on this machine")
        self.sampler = NativeSampler(self.threads, self._instruction_set)

    @property
    def instruction_set(self) -> str:
        """Which kernels run: scalar, avx2, avx512 or amx."""
        return self._instruction_set

    @property
    def num_threads(self) -> int:
        """Threads in the pool."""
        return self.threads.num_threads

    @property
    def identity(self) -> str:
        """A text that changes with the built core, the kernels, the threads, the host and its processor."""
        built = Path(_native.__file__).stat()
        place = (platform.node(), cpu_name(), len(os.sched_getaffinity(0)))
        return repr((self.name, built.st_size, built.st_mtime_ns, self.instruction_set, self.num_threads, place))

    def free_memory_bytes(self) -> int:
        """Returns the memory that this process can take without swapping."""
        return available_memory_bytes()

    def weights_size_bytes(self, gguf: GgufFile) -> int:
        """Returns the file's size, because repacked weights take as much."""
        return gguf.size_bytes

    def load(self, gguf: GgufFile, config: ModelConfig, options: LoadOptions) -> Model:
        """Returns the model with its weights repacked. From then on it reads only the embedding from the file, and rows
        of the output layer if `options.slimming` leaves some out."""
        return NativeModel(
            gguf,
            config,
            threads=self.threads,
            max_positions=options.max_positions,
            instruction_set=self._instruction_set,
            kv_cache_type=options.kv_cache_type,
            activation_rounding=options.activation_rounding,
            slimming=options.slimming,
        )

    def measure_pass_s(self, model: Model, batch: Batch) -> float:
        """Returns the seconds that one forward pass takes."""
        start_s = time.perf_counter()
        model.forward(batch)
        return time.perf_counter() - start_s


class NativeKind:
    """Opens the native backend, and says what it can run."""

    name = NativeBackend.name

    def instruction_sets(self) -> tuple[str, ...]:
        """Returns scalar always, then avx2, avx512 and amx where the machine has them."""
        return tuple(_native.instruction_sets())

    def check(self, gguf: GgufFile, config: ModelConfig) -> None:
        """Raises UnsupportedModelError or CheckpointError for a file that `load` refuses."""
        check_native(gguf, config)

    def open(self, num_threads: int, instruction_set: str | None = None) -> NativeBackend:
        """Returns the backend; raises ConfigError."""
        return NativeBackend(num_threads, instruction_set)


KIND = NativeKind()
