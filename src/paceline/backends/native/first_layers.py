"""`FirstLayers`: the first layers of a loaded model as a model of their own, for self-speculation.

It has no weights and no KV memory: both are the whole model's. For one token at one position the first layers compute
the same K and V in either, bit for bit, so each may read what the other has written.
"""

from __future__ import annotations

from dataclasses import replace

from paceline.backends.native.model import NativeModel
from paceline.core import Batch, Float32Array, ModelConfig
from paceline.core.errors import ConfigError


class FirstLayers:
    """The first `num_layers` layers of `model`, then its output norm and output layer; a `Model`.

    A pass leaves K and V of the other layers as they are. The whole model's next pass begins behind the first layers
    for rows that it shares with passes of this one. Raises ConfigError unless some layers are left out.
    """

    def __init__(self, model: NativeModel, num_layers: int) -> None:
        whole = model.config
        check_num_first_layers(whole, num_layers)
        self.config = replace(whole, num_layers=num_layers, layers=whole.layers[:num_layers])
        self.kv = model.kv
        self._model = model

    def forward(self, batch: Batch) -> Float32Array:
        """Logits of `batch.logit_rows`, float32 [L, vocab_size]; valid until the next call of either model."""
        return self._model.forward(batch, num_layers=self.config.num_layers)


def check_num_first_layers(whole: ModelConfig, num_layers: int) -> None:
    """Raises ConfigError unless `num_layers` are some of the model's layers, but not all."""
    if 0 < num_layers < whole.num_layers:
        return
    layers = "1 layer" if whole.num_layers == 1 else f"{whole.num_layers} layers"
    advice = "leave it at 0" if whole.num_layers == 1 else f"choose 1 to {whole.num_layers - 1}"
    raise ConfigError(f"shared_layers is {num_layers}, but {whole.name} has {layers}; {advice}")
