"""The native core's suffix trees, which find what followed in earlier texts after the last tokens of a text.

They are in this package, not in `backends`, because they are not a model.
"""

from __future__ import annotations

from paceline import _native

SuffixTree = _native.SuffixTree
propose_from_suffixes = _native.propose_from_suffixes

__all__ = ["SuffixTree", "propose_from_suffixes"]
