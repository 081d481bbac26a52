"""`Slimming`: how much of its file's weights a model leaves out, for draft models, whose guesses need not be exact.

A slimmed model says something else than the file; the target decides all the same, so only acceptance can change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.checkpoint import GgufTensor
from paceline.checkpoint.ggml_type import GgmlType

_KEPT_NAMES = ("attn_k.weight", "attn_v.weight")


@dataclass(frozen=True, slots=True)
class Slimming:
    """`output_token_ids`, in rising order, are the tokens that get logits (None: all).

    Up to 1,024 others get one too, from the batch on that first has them in its text, until newer ones need their room.
    All other logits are minus infinity.

    With `has_four_bits`, matrices of more than 4.5 bits a weight are rounded to Q4_0, which has 4.5, but for those of
    keys and values, which are small and where rounding costs most.
    """

    output_token_ids: tuple[int, ...] | None = None
    has_four_bits: bool = False

    @classmethod
    def of_vocabulary(
        cls,
        num_kept: int | None,
        vocab_size: int,
        kept_token_ids: Iterable[int],
        *,
        has_four_bits: bool,
    ) -> Slimming:
        """Keeps the lowest `num_kept` token ids (None: all), which are the most frequent ones of a vocabulary made by
        merging (BPE), and `kept_token_ids`."""
        if num_kept is None or num_kept >= vocab_size:
            return cls(None, has_four_bits)
        return cls(tuple(sorted({*range(num_kept), *kept_token_ids})), has_four_bits)

    def packed_type(self, tensor: GgufTensor) -> GgmlType:
        """What the tensor's weights become."""
        is_kept = tensor.name.endswith(_KEPT_NAMES) or tensor.shape[-1] % GgmlType.Q4_0.block_size != 0
        can_round = self.has_four_bits and not is_kept
        return GgmlType.Q4_0 if can_round and _is_larger(tensor.type, GgmlType.Q4_0) else tensor.type


WHOLE = Slimming()
"""The model as it is in the file."""


def _is_larger(one: GgmlType, other: GgmlType) -> bool:
    return one.type_size_bytes * other.block_size > other.type_size_bytes * one.block_size
