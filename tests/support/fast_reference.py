"""`multiply_together`: makes a reference model fast where its last bits need not be independent of the batch."""

from __future__ import annotations

from paceline.core import Float32Array


def multiply_together(rows: Float32Array, matrix: Float32Array) -> Float32Array:
    """The rows [R, inputs] times a matrix [outputs, inputs] in one call of the BLAS."""
    product: Float32Array = rows @ matrix.T
    return product
