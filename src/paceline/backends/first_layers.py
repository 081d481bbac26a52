"""`FirstLayers`: the first layers of a loaded model as a model of their own, for self-speculation.

It uses the weights and the KV memory of the whole model. For one token at one position, the first layers compute the
same K and V in either model, bit for bit, so each may read what the other has written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from paceline.backends.protocol import KvStore, Model
from paceline.core import Batch, ModelConfig
from paceline.core.errors import ConfigError
from paceline.sampling.sampler import Logits


class LayeredModel(Model, Protocol):
    """A model whose pass can end after some of its layers."""

    def forward_layers(self, batch: Batch, num_layers: int) -> Logits:
        """Returns the logits after the first `num_layers` layers, the output norm and the output layer."""
        ...


class FirstLayers:
    """The first `num_layers` layers of `model`, then its output norm and output layer; implements `Model`.

    A pass leaves K and V of the other layers as they are. The whole model's next pass may skip the first layers for
    rows that passes of this model have computed. Raises ConfigError unless some layers are left out.
    """

    def __init__(self, model: LayeredModel, num_layers: int) -> None:
        check_num_first_layers(model.config, num_layers)
        self.config: ModelConfig = replace(model.config, num_layers=num_layers, layers=model.config.layers[:num_layers])
        self._model = model

    @property
    def kv(self) -> KvStore:
        """The whole model's KV memory."""
        return self._model.kv

    @property
    def max_positions(self) -> int:
        """The limit of the whole model."""
        return self._model.max_positions

    @property
    def weight_bytes(self) -> int:
        """Zero, because the weights belong to the whole model."""
        return 0

    def forward(self, batch: Batch) -> Logits:
        """Returns logits of `batch.logit_rows` [L, vocab_size]; valid until the next call of either model."""
        return self._model.forward_layers(batch, self.config.num_layers)

    def first_layers(self, num_layers: int) -> Model:
        """Returns the first of these layers as a model of their own."""
        check_num_first_layers(self.config, num_layers)
        return FirstLayers(self._model, num_layers)


def check_num_first_layers(whole: ModelConfig, num_layers: int) -> None:
    """Raises ConfigError unless `num_layers` is at least 1 and less than the model's number of layers."""
    if 0 < num_layers < whole.num_layers:
        return
    layers = "1 layer" if whole.num_layers == 1 else f"{whole.num_layers} layers"
    advice = "leave it at 0" if whole.num_layers == 1 else f"choose 1 to {whole.num_layers - 1}"
    raise ConfigError(f"shared_layers is {num_layers}, but {whole.name} has {layers}; {advice}")
