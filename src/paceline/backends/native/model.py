"""`NativeModel`: runs a GGUF file in the C++ core; implements the `Model` protocol.

Loading repacks every weight matrix once. Afterwards only the embedding is read from the file's mapping, and rows of the
output layer if slimming left some out. `architectures` defines the architectures; this module passes their options on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paceline import _native
from paceline.architectures import check_tensors
from paceline.architectures.tensors import EMBEDDING_NAME, OUTPUT_NAME, OUTPUT_NORM_NAME, layer_prefix
from paceline.backends.first_layers import FirstLayers
from paceline.backends.protocol import BLOCK_SIZE, Model
from paceline.backends.slimming import WHOLE, Slimming
from paceline.checkpoint import GgufFile, GgufTensor, dequantize
from paceline.core import (
    Activation,
    ActivationRounding,
    Batch,
    Float32Array,
    KvCacheType,
    ModelConfig,
    RopeConfig,
    RopeStyle,
)
from paceline.core.errors import ConfigError, InsufficientMemoryError, UnsupportedModelError

# Narrower models than this sometimes give other tokens if activations have 8 bits (decision 009).
MIN_EIGHT_BITS_WIDTH = 1024

ThreadPool = _native.ThreadPool

_MATRICES = (
    ("attn_q", _native.Matrix.QUERY),
    ("attn_k", _native.Matrix.KEY),
    ("attn_v", _native.Matrix.VALUE),
    ("attn_output", _native.Matrix.ATTENTION_OUTPUT),
    ("ffn_gate", _native.Matrix.GATE),
    ("ffn_up", _native.Matrix.UP),
    ("ffn_down", _native.Matrix.DOWN),
)
_VECTORS = (
    ("attn_norm.weight", _native.Vector.ATTENTION_NORM),
    ("attn_q.bias", _native.Vector.QUERY_BIAS),
    ("attn_k.bias", _native.Vector.KEY_BIAS),
    ("attn_v.bias", _native.Vector.VALUE_BIAS),
    ("attn_q_norm.weight", _native.Vector.QUERY_NORM),
    ("attn_k_norm.weight", _native.Vector.KEY_NORM),
    ("post_attention_norm.weight", _native.Vector.POST_ATTENTION_NORM),
    ("ffn_norm.weight", _native.Vector.FFN_NORM),
    ("post_ffw_norm.weight", _native.Vector.POST_FFN_NORM),
)


class NativeKvStore:
    """The decoder's KV memory: blocks of 16 slots over all layers."""

    block_size = BLOCK_SIZE

    def __init__(self, decoder: _native.Decoder) -> None:
        self._decoder = decoder

    @property
    def num_blocks(self) -> int:
        """Blocks allocated."""
        return self._decoder.num_blocks

    @property
    def block_size_bytes(self) -> int:
        """Memory of one block over all layers, K and V."""
        return self._decoder.block_size_bytes

    def allocate(self, num_blocks: int) -> None:
        """Replaces the store with `num_blocks` empty blocks; raises InsufficientMemoryError."""
        try:
            self._decoder.allocate_kv(num_blocks)
        except MemoryError as error:
            size = num_blocks * self.block_size_bytes / 2**20
            message = f"no memory for a KV cache of {size:.0f} MiB; lower --context-window-size or --max-batch-size"
            raise InsufficientMemoryError(message) from error

    def move(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies K and V of slot `source` to slot `destination` for each (source, destination), in order."""
        for source, destination in pairs:
            self._decoder.move_slot(source, destination)

    def read_block(self, block_id: int) -> npt.NDArray[np.uint8]:
        """Returns the block's bytes, [block_size_bytes]."""
        return np.frombuffer(self._decoder.read_block(block_id), dtype=np.uint8)

    def write_block(self, block_id: int, data: npt.NDArray[np.uint8]) -> None:
        """Restores what `read_block` returned."""
        self._decoder.write_block(block_id, np.ascontiguousarray(data))


class NativeModel:
    """A decoder in the C++ core.

    `threads` run the forward pass and may serve other models too, one call at a time. `max_positions` is how many
    positions there are (None: as many as the model's context). `instruction_set` None takes the one that PACELINE_ISA
    names, or else the machine's best. `activation_rounding` None chooses by the model's width. `slimming` leaves out
    some of the weights. Raises UnsupportedModelError, CheckpointError, ConfigError.
    """

    def __init__(
        self,
        gguf: GgufFile,
        config: ModelConfig,
        *,
        threads: ThreadPool,
        max_positions: int | None = None,
        instruction_set: str | None = None,
        kv_cache_type: KvCacheType = KvCacheType.F16,
        activation_rounding: ActivationRounding | None = None,
        slimming: Slimming = WHOLE,
    ) -> None:
        check_native(gguf, config)
        self.config = config
        self.threads = threads
        self.max_positions = max_positions or config.max_context
        native_config = _native_config(config, self.max_positions)
        native_config.kv_cache_type = _native.KvCacheType[kv_cache_type.name]
        self.activation_rounding = activation_rounding or default_activation_rounding(config)
        native_config.activation_rounding = _native.ActivationRounding[self.activation_rounding.name]
        try:
            self._decoder = _native.Decoder(native_config, threads, instruction_set)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        _load_weights(self._decoder, gguf, config, slimming)
        self.kv = NativeKvStore(self._decoder)

    @property
    def instruction_set(self) -> str:
        """Which kernels run: scalar, avx2, avx512 or amx."""
        return self._decoder.instruction_set

    @property
    def weight_bytes(self) -> int:
        """Memory of the repacked weights."""
        return self._decoder.weight_bytes

    @property
    def num_resumed_rows(self) -> int:
        """Rows of whole passes that skipped the first layers, because `FirstLayers` had computed them already."""
        return self._decoder.num_resumed_rows

    def forward(self, batch: Batch) -> Float32Array:
        """Returns the logits of `batch.logit_rows`, float32 [L, vocab_size]; valid until the next call."""
        return self.forward_layers(batch, None)

    def first_layers(self, num_layers: int) -> Model:
        """Returns the first layers as a model; raises ConfigError unless some layers are left out."""
        return FirstLayers(self, num_layers)

    def forward_layers(self, batch: Batch, num_layers: int | None) -> Float32Array:
        """Returns the logits after the first layers (None: all), the output norm and the output layer."""
        return self._decoder.forward(
            batch.token_ids,
            batch.positions,
            batch.slots,
            batch.sequence_indices,
            batch.block_tables,
            batch.path_slots,
            batch.path_offsets,
            batch.logit_rows,
            num_layers,
        )


def default_activation_rounding(config: ModelConfig) -> ActivationRounding:
    """Returns 8 bits for a hidden size of at least `MIN_EIGHT_BITS_WIDTH`, otherwise 15 bits."""
    is_wide = config.hidden_size >= MIN_EIGHT_BITS_WIDTH
    return ActivationRounding.EIGHT_BITS if is_wide else ActivationRounding.FIFTEEN_BITS


def check_native(gguf: GgufFile, config: ModelConfig) -> None:
    """Raises UnsupportedModelError or CheckpointError, before weights are read, for a file that cannot be loaded."""
    if config.head_dim % 16 != 0:
        raise UnsupportedModelError(f"{config.name} has heads of {config.head_dim}, not a multiple of 16")
    check_tensors(gguf, config)


def instruction_sets() -> tuple[str, ...]:
    """Returns the instruction sets that this machine can run, slowest first: scalar, then avx2, avx512 and amx."""
    return tuple(_native.instruction_sets())


def _native_config(config: ModelConfig, max_positions: int) -> _native.DecoderConfig:
    native = _native.DecoderConfig()
    for name in ("hidden_size", "num_heads", "num_kv_heads", "head_dim", "ffn_size", "vocab_size", "norm_epsilon"):
        setattr(native, name, getattr(config, name))
    native.max_positions = max_positions
    native.attention_scale = config.attention_scale
    native.embedding_scale = config.embedding_scale
    native.activation = _native.Activation.GELU if config.activation is Activation.GELU else _native.Activation.SILU
    ropes: list[RopeConfig] = []
    for layer in config.layers:
        if layer.rope not in ropes:
            ropes.append(layer.rope)
            is_neox = layer.rope.style is RopeStyle.NEOX
            style = _native.RopeStyle.NEOX if is_neox else _native.RopeStyle.NORMAL
            native.add_rope(style, list(layer.rope.inverse_frequencies), layer.rope.magnitude)
        native.add_layer(ropes.index(layer.rope), layer.sliding_window or 0)
    return native


def _load_weights(decoder: _native.Decoder, gguf: GgufFile, config: ModelConfig, slimming: Slimming) -> None:
    embedding = gguf.tensors[EMBEDDING_NAME]
    decoder.set_embedding(int(embedding.type), embedding.data)
    output = gguf.tensors.get(OUTPUT_NAME, embedding)
    packed_type = slimming.packed_type(output)
    token_ids = slimming.output_token_ids
    decoder.set_output(int(output.type), output.data, output.shape[1], int(packed_type), token_ids)
    gguf.release_pages(output)
    decoder.set_output_norm(_float_values(gguf.tensors[OUTPUT_NORM_NAME]))
    for layer in range(config.num_layers):
        _load_layer(decoder, gguf, layer, slimming)


def _load_layer(decoder: _native.Decoder, gguf: GgufFile, layer: int, slimming: Slimming) -> None:
    prefix = layer_prefix(layer)
    for name, matrix in _MATRICES:
        tensor = gguf.tensors[f"{prefix}{name}.weight"]
        outputs, inputs = tensor.shape
        packed_type = slimming.packed_type(tensor)
        decoder.set_matrix(layer, matrix, int(tensor.type), tensor.data, outputs, inputs, int(packed_type))
        gguf.release_pages(tensor)
    for name, vector in _VECTORS:
        optional = gguf.tensors.get(f"{prefix}{name}")
        if optional is not None:
            decoder.set_vector(layer, vector, _float_values(optional))


def _float_values(tensor: GgufTensor) -> Float32Array:
    return dequantize(tensor).ravel()
