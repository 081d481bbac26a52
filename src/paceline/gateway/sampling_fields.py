"""`given`: the sampling parameters of a call, from the fields of any front."""

from __future__ import annotations

from typing import Any


def given(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - values of many types
    """Returns the fields of `SamplingParams` that the client set; None marks a field that it left out.

    A `top_k` of 0 asks for all tokens, which is None in `SamplingParams`.
    """
    found = {name: value for name, value in values.items() if value is not None}
    return {**found, "top_k": found["top_k"] or None} if "top_k" in found else found
