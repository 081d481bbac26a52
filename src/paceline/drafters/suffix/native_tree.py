"""Suffix trees of the native core: what texts said after the contexts that another text ends with.

They are no model; they lie here because this package is the only one that uses the native core.
"""

from __future__ import annotations

from paceline import _native

SuffixTree = _native.SuffixTree
propose_from_suffixes = _native.propose_from_suffixes

__all__ = ["SuffixTree", "propose_from_suffixes"]
