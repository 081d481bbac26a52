"""`ReferenceModel`: the decoder in plain numpy; tests compare the native core with it.

Weights are dequantized to float32, and every step is float32 but for the angles of the rotary embedding. K and V are
rounded as `KvCacheType` says when they are stored. The code is written to be read: it is slow and takes four bytes a
weight.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from paceline.architectures import read_model_config
from paceline.architectures.tensors import EMBEDDING_NAME, OUTPUT_NAME, OUTPUT_NORM_NAME, layer_prefix
from paceline.backends.first_layers import FirstLayers
from paceline.backends.protocol import BLOCK_SIZE, Model
from paceline.backends.slimming import WHOLE, Slimming
from paceline.checkpoint import GgmlType, GgufFile, dequantize
from paceline.core import (
    Activation,
    ActivationRounding,
    Batch,
    Float32Array,
    Int32Array,
    KvCacheType,
    LayerConfig,
    ModelConfig,
    RopeConfig,
    RopeStyle,
)

_FLOAT_TYPES = frozenset({GgmlType.F32, GgmlType.F16, GgmlType.BF16})
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
KEY_SCALE_ELEMENTS = 16
OUTLIER_RATIO = np.float32(32)
NORMED_OUTLIER_RATIO = np.float32(12)
_NOT_NORMED = ("attn_output.weight", "ffn_down.weight")


class ReferenceKvStore:
    """K and V [layers, slots, kv heads] of head vectors stored as `kv_cache_type` says; implements `KvStore`."""

    def __init__(self, config: ModelConfig, block_size: int, kv_cache_type: KvCacheType) -> None:
        self.block_size = block_size
        self._type = kv_cache_type
        self._shape = (config.num_layers, config.num_kv_heads)
        self._scale_elements = (KEY_SCALE_ELEMENTS, config.head_dim)  # of K and V
        self._head_dim = config.head_dim
        self.allocate(0)

    @property
    def num_blocks(self) -> int:
        """Blocks allocated."""
        return self._stored[0].shape[1] // self.block_size

    @property
    def block_size_bytes(self) -> int:
        """Memory of one block over all layers, K and V."""
        num_layers, num_kv_heads = self._shape
        return num_layers * self.block_size * num_kv_heads * sum(part.itemsize for part in self._stored)

    def allocate(self, num_blocks: int) -> None:
        """Replaces the store with `num_blocks` empty blocks."""
        num_layers, num_kv_heads = self._shape
        shape = (num_layers, num_blocks * self.block_size, num_kv_heads)
        self._stored = [
            np.zeros(shape, vector_dtype(self._head_dim, self._type, elements)) for elements in self._scale_elements
        ]

    def store(self, layer: int, slots: Int32Array, keys: Float32Array, values: Float32Array) -> None:
        """Writes `keys` and `values` [slots, kv heads, head_dim]."""
        for part, vectors, elements in zip(self._stored, (keys, values), self._scale_elements, strict=True):
            part[layer, slots] = store_vectors(vectors, self._type, elements)

    def load(self, layer: int, slots: Int32Array) -> tuple[Float32Array, Float32Array]:
        """Returns keys and values of `slots`, [slots, kv heads, head_dim] each."""
        keys, values = (load_vectors(part[layer, slots], self._type) for part in self._stored)
        return keys, values

    def move(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies slots (source, destination) in order."""
        for source, destination in pairs:
            for part in self._stored:
                part[:, destination] = part[:, source]

    def read_block(self, block_id: int) -> npt.NDArray[np.uint8]:
        """Returns the block's bytes: all of K, then all of V."""
        parts = [np.ascontiguousarray(part[:, self._slots(block_id)]) for part in self._stored]
        return np.concatenate([part.reshape(-1).view(np.uint8) for part in parts])

    def write_block(self, block_id: int, data: npt.NDArray[np.uint8]) -> None:
        """Restores what `read_block` returned."""
        begin = 0
        for part in self._stored:
            block = part[:, self._slots(block_id)]
            block[...] = data[begin : begin + block.nbytes].view(part.dtype).reshape(block.shape)
            begin += block.nbytes

    def _slots(self, block_id: int) -> slice:
        return slice(block_id * self.block_size, (block_id + 1) * self.block_size)


def vector_dtype(head_dim: int, kv_cache_type: KvCacheType, scale_elements: int) -> np.dtype[np.void]:
    """Returns the type of a stored head vector: float16, or int8 with a scale for each `scale_elements` elements."""
    if kv_cache_type is KvCacheType.F16:
        return np.dtype([("halves", np.float16, (head_dim,))])
    num_scales = head_dim // scale_elements
    return np.dtype([("scales", np.float32, (num_scales, 1)), ("integers", np.int8, (num_scales, scale_elements))])


def store_vectors(vectors: Float32Array, kv_cache_type: KvCacheType, scale_elements: int) -> npt.NDArray[np.void]:
    """Rounds vectors [..., head_dim] to float16, or to int8 with scales of largest magnitude / 127 (ties to even)."""
    dtype = vector_dtype(vectors.shape[-1], kv_cache_type, scale_elements)
    stored = np.zeros(vectors.shape[:-1], dtype)
    if kv_cache_type is KvCacheType.F16:
        stored["halves"] = vectors
        return stored
    runs = vectors.reshape(stored["integers"].shape)
    largest = np.abs(runs).max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(127) / largest
    is_usable = np.isfinite(inverse)
    stored["scales"] = np.where(is_usable, largest / np.float32(127), 0)
    stored["integers"] = np.rint(runs * np.where(is_usable, inverse, np.float32(0)))
    return stored


def load_vectors(stored: npt.NDArray[np.void], kv_cache_type: KvCacheType) -> Float32Array:
    """Returns float32 [..., head_dim] from what `store_vectors` returned."""
    if kv_cache_type is KvCacheType.F16:
        halves: Float32Array = stored["halves"].astype(np.float32)
        return halves
    scaled: Float32Array = stored["integers"].astype(np.float32) * stored["scales"]
    return scaled.reshape(*stored.shape, -1)


Multiply = Callable[[Float32Array, Float32Array], Float32Array]


def multiply_each_row(rows: Float32Array, matrix: Float32Array) -> Float32Array:
    """Returns the rows [R, inputs] times a matrix [outputs, inputs]. The rows are multiplied one by one, because a BLAS
    adds in another order when it multiplies several at once."""
    return np.stack([matrix @ row for row in rows]) if len(rows) else np.zeros((0, len(matrix)), np.float32)


class ReferenceModel:
    """A llama-family decoder in numpy; implements `Model`. Raises what `read_model_config` raises.

    `config` None is read from the file. `activation_rounding` None keeps activations as they are; for float weights
    they are never rounded. `multiply` returns the product of rows and a matrix.
    """

    def __init__(
        self,
        gguf: GgufFile,
        config: ModelConfig | None = None,
        *,
        max_positions: int | None = None,
        activation_rounding: ActivationRounding | None = None,
        kv_cache_type: KvCacheType = KvCacheType.F16,
        slimming: Slimming = WHOLE,
        multiply: Multiply = multiply_each_row,
    ) -> None:
        self.config = config or read_model_config(gguf)
        self.max_positions = max_positions or self.config.max_context
        self.kv = ReferenceKvStore(self.config, BLOCK_SIZE, kv_cache_type)
        self._rounding = activation_rounding
        self._multiply_rows = multiply
        self._kept_token_ids = slimming.output_token_ids
        self._weights = {name: dequantize(tensor) for name, tensor in gguf.tensors.items()}
        self._types = {name: tensor.type for name, tensor in gguf.tensors.items()}

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights as float32."""
        return sum(weights.nbytes for weights in self._weights.values())

    def forward(self, batch: Batch) -> Float32Array:
        """Returns the logits of `batch.logit_rows`, float32 [L, vocab_size], and writes K and V of every row."""
        return self.forward_layers(batch, self.config.num_layers)

    def first_layers(self, num_layers: int) -> Model:
        """Returns the first layers as a model; raises ConfigError unless some layers are left out."""
        return FirstLayers(self, num_layers)

    def forward_layers(self, batch: Batch, num_layers: int) -> Float32Array:
        """Returns the logits after the first layers, the output norm and the output layer."""
        config = self.config
        hidden = self._weights[EMBEDDING_NAME][batch.token_ids] * np.float32(config.embedding_scale)
        slots = list(slots_of_rows(batch, self.kv.block_size))
        for index, layer in enumerate(config.layers[:num_layers]):
            hidden = self._layer(index, layer, hidden, batch, slots)
        normed = self._norm(OUTPUT_NORM_NAME, hidden[batch.logit_rows])
        logits = self._multiply(EMBEDDING_NAME if config.has_tied_output else OUTPUT_NAME, normed)
        return logits if self._kept_token_ids is None else _only(logits, self._kept_token_ids)

    def _layer(
        self, index: int, layer: LayerConfig, hidden: Float32Array, batch: Batch, slots: list[Int32Array]
    ) -> Float32Array:
        prefix = layer_prefix(index)
        attention = self._attention(index, layer, self._norm(f"{prefix}attn_norm.weight", hidden), batch, slots)
        if self.config.has_post_norms:
            attention = self._norm(f"{prefix}post_attention_norm.weight", attention)
        hidden = hidden + attention
        feed_forward = self._feed_forward(prefix, self._norm(f"{prefix}ffn_norm.weight", hidden))
        if self.config.has_post_norms:
            feed_forward = self._norm(f"{prefix}post_ffw_norm.weight", feed_forward)
        return hidden + feed_forward

    def _attention(
        self, index: int, layer: LayerConfig, hidden: Float32Array, batch: Batch, slots: list[Int32Array]
    ) -> Float32Array:
        prefix = layer_prefix(index)
        queries, keys = self._project_heads(prefix, "attn_q", hidden), self._project_heads(prefix, "attn_k", hidden)
        if self.config.has_query_key_norm:
            queries = self._norm(f"{prefix}attn_q_norm.weight", queries)
            keys = self._norm(f"{prefix}attn_k_norm.weight", keys)
        values = self._project_heads(prefix, "attn_v", hidden)
        self.kv.store(index, batch.slots, rotate(keys, batch.positions, layer.rope), values)
        queries = rotate(queries, batch.positions, layer.rope) * np.float32(self.config.attention_scale)
        result = np.empty_like(queries)
        for row, own_slots in enumerate(slots):
            visible = own_slots if layer.sliding_window is None else own_slots[-layer.sliding_window :]
            result[row] = attend(queries[row], *self.kv.load(index, visible))
        return self._multiply(f"{prefix}attn_output.weight", result.reshape(batch.num_rows, -1))

    def _project_heads(self, prefix: str, name: str, hidden: Float32Array) -> Float32Array:
        projected = self._multiply(f"{prefix}{name}.weight", hidden)
        bias = self._weights.get(f"{prefix}{name}.bias")
        if bias is not None:
            projected = projected + bias
        return projected.reshape(len(hidden), -1, self.config.head_dim)

    def _feed_forward(self, prefix: str, hidden: Float32Array) -> Float32Array:
        gate = self._multiply(f"{prefix}ffn_gate.weight", hidden)
        activated = silu(gate) if self.config.activation is Activation.SILU else gelu(gate)
        return self._multiply(f"{prefix}ffn_down.weight", activated * self._multiply(f"{prefix}ffn_up.weight", hidden))

    def _norm(self, name: str, values: Float32Array) -> Float32Array:
        mean_square = np.mean(np.square(values), axis=-1, keepdims=True)
        normed: Float32Array = values / np.sqrt(mean_square + self.config.norm_epsilon) * self._weights[name]
        return normed

    def _multiply(self, name: str, rows: Float32Array) -> Float32Array:
        if self._rounding is not None and self._types[name] not in _FLOAT_TYPES:
            rows = round_activations(rows, self._rounding, is_normed=not name.endswith(_NOT_NORMED))
        return self._multiply_rows(rows, self._weights[name])


def _only(logits: Float32Array, token_ids: tuple[int, ...]) -> Float32Array:
    """Returns the logits of these tokens, with minus infinity for all others."""
    kept = np.full_like(logits, -np.inf)
    kept[:, token_ids] = logits[:, token_ids]
    return kept


def slots_of_rows(batch: Batch, block_size: int) -> Iterator[Int32Array]:
    """Yields for each row the slots of the positions from 0 to its own."""
    for row, (sequence, position) in enumerate(zip(batch.sequence_indices, batch.positions, strict=True)):
        path = batch.path_slots[batch.path_offsets[row] : batch.path_offsets[row + 1]]
        block_table = batch.block_tables[sequence]
        slots = (block_table[:, None] * block_size + np.arange(block_size, dtype=np.int32)).reshape(-1)
        yield np.concatenate([slots[: position + 1 - len(path)], path])


def attend(query: Float32Array, keys: Float32Array, values: Float32Array) -> Float32Array:
    """Returns the attention of one row to T positions, [heads, head_dim].

    `query` [heads, head_dim] is scaled already; `keys` and `values` are [T, kv heads, head_dim]. Consecutive heads
    share a key-value head.
    """
    num_heads, head_dim = query.shape
    grouped = query.reshape(keys.shape[1], -1, head_dim)
    scores = np.matmul(grouped, keys.transpose(1, 2, 0))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    result: Float32Array = np.matmul(weights, values.transpose(1, 0, 2))
    return result.reshape(num_heads, head_dim)


def rotate(vectors: Float32Array, positions: Int32Array, rope: RopeConfig) -> Float32Array:
    """Returns `vectors` [rows, heads, head_dim] rotated for `positions` [rows]; angles are computed in float64."""
    angles = positions[:, None, None].astype(np.float64) * np.asarray(rope.inverse_frequencies)
    cosine = (np.cos(angles) * rope.magnitude).astype(np.float32)
    sine = (np.sin(angles) * rope.magnitude).astype(np.float32)
    half = vectors.shape[-1] // 2
    is_interleaved = rope.style is RopeStyle.NORMAL
    first, second = (slice(0, None, 2), slice(1, None, 2)) if is_interleaved else (slice(0, half), slice(half, None))
    result = np.empty_like(vectors)
    result[..., first] = vectors[..., first] * cosine - vectors[..., second] * sine
    result[..., second] = vectors[..., first] * sine + vectors[..., second] * cosine
    return result


def silu(values: Float32Array) -> Float32Array:
    """Returns x times the logistic function of x."""
    result: Float32Array = values / (1 + np.exp(-np.maximum(values, -80)))
    return result


def gelu(values: Float32Array) -> Float32Array:
    """Returns the tanh approximation of the Gaussian error linear unit."""
    inner = _SQRT_2_OVER_PI * (values + 0.044715 * values * values * values)
    result: Float32Array = 0.5 * values * (1 + np.tanh(inner))
    return result


def round_activations(rows: Float32Array, rounding: ActivationRounding, *, is_normed: bool) -> Float32Array:
    """Returns the rows with each block of 256 elements rounded to multiples of a scale, ties to even.

    For 15 bits, the scale is the block's largest magnitude / 16256. For 8 bits, it is that magnitude / 127, but at most
    32 mean magnitudes / 127 (12 if the rows come from a norm), so that outliers do not coarsen the rest.
    """
    ratio = NORMED_OUTLIER_RATIO if is_normed else OUTLIER_RATIO
    rounded = np.empty_like(rows)
    for start in range(0, rows.shape[-1], 256):
        block = rows[..., start : start + 256]
        magnitudes = np.abs(block)
        usual = magnitudes.max(axis=-1, keepdims=True)
        if rounding is ActivationRounding.EIGHT_BITS:
            usual = np.minimum(usual, ratio * magnitudes.mean(axis=-1, keepdims=True))
        scale = usual / np.float32(127 if rounding is ActivationRounding.EIGHT_BITS else 16256)
        inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
        rounded[..., start : start + 256] = np.rint(block * inverse) * scale
    return rounded
