"""The sampling parameters that are understood: their types, and the one definition of each parameter's range.

Programs, the HTTP API and the command line all check against `RANGES`. What a parameter does is documented at
`core.SamplingParams`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from types import MappingProxyType
from typing import TypeVar

import msgspec

from paceline.core import SamplingParams, SpeculationParams
from paceline.core.errors import InvalidRequestError

_MAX_INT64 = 2**63 - 1
_FIELD = re.compile(r"\$\.(\w+)")  # finds the field's name in the path that a msgspec error ends with

Params = TypeVar("Params", SamplingParams, SpeculationParams)


@dataclass(frozen=True, slots=True)
class Range:
    """The values from `lowest` to `highest`, both included; not-a-number is in no range."""

    lowest: float
    highest: float

    def __contains__(self, value: float) -> bool:
        return self.lowest <= value <= self.highest


RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "temperature": Range(0.0, 100.0),
        "top_p": Range(0.0, 1.0),
        "top_k": Range(1, _MAX_INT64),
        "min_p": Range(0.0, 1.0),
        "presence_penalty": Range(-2.0, 2.0),
        "frequency_penalty": Range(-2.0, 2.0),
        "repetition_penalty": Range(0.01, 100.0),
        "logit_bias": Range(-100.0, 100.0),
        "max_tokens": Range(1, _MAX_INT64),
        "min_tokens": Range(0, _MAX_INT64),
        "seed": Range(0, 2**64 - 1),
        "choice_index": Range(0, 2**32 - 1),
        "max_window": Range(0, _MAX_INT64),
    }
)


def check_range(name: str, value: float | None, allowed: Range) -> None:
    """Raises InvalidRequestError where the value is given and outside the range."""
    if value is not None and value not in allowed:
        raise InvalidRequestError(
            f"{name} is {value}, but must be between {allowed.lowest} and {allowed.highest}", name, "invalid_value"
        )


def check_text(name: str, value: str) -> None:
    """Raises InvalidRequestError for anything but a text that UTF-8 can encode."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidRequestError(f"{name} is {value!r}, which is not a text of Unicode characters", name) from None


def normalize(params: object, kind: type[Params]) -> Params:
    """Returns the parameters with every field in its declared type, so that `"off"` becomes the mode of that name.

    A program may put any object into a field. Numpy numbers and lists in place of tuples are converted; everything else
    raises InvalidRequestError, which names the field.
    """
    if not isinstance(params, kind):
        raise InvalidRequestError(f"expected a {kind.__name__}, not an object of type {type(params).__name__}")
    for name in params.__struct_fields__:
        value = getattr(params, name)
        if isinstance(value, str) and name in ("stop", "drafters"):  # otherwise each character would become an item
            raise InvalidRequestError(f"{name} is a single text; pass a tuple of texts, ({value!r},) for one", name)
    try:
        builtins = msgspec.to_builtins(params, enc_hook=_plain_number, builtin_types=(bytes, bytearray))
        return msgspec.convert(builtins, type(params))
    except (msgspec.ValidationError, TypeError) as error:
        message, _, place = str(error).partition(" - at ")
        found = _FIELD.search(place)
        name = found[1] if found else "a parameter"
        raise InvalidRequestError(f"{name}: {message[:1].lower() + message[1:]}", found and found[1]) from error


def check_sampling_params(params: SamplingParams, vocab_size: int) -> None:
    """Raises InvalidRequestError, which names the parameter, for a value out of its range or a token id that the model
    does not have."""
    check_token_ids(params.logit_bias, "logit_bias", vocab_size)
    check_token_ids(params.stop_token_ids, "stop_token_ids", vocab_size)
    for name, allowed in RANGES.items():
        if name != "logit_bias" and hasattr(params, name):
            check_range(name, getattr(params, name), allowed)
    check_range("num_logprobs", params.num_logprobs, Range(0, vocab_size))
    for bias in params.logit_bias.values():
        check_range("logit_bias", bias, RANGES["logit_bias"])
    if not all(params.stop):
        raise InvalidRequestError("stop contains an empty string; leave it out", "stop")


def check_token_ids(token_ids: Iterable[int], param: str, vocab_size: int) -> None:
    """Raises InvalidRequestError for a token id that the model does not have."""
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidRequestError(
                f"{param} has token id {token_id}, but the vocabulary ends at {vocab_size - 1}", param, "invalid_value"
            )


def _plain_number(value: object) -> int | float:
    """Returns the int or float that equals a number of another library; raises TypeError for anything else."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"a value of type {type(value).__name__} is not understood")
