"""Types of the extension module; native/bindings/ says what each function does."""

import enum
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paceline.core import Float32Array, Int32Array
from paceline.sampling.sampler import SampleQuery

def instruction_sets() -> list[str]: ...
def default_instruction_set() -> str: ...

class MachineProbe:
    def __init__(self, num_threads: int, instruction_set: str, buffer_bytes: int) -> None: ...
    def read_bytes_per_s(self) -> float: ...
    def multiply_adds_per_s(self, duration_s: float) -> float: ...

class SuffixTree:
    def __init__(self, max_depth: int) -> None: ...
    def begin_text(self, context: Sequence[int]) -> None: ...
    def append(self, token_ids: Sequence[int]) -> None: ...
    def evict_text(self) -> None: ...
    def find_contexts(self, text: Sequence[int]) -> list[tuple[int, int, list[int]]]: ...
    @property
    def num_texts(self) -> int: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...

def propose_from_suffixes(
    own: SuffixTree,
    store: SuffixTree | None,
    *,
    window: int,
    stop_below: float,
    has_branches: bool,
    ahead: Sequence[int] = (),
) -> tuple[list[int], list[int | None], list[float]]: ...
def suffix_confidence(length: int, num_agreeing: int, num_followers: int) -> float: ...

class RowSampler:
    def __init__(
        self,
        prompt_token_ids: Sequence[int],
        *,
        seed: int,
        choice_index: int,
        temperature: float,
        top_k: int | None,
        top_p: float,
        min_p: float,
        presence_penalty: float,
        frequency_penalty: float,
        repetition_penalty: float,
        logit_bias: Sequence[tuple[int, float]],
        min_tokens: int,
        banned_token_ids: Sequence[int],
    ) -> None: ...
    def append(self, token_ids: Sequence[int]) -> None: ...

def sample_rows(
    logits: Float32Array,
    queries: Sequence[SampleQuery],
    masks: npt.NDArray[np.uint32] | None,
    threads: ThreadPool | None,
    instruction_set: str | None,
) -> list[tuple[int | None, tuple[float, list[tuple[int, float]]] | None, str | None]]: ...
def hash_rows(logits: Float32Array, rows: Sequence[int]) -> list[int]: ...
def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]: ...
def exponential_noise(bits: int) -> float: ...

class Activation(enum.Enum):
    SILU = 0
    GELU = 1

class RopeStyle(enum.Enum):
    NORMAL = 0
    NEOX = 1

class Matrix(enum.Enum):
    QUERY = 0
    KEY = 1
    VALUE = 2
    ATTENTION_OUTPUT = 3
    GATE = 4
    UP = 5
    DOWN = 6

class Vector(enum.Enum):
    ATTENTION_NORM = 0
    QUERY_BIAS = 1
    KEY_BIAS = 2
    VALUE_BIAS = 3
    QUERY_NORM = 4
    KEY_NORM = 5
    POST_ATTENTION_NORM = 6
    FFN_NORM = 7
    POST_FFN_NORM = 8

class KvCacheType(enum.Enum):
    F16 = 0
    Q8 = 1

class ActivationRounding(enum.Enum):
    EIGHT_BITS = 0
    EIGHT_BITS_OF_NORMED = 1
    FIFTEEN_BITS = 2

class DecoderConfig:
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int
    max_positions: int
    norm_epsilon: float
    attention_scale: float
    embedding_scale: float
    activation: Activation
    kv_cache_type: KvCacheType
    activation_rounding: ActivationRounding
    def __init__(self) -> None: ...
    def add_rope(self, style: RopeStyle, inverse_frequencies: Sequence[float], magnitude: float) -> None: ...
    def add_layer(self, rope_table: int, sliding_window: int) -> None: ...

class ThreadPool:
    num_threads: int
    def __init__(self, num_threads: int) -> None: ...

class Decoder:
    instruction_set: str
    weight_bytes: int
    num_resumed_rows: int
    num_blocks: int
    block_size_bytes: int
    def __init__(self, config: DecoderConfig, threads: ThreadPool, instruction_set: str | None = None) -> None: ...
    def set_matrix(
        self,
        layer: int,
        role: Matrix,
        type_id: int,
        data: npt.NDArray[np.uint8],
        outputs: int,
        inputs: int,
        packed_type_id: int,
    ) -> None: ...
    def set_vector(self, layer: int, role: Vector, data: Float32Array) -> None: ...
    def set_output(
        self,
        type_id: int,
        data: npt.NDArray[np.uint8],
        inputs: int,
        packed_type_id: int,
        token_ids: Sequence[int] | None,
    ) -> None: ...
    def set_output_norm(self, data: Float32Array) -> None: ...
    def set_embedding(self, type_id: int, data: npt.NDArray[np.uint8]) -> None: ...
    def forward(
        self,
        token_ids: Int32Array,
        positions: Int32Array,
        slots: Int32Array,
        sequence_indices: Int32Array,
        block_tables: Int32Array,
        path_slots: Int32Array,
        path_offsets: Int32Array,
        logit_rows: Int32Array,
        num_layers: int | None = None,
    ) -> Float32Array: ...
    def allocate_kv(self, num_blocks: int) -> None: ...
    def move_slot(self, source: int, destination: int) -> None: ...
    def read_block(self, block: int) -> bytes: ...
    def write_block(self, block: int, data: npt.NDArray[np.uint8]) -> None: ...
