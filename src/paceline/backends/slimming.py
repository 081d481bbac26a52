"""`Slimming`: which weights a model leaves out or rounds. It is for draft models, whose guesses need not be exact.

A slimmed draft model guesses other tokens. The target still decides on every token, so only acceptance can change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.checkpoint import GgufTensor
from paceline.checkpoint.ggml_type import GgmlType

_KEPT_NAMES = ("attn_k.weight", "attn_v.weight")


@dataclass(frozen=True, slots=True)
class Slimming:
    """`output_token_ids`, in rising order, are the tokens that always get logits (None: all).

    The native backend gives logits to up to 1,024 other tokens too. A token gets its place with the first batch that
    reads it, and loses it when newer tokens need the place. All other logits are minus infinity.

    With `has_four_bits`, matrices of more than 4.5 bits a weight are rounded to Q4_0, which has 4.5. The matrices of
    keys and values are not, because they are small and rounding them costs most.
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
        """Returns a slimming whose output layer keeps `kept_token_ids` and the lowest `num_kept` token ids (None: all).

        The lowest ids are the most frequent tokens of a vocabulary made by merging (BPE).
        """
        if num_kept is None or num_kept >= vocab_size:
            return cls(None, has_four_bits)
        return cls(tuple(sorted({*range(num_kept), *kept_token_ids})), has_four_bits)

    def packed_type(self, tensor: GgufTensor) -> GgmlType:
        """Returns the type in which the tensor's weights are stored after loading."""
        is_kept = tensor.name.endswith(_KEPT_NAMES) or tensor.shape[-1] % GgmlType.Q4_0.block_size != 0
        can_round = self.has_four_bits and not is_kept
        return GgmlType.Q4_0 if can_round and _is_larger(tensor.type, GgmlType.Q4_0) else tensor.type


WHOLE = Slimming()
"""The model as it is in the file."""


def _is_larger(one: GgmlType, other: GgmlType) -> bool:
    return one.type_size_bytes * other.block_size > other.type_size_bytes * one.block_size
