"""Types of request fields that accept several JSON forms and convert them to one, or that accept only some values.

Validators raise `PydanticCustomError`. Its type is the error's code; its message completes the sentence "`field`
cannot be `value`: ...".
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from paceline.sampling import RANGES

MAX_COUNT = 2**31 - 1
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 1024
MAX_LOGPROBS = 20  # likeliest tokens beside each token, as in OpenAI's API
_MIN_SEED = -(2**63)


def only(*allowed: Any) -> AfterValidator:  # noqa: ANN401 - JSON values
    """Returns a validator that accepts only these values."""
    return AfterValidator(Only(allowed))


@dataclass(frozen=True, slots=True)
class Only:
    """Accepts only some values. Others would change the response and are not supported."""

    allowed: tuple[Any, ...]

    def __call__(self, value: Any) -> Any:  # noqa: ANN401
        """Returns the value; raises an error if it is not one of the allowed ones."""
        if not any(type(value) is type(one) and value == one for one in self.allowed):
            raise PydanticCustomError("unsupported_value", "this is not supported here, leave it out")
        return value


class Effect(enum.Enum):
    """What a field of a request does, for the documentation. Fields without this mark are honoured or refused."""

    NONE = "no effect"


Value = TypeVar("Value")


def _forget(value: object) -> None:
    """Drops the value of a field without effect, so that it takes no memory."""


NoEffect = Annotated[Value, Effect.NONE, AfterValidator(_forget)]
"""Marks the type of a field that is accepted and has no effect: `NoEffect[str | None]`. Its value is dropped."""


def within(name: str) -> Any:  # noqa: ANN401 - pydantic's word for a field
    """Returns an optional field whose value must lie in the range of the sampling parameter `name`."""
    allowed = RANGES[name]
    return Field(default=None, ge=allowed.lowest, le=allowed.highest)


def _stop_strings(value: Any) -> tuple[str, ...]:  # noqa: ANN401
    strings = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(strings, list) or not all(isinstance(one, str) and one for one in strings):
        raise PydanticCustomError("invalid_value", "it must be a non-empty string or a list of non-empty strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise PydanticCustomError("invalid_value", f"{len(strings)} strings exceed the limit of {MAX_STOP_STRINGS}")
    for one in strings:
        if len(one) > MAX_STOP_LENGTH:
            raise PydanticCustomError(
                "invalid_value", f"a string of {len(one)} characters exceeds the limit of {MAX_STOP_LENGTH}"
            )
        _check_unicode(one)
    return tuple(strings)


def check_logit_bias(value: Any) -> dict[int, float]:  # noqa: ANN401
    """Converts an object that maps token ids to biases; raises an error for anything else."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise PydanticCustomError("invalid_value", "it must be an object that maps token ids to biases")
    biases = {_token_id(name): _bias(bias) for name, bias in value.items()}
    if len(biases) < len(value):
        raise PydanticCustomError("invalid_value", "a token id occurs twice, written in two ways")
    return biases


def _token_id(name: str) -> int:
    if not (name.isascii() and name.isdigit()) or len(name) > 9:
        raise PydanticCustomError("invalid_value", "{name} is not a token id", {"name": repr(name[:20])})
    return int(name)


def _bias(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, int | float) or value not in RANGES["logit_bias"]:
        raise PydanticCustomError("invalid_value", "each bias must be a number from -100 to 100")
    return float(value)


def _seed(value: Any) -> int | None:  # noqa: ANN401
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not _MIN_SEED <= value < 2**64:
        raise PydanticCustomError("invalid_value", "it must be a 64-bit integer")
    return value % 2**64


def _top_k(value: int | None) -> int | None:
    """Returns 0 for both ways to ask for all tokens."""
    return 0 if value == -1 else value


def _prompts(value: Any) -> list[str | list[int]]:  # noqa: ANN401
    """Converts the four forms of a completion's prompt to a list of texts and lists of token ids."""
    prompts = value if isinstance(value, list) and not _is_token_list(value) else [value]
    if not prompts or not all(isinstance(one, str) or _is_token_list(one) for one in prompts):
        raise PydanticCustomError(
            "invalid_value", "it must be a string, a list of strings, a list of token ids, or a list of such lists"
        )
    if any(not one for one in prompts):
        raise PydanticCustomError("empty_prompt", "a prompt must not be empty")
    for one in prompts:
        if isinstance(one, str):
            _check_unicode(one)
    return prompts


def _is_token_list(value: Any) -> bool:  # noqa: ANN401
    return isinstance(value, list) and value != [] and all(type(one) is int and one >= 0 for one in value)


def _content(value: Any) -> str | list[dict[str, str]] | None:  # noqa: ANN401
    """Returns a message's text, or its text parts with the keys `type` and `text` only."""
    if value is None or isinstance(value, str):
        return _check_unicode(value or "") if value is not None else None
    if not isinstance(value, list):
        raise PydanticCustomError("invalid_value", "it must be a string or a list of text parts")
    return [{"type": "text", "text": _text_of_part(part, index)} for index, part in enumerate(value)]


def _text_of_part(part: Any, index: int) -> str:  # noqa: ANN401
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get("text") if isinstance(part, dict) else None
    if kind == "text" and isinstance(text, str):
        return _check_unicode(text)
    raise PydanticCustomError(
        "unsupported_content",
        "part {index} has type {kind}, but only parts of type 'text' with a string are supported",
        {"index": index, "kind": repr(kind)},
    )


def _reasoning(value: str | None, message: ValidationInfo) -> str | None:
    if value is not None and message.data.get("role", "assistant") != "assistant":
        raise PydanticCustomError("unsupported_value", "only the assistant's messages may have it, leave it out")
    return value


def _check_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("invalid_value", "it has half of a surrogate pair, which is not text") from None
    return text


Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
PositiveCount = Annotated[int, Field(ge=1, le=MAX_COUNT)]
SignedCount = Annotated[int, Field(ge=-MAX_COUNT, le=MAX_COUNT)]
StopStrings = Annotated[tuple[str, ...], PlainValidator(_stop_strings, json_schema_input_type=str | list[str] | None)]
LogitBias = Annotated[
    dict[int, float], PlainValidator(check_logit_bias, json_schema_input_type=dict[str, float] | None)
]
Seed = Annotated[int | None, PlainValidator(_seed, json_schema_input_type=int | None)]
TopK = Annotated[int | None, Field(ge=-1, le=MAX_COUNT), AfterValidator(_top_k)]
Prompts = Annotated[
    list[str | list[int]],
    PlainValidator(_prompts, json_schema_input_type=str | list[str] | list[int] | list[list[int]]),
]
MessageContent = Annotated[
    str | list[dict[str, str]] | None,
    PlainValidator(_content, json_schema_input_type=str | list[dict[str, str]] | None),
]
Reasoning = Annotated[str | None, AfterValidator(_reasoning)]
Text = Annotated[str, AfterValidator(_check_unicode)]
