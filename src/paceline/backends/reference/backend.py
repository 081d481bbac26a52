"""`ReferenceBackend`: runs models in numpy. It is slow, and runs everything that the native backend runs."""

from __future__ import annotations

import time

import numpy as np

from paceline.architectures import check_tensors
from paceline.backends.protocol import LoadOptions, Model
from paceline.backends.reference.model import ReferenceModel
from paceline.backends.reference.sampler import ReferenceSampler
from paceline.checkpoint import GgufFile
from paceline.core import Batch, ModelConfig
from paceline.core.errors import ConfigError
from paceline.machine.memory import available_memory_bytes

_NUMPY = "numpy"


class ReferenceBackend:
    """Runs models in numpy, with as many threads as numpy's BLAS takes. It never rounds weights, even where slimming
    asks for it. A slimmed output layer has logits for the kept tokens only."""

    name = "reference"

    def __init__(self, num_threads: int) -> None:
        self._num_threads = num_threads
        self.sampler = ReferenceSampler()

    @property
    def instruction_set(self) -> str:
        """Always `numpy`, which chooses its instructions itself."""
        return _NUMPY

    @property
    def num_threads(self) -> int:
        """The number of threads that was asked for; numpy's BLAS may use another."""
        return self._num_threads

    @property
    def identity(self) -> str:
        """A text that changes with numpy's version and the number of threads."""
        return repr((self.name, np.__version__, self._num_threads))

    def free_memory_bytes(self) -> int:
        """Returns the memory that this process can take without swapping."""
        return available_memory_bytes()

    def weights_size_bytes(self, gguf: GgufFile) -> int:
        """Returns the size of all weights as float32."""
        return sum(4 * int(np.prod(tensor.shape)) for tensor in gguf.tensors.values())

    def load(self, gguf: GgufFile, config: ModelConfig, options: LoadOptions) -> Model:
        """Returns the model with its weights in float32."""
        return ReferenceModel(
            gguf,
            config,
            max_positions=options.max_positions,
            activation_rounding=options.activation_rounding,
            kv_cache_type=options.kv_cache_type,
            slimming=options.slimming,
        )

    def measure_pass_s(self, model: Model, batch: Batch) -> float:
        """Returns the seconds of one forward pass."""
        start_s = time.perf_counter()
        model.forward(batch)
        return time.perf_counter() - start_s


class ReferenceKind:
    """Opens the reference backend, and says what it can run."""

    name = ReferenceBackend.name

    def instruction_sets(self) -> tuple[str, ...]:
        """Returns `numpy`, the only one."""
        return (_NUMPY,)

    def check(self, gguf: GgufFile, config: ModelConfig) -> None:
        """Raises UnsupportedModelError or CheckpointError for tensors that no decoder would use."""
        check_tensors(gguf, config)

    def open(self, num_threads: int, instruction_set: str | None = None) -> ReferenceBackend:
        """Returns the backend; raises ConfigError for an instruction set other than `numpy`."""
        if instruction_set not in (None, _NUMPY):
            raise ConfigError(
                f"the reference backend cannot run instruction set {instruction_set!r}; it has only 'numpy'"
            )
        return ReferenceBackend(num_threads)


KIND = ReferenceKind()
