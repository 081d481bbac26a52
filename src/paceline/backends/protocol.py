"""The interfaces of a backend, which cover everything that depends on where models run.

The engine, drafters and verifier use backends through these protocols alone. Within a backend, the bits of a target's
logits and its tokens do not depend on the batch, the cache or the drafts. Two backends may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paceline.backends.slimming import WHOLE, Slimming
from paceline.checkpoint import GgufFile
from paceline.core import ActivationRounding, Batch, KvCacheType, ModelConfig
from paceline.sampling.sampler import Logits, Sampler

BLOCK_SIZE = 16
"""Slots in a block of KV memory."""


class KvStore(Protocol):
    """KV memory of one model in blocks of `block_size` slots; K and V are stored as `KvCacheType` says."""

    block_size: int

    @property
    def num_blocks(self) -> int:
        """Blocks allocated."""
        ...

    @property
    def block_size_bytes(self) -> int:
        """Memory of one block over all layers, K and V."""
        ...

    def allocate(self, num_blocks: int) -> None:
        """Replaces the store with `num_blocks` empty blocks; raises InsufficientMemoryError."""
        ...

    def move(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies K and V of slot `source` to slot `destination` for each (source, destination), in order."""
        ...

    def read_block(self, block_id: int) -> npt.NDArray[np.uint8]:
        """Returns the block's bytes, [block_size_bytes]."""
        ...

    def write_block(self, block_id: int, data: npt.NDArray[np.uint8]) -> None:
        """Restores what `read_block` returned."""
        ...


class Model(Protocol):
    """A decoder with its KV store. It turns the rows of a `Batch` into logits, and knows no sequences or drafts."""

    @property
    def config(self) -> ModelConfig:
        """What the file says about the model."""
        ...

    @property
    def kv(self) -> KvStore:
        """The model's KV memory."""
        ...

    @property
    def max_positions(self) -> int:
        """How many positions there are; a row's position is below this number."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Memory of the loaded weights."""
        ...

    def forward(self, batch: Batch) -> Logits:
        """Returns the logits of `batch.logit_rows` [L, vocab_size], valid until the next call, and writes K and V of
        every row.

        A row's logits depend only on its sequence's tokens up to its position, bit for bit. (With a slimmed output
        layer, which tokens have logits also depends on earlier batches.)
        """
        ...

    def first_layers(self, num_layers: int) -> Model:
        """Returns the first layers with the output layer as a model that shares weights and KV memory with this one.

        Raises ConfigError unless some layers are left out.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a model is loaded. `max_positions` is how many positions there are (None: as many as the model's context).
    `activation_rounding` None leaves the choice to the backend. `slimming` leaves out some of the weights."""

    max_positions: int | None = None
    kv_cache_type: KvCacheType = KvCacheType.F16
    activation_rounding: ActivationRounding | None = None
    slimming: Slimming = WHOLE


class Backend(Protocol):
    """One place where models run. Its models and its sampler take turns."""

    name: str

    @property
    def instruction_set(self) -> str:
        """The name of the kernels that run, for reports."""
        ...

    @property
    def num_threads(self) -> int:
        """Threads that share the work."""
        ...

    @property
    def identity(self) -> str:
        """A text that changes with whatever a pass's time depends on: kernels, their build, threads, processor."""
        ...

    @property
    def sampler(self) -> Sampler:
        """Draws tokens from the logits of this backend's models."""
        ...

    def free_memory_bytes(self) -> int:
        """Returns the memory that models and their KV may still take."""
        ...

    def weights_size_bytes(self, gguf: GgufFile) -> int:
        """Returns the memory that the loaded weights of this file will take."""
        ...

    def load(self, gguf: GgufFile, config: ModelConfig, options: LoadOptions) -> Model:
        """Returns the model with its weights in memory. Raises what `check` raises, and ConfigError."""
        ...

    def measure_pass_s(self, model: Model, batch: Batch) -> float:
        """Returns how many seconds one forward pass takes, from its call to the end of all its work."""
        ...


class BackendKind(Protocol):
    """Opens a backend, and says what it can run."""

    name: str

    def instruction_sets(self) -> tuple[str, ...]:
        """Returns the names of the kernels that this machine can run, slowest first."""
        ...

    def check(self, gguf: GgufFile, config: ModelConfig) -> None:
        """Raises UnsupportedModelError or CheckpointError for a file that cannot be loaded; reads no weights."""
        ...

    def open(self, num_threads: int, instruction_set: str | None = None) -> Backend:
        """Returns the backend; `instruction_set` None takes the best. Raises ConfigError."""
        ...
