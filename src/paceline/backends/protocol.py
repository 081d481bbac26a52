"""The `Model` protocol: what the engine needs of a target or draft model, whatever runs it.

Implementations: `native` (C++ core), `reference` (numpy, the oracle of tests). A model does not know sequences,
drafts or samplers; it turns the rows of a `Batch` into logits and keeps K and V in the slots it is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paceline.core import Batch, Float32Array, ModelConfig


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
        """Replaces the store by one of `num_blocks` empty blocks; raises InsufficientMemoryError."""
        ...

    def move(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies K and V of slot `source` to slot `destination` for each (source, destination), in order."""
        ...

    def read_block(self, block_id: int) -> npt.NDArray[np.uint8]:
        """The block's bytes, [block_size_bytes]."""
        ...

    def write_block(self, block_id: int, data: npt.NDArray[np.uint8]) -> None:
        """Restores what `read_block` returned."""
        ...


class Model(Protocol):
    """A decoder with its KV store."""

    config: ModelConfig

    @property
    def kv(self) -> KvStore:
        """The model's KV memory."""
        ...

    def forward(self, batch: Batch) -> Float32Array:
        """Logits of `batch.logit_rows`, float32 [L, vocab_size]; valid until the next call. Writes K and V of every
        row.

        A row's logits are a function of its sequence's tokens up to its position alone, bit for bit.
        """
        ...
