"""Computes how many KV blocks an engine gets, from its settings, the sizes of its models and the free memory."""

from __future__ import annotations

from paceline.backends.protocol import BLOCK_SIZE
from paceline.config import EngineConfig
from paceline.config.schema import DEFAULT_CONTEXT_WINDOW_SIZE
from paceline.core import ModelConfig
from paceline.core.errors import ConfigError, InsufficientMemoryError

_MIB = 1 << 20
_USABLE_SHARE = 0.9


def context_window_size(config: EngineConfig, model: ModelConfig) -> int:
    """Returns how many tokens a sequence may have; raises ConfigError if the settings ask for more than the model was
    made for."""
    if config.context_window_size is None:
        return min(DEFAULT_CONTEXT_WINDOW_SIZE, model.max_context)
    if config.context_window_size > model.max_context:
        raise ConfigError(
            f"context_window_size is {config.context_window_size}, but {model.name} was made for at most "
            f"{model.max_context} tokens; choose a smaller one"
        )
    return config.context_window_size


def check_weights_fit(name: str, size_bytes: int, available_bytes: int) -> None:
    """Raises InsufficientMemoryError if weights of `size_bytes` do not fit in the available memory."""
    if size_bytes > available_bytes:
        raise InsufficientMemoryError(
            f"the weights of {name} need {size_bytes / _MIB:.0f} MiB, but only {available_bytes / _MIB:.0f} MiB are "
            "free; choose a smaller model"
        )


def num_blocks_for(num_tokens: int) -> int:
    """Returns the number of KV blocks that `num_tokens` tokens need."""
    return -(-num_tokens // BLOCK_SIZE)


def num_kv_blocks(config: EngineConfig, context_size: int, block_size_bytes: int, available_bytes: int) -> int:
    """Returns the number of blocks for a full batch of sequences of full length, or for less if memory is short.

    `block_size_bytes` is the size of one block in all models together. Raises InsufficientMemoryError if not even one
    sequence of `context_size` tokens fits.
    """
    blocks_per_sequence = num_blocks_for(context_size)
    limit_bytes = config.kv_cache_size_bytes or int(available_bytes * _USABLE_SHARE)
    num_blocks = min(blocks_per_sequence * config.max_batch_size, limit_bytes // block_size_bytes)
    if num_blocks < blocks_per_sequence:
        needed = blocks_per_sequence * block_size_bytes
        source = "kv_cache_size_bytes allows" if config.kv_cache_size_bytes else "free memory allows"
        raise InsufficientMemoryError(
            f"the KV cache of one sequence of {context_size} tokens needs {_mib(needed)}, but {source} "
            f"{_mib(limit_bytes)}; choose a smaller --context-window-size"
        )
    return num_blocks


def _mib(num_bytes: int) -> str:
    size = num_bytes / _MIB
    return f"{size:.0f} MiB" if size >= 1 else f"{size:.2g} MiB"
