"""`multiply_together`: makes a reference model fast, for tests in which its last bits may depend on the batch."""

from __future__ import annotations

from paceline.core import Float32Array


def multiply_together(rows: Float32Array, matrix: Float32Array) -> Float32Array:
    """Returns rows [R, inputs] multiplied with a matrix [outputs, inputs], in one call of the BLAS."""
    product: Float32Array = rows @ matrix.T
    return product
