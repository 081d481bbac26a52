"""Accounting of KV memory in blocks: who holds which block, and which full blocks can be shared by prefix.

Knows nothing of models; the bytes live in a model's `KvStore`, whose block ids these are.
"""

from paceline.kvcache.block_manager import BlockManager, OutOfBlocksError
from paceline.kvcache.prefix_cache import NoPrefixCache, PrefixCache, PrefixMatch

__all__ = ["BlockManager", "NoPrefixCache", "OutOfBlocksError", "PrefixCache", "PrefixMatch"]
