"""A model with a fault of the kind that `verify` should find: one logit depends on the other rows of the batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from paceline.backends.first_layers import FirstLayers
from paceline.backends.native.model import NativeModel
from paceline.backends.protocol import KvStore
from paceline.core import Batch, Float32Array, ModelConfig
from paceline.engine.assembly import LoadedModel, LoadedPair


class BatchDependentModel:
    """A model that raises the logit of `token_id` in the second row of logits, so only if there is more than one row.

    `rise` None changes only the last bit of the logit. That changes log-probabilities, but hardly ever tokens.
    """

    def __init__(self, model: NativeModel, token_id: int, rise: float | None) -> None:
        self._model = model
        self._token_id = token_id
        self._rise = rise
        self.config: ModelConfig = model.config
        self.kv: KvStore = model.kv
        self.max_positions = model.max_positions
        self.weight_bytes = model.weight_bytes

    def forward(self, batch: Batch) -> Float32Array:
        return self.forward_layers(batch, None)

    def first_layers(self, num_layers: int) -> FirstLayers:
        return FirstLayers(self, num_layers)

    def forward_layers(self, batch: Batch, num_layers: int | None) -> Float32Array:
        logits = self._model.forward_layers(batch, num_layers)
        if len(logits) > 1:
            value = logits[1, self._token_id]
            logits[1, self._token_id] = np.nextafter(value, np.inf) if self._rise is None else value + self._rise
        return logits


def make_faulty(pair: LoadedPair, token_id: int, rise: float | None) -> LoadedPair:
    """Returns the pair with the fault in its target."""
    target = pair.target
    faulty = BatchDependentModel(target.model, token_id, rise)
    return replace(pair, target=LoadedModel(target.name, faulty, target.tokenizer))
