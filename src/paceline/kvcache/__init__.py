"""Accounting of KV memory in blocks: which tables hold which blocks, and which full blocks sequences can share.

This package knows nothing about models. It hands out the block ids of a model's `KvStore`, which holds the bytes.
"""

from paceline.kvcache.block_manager import BlockManager, OutOfBlocksError
from paceline.kvcache.prefix_cache import NoPrefixCache, PrefixCache, PrefixMatch

__all__ = ["BlockManager", "NoPrefixCache", "OutOfBlocksError", "PrefixCache", "PrefixMatch"]
