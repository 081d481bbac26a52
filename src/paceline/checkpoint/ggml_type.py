"""`GgmlType`: the storage types a GGUF tensor can have, with the sizes of their blocks."""

from __future__ import annotations

import enum
from types import MappingProxyType


class GgmlType(enum.IntEnum):
    """A tensor's storage type, numbered as in the GGUF specification.

    A row is a sequence of blocks of `block_size` weights, each `type_size_bytes` long. `dequantize` reads some of these
    types; the others are listed so that the layout of any file can be checked and errors can name its types.
    """

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39

    @property
    def block_size(self) -> int:
        """Weights in a block."""
        return _BLOCKS[self][0]

    @property
    def type_size_bytes(self) -> int:
        """Bytes of a block."""
        return _BLOCKS[self][1]


_BLOCKS = MappingProxyType(
    {
        GgmlType.F32: (1, 4),
        GgmlType.F16: (1, 2),
        GgmlType.Q4_0: (32, 18),
        GgmlType.Q4_1: (32, 20),
        GgmlType.Q5_0: (32, 22),
        GgmlType.Q5_1: (32, 24),
        GgmlType.Q8_0: (32, 34),
        GgmlType.Q8_1: (32, 40),
        GgmlType.Q2_K: (256, 84),
        GgmlType.Q3_K: (256, 110),
        GgmlType.Q4_K: (256, 144),
        GgmlType.Q5_K: (256, 176),
        GgmlType.Q6_K: (256, 210),
        GgmlType.Q8_K: (256, 292),
        GgmlType.IQ2_XXS: (256, 66),
        GgmlType.IQ2_XS: (256, 74),
        GgmlType.IQ3_XXS: (256, 98),
        GgmlType.IQ1_S: (256, 50),
        GgmlType.IQ4_NL: (32, 18),
        GgmlType.IQ3_S: (256, 110),
        GgmlType.IQ2_S: (256, 82),
        GgmlType.IQ4_XS: (256, 136),
        GgmlType.I8: (1, 1),
        GgmlType.I16: (1, 2),
        GgmlType.I32: (1, 4),
        GgmlType.I64: (1, 8),
        GgmlType.F64: (1, 8),
        GgmlType.IQ1_M: (256, 56),
        GgmlType.BF16: (1, 2),
        GgmlType.TQ1_0: (256, 54),
        GgmlType.TQ2_0: (256, 66),
        GgmlType.MXFP4: (32, 17),
    }
)
