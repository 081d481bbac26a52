"""Turns texts and parameters into calls, and answers into the tensors of the protocol. HTTP and gRPC share it."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from paceline.core import SpeculationParams
from paceline.core.errors import InvalidRequestError
from paceline.gateway.answer import Answer, Choice
from paceline.gateway.generation_call import GenerationCall
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.kserve.parameters import GenerateParameters, parse_parameters, parse_sampling_text
from paceline.gateway.kserve.tensors import Tensor, count_tensor, text_tensor

TEXT_INPUT, TEXT_OUTPUT, SAMPLING = "text_input", "text_output", "sampling_parameters"
_LISTS = frozenset({"stop", "stop_words", "bad_words"})


def read_inputs(tensors: Sequence[Tensor], parameters: dict[str, Any]) -> tuple[str, GenerateParameters]:
    """Returns the text and the parameters of a request. A tensor counts before a parameter of the same name.

    Raises InvalidRequestError if there is no text, or if something cannot be honoured.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    if len(by_name) < len(tensors):
        raise InvalidRequestError("two inputs have the same name", "inputs", "invalid_value")
    values = {name: _value(tensor) for name, tensor in by_name.items()}
    text = values.pop(TEXT_INPUT, None)
    if not isinstance(text, str):
        raise InvalidRequestError(f"the input {TEXT_INPUT} of the type BYTES is missing", TEXT_INPUT, "invalid_value")
    sampling = parse_sampling_text(values.pop(SAMPLING)) if SAMPLING in values else {}
    return text, parse_parameters({**parameters, **sampling, **values})


def _value(tensor: Tensor) -> Any:  # noqa: ANN401 - a JSON value
    """Returns the only element of a tensor, or all of them for a list of words."""
    if tensor.name in _LISTS:
        return list(tensor.values)
    if len(tensor.values) != 1:
        message = (
            f"the tensor {tensor.name!r} has {len(tensor.values)} elements, but must have one: send one request each"
        )
        raise InvalidRequestError(message, tensor.name, "invalid_value")
    return tensor.values[0]


def generate_call(model: str, text: str, parameters: GenerateParameters, arrival: Arrival) -> GenerationCall:
    """Returns the call for a text, which is the prompt as it is."""
    is_echoed = not parameters.exclude_input_in_output
    if parameters.exclude_input_in_output is None:
        is_echoed = not parameters.stream
    elif parameters.stream and is_echoed:
        message = "exclude_input_in_output cannot be false for a stream, leave it out"
        raise InvalidRequestError(message, "exclude_input_in_output", "unsupported_value")
    return GenerationCall(
        call_id=f"infer-{uuid.uuid4().hex}",
        model=model,
        input=[text],
        num_choices=1,
        sampling=parameters.sampling,
        speculation=SpeculationParams(),
        echo=is_echoed,
        principal=arrival.principal,
        arrival_s=arrival.time_s,
        size_bytes=arrival.body_size_bytes,
    )


def whole_outputs(answer: Answer, parameters: GenerateParameters) -> list[Tensor]:
    """Returns the tensors of a complete answer."""
    (choice,) = answer.choices
    return list(_outputs(choice, choice.text, parameters))


async def streamed_outputs(answer: Answer, parameters: GenerateParameters) -> AsyncGenerator[list[Tensor], None]:
    """Yields the tensors of each piece of the answer."""
    (choice,) = answer.choices
    async with aclosing(answer.news()) as news:
        async for _ in news:
            text = choice.take_text()
            if text or choice.finish_reason is not None:
                yield list(_outputs(choice, text, parameters))


def _outputs(choice: Choice, text: str, parameters: GenerateParameters) -> Iterator[Tensor]:
    yield text_tensor(TEXT_OUTPUT, text)
    if parameters.return_finish_reason:
        yield text_tensor("finish_reason", choice.finish_reason or "")
    if parameters.return_num_input_tokens:
        yield count_tensor("num_input_tokens", choice.num_prompt_tokens)
    if parameters.return_num_output_tokens:
        yield count_tensor("num_output_tokens", choice.num_tokens)
