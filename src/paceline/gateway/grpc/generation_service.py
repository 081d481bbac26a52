"""Paceline's own gRPC service (generation.proto). It streams the outputs of the engine as they are."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from paceline.core import Constraint, Output, SpeculationMode, SpeculationParams, SpeculationStats, TokenLogprob
from paceline.core.errors import InvalidRequestError
from paceline.gateway.generation_call import GenerationCall, Input
from paceline.gateway.grpc import generation_pb2 as messages
from paceline.gateway.grpc import generation_pb2_grpc as service
from paceline.gateway.grpc.arrival import arrival_of
from paceline.gateway.grpc.exchange import Context
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.field_types import MAX_LOGPROBS, MAX_STOP_LENGTH, MAX_STOP_STRINGS
from paceline.gateway.sampling_fields import given

SERVICE_NAME = "paceline.v1.Generation"
_SINGLE_FIELDS = (
    *("max_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p", "presence_penalty"),
    *("frequency_penalty", "repetition_penalty", "seed", "num_logprobs"),
)


def add_service(gateway: Gateway, server: grpc.aio.Server) -> str:
    """Adds the service to a server and returns its name."""
    service.add_GenerationServicer_to_server(_Servicer(gateway), server)  # type: ignore[no-untyped-call]
    return SERVICE_NAME


class _Servicer(service.GenerationServicer):
    """The methods of the service. Errors are exceptions; the interceptor translates them."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def Generate(self, request: Any, context: Context) -> AsyncIterator[Any]:  # noqa: ANN401, N802 - the names
        """Yields the outputs of one request; the last one has a finish reason."""
        answer = await self._gateway.service.begin(await self._call(request, context))
        identity = self._gateway.service.pool.find_model(answer.model_name).identity
        num_prompt_tokens = answer.choices[0].num_prompt_tokens
        with answer.outputs:
            async for _, output in answer.outputs:
                yield _output_message(output, request.request_id or answer.call_id, num_prompt_tokens, identity)

    async def DescribeModel(self, request: Any, context: Context) -> Any:  # noqa: ANN401, N802
        """Returns a served model's name, identity and sizes."""
        pool = self._gateway.service.pool
        model = pool.find_model(request.model or pool.default_model)
        return messages.Model(
            name=model.name,
            identity=model.identity,
            context_window_size=model.context_window_size or 0,
            max_batch_size=pool.num_slots_of(model.name),
            is_ready=pool.is_model_ready(model.name),
        )

    async def _call(self, request: Any, context: Context) -> GenerationCall:  # noqa: ANN401
        """Returns the call; raises InvalidRequestError if another model gave the resumed tokens."""
        arrival = arrival_of(context, request.ByteSize())
        pool = self._gateway.service.pool
        if request.model_identity:
            await pool.any_replica(request.model or None).wait_open()  # the identity is known once an engine is ready
        model = pool.find_model(request.model or pool.default_model)
        if request.model_identity and request.model_identity != model.identity:
            message = f"model_identity is {request.model_identity!r}, but the model here is {model.identity!r}"
            raise InvalidRequestError(message, "model_identity", "other_model")
        return GenerationCall(
            call_id=f"grpc-{uuid.uuid4().hex}",  # never the client's own id, which another client may use too
            model=request.model or None,
            input=_input_of(request.prompt),
            num_choices=1,
            sampling=_sampling_of(request.sampling),
            speculation=_speculation_of(request.speculation),
            constraint=_constraint_of(request.constraint),
            principal=arrival.principal,
            arrival_s=arrival.time_s,
            size_bytes=arrival.body_size_bytes,
            resumed_token_ids=tuple(request.resumed_token_ids),
            first_choice_index=request.choice_index,
        )


def _input_of(prompt: Any) -> Input:  # noqa: ANN401
    """Returns token ids or a text; raises InvalidRequestError."""
    match prompt.WhichOneof("form"):
        case "tokens":
            return [list(prompt.tokens.token_ids)]
        case "text":
            return [prompt.text]
        case _:
            raise InvalidRequestError("prompt is missing", "prompt", "missing_required_parameter")


def _sampling_of(sampling: Any) -> dict[str, Any]:  # noqa: ANN401
    fields = {name: getattr(sampling, name) for name in _SINGLE_FIELDS if sampling.HasField(name)}
    stop = tuple(sampling.stop)
    if len(stop) > MAX_STOP_STRINGS or any(len(one) > MAX_STOP_LENGTH for one in stop):
        message = f"stop has more than {MAX_STOP_STRINGS} texts, or one of more than {MAX_STOP_LENGTH} characters"
        raise InvalidRequestError(message, "stop", "invalid_value")
    if fields.get("num_logprobs", 0) > MAX_LOGPROBS:
        raise InvalidRequestError(f"num_logprobs exceeds the limit of {MAX_LOGPROBS}", "num_logprobs", "invalid_value")
    return {
        **given(**fields),
        "logit_bias": dict(sampling.logit_bias),
        "stop": stop,
        "stop_token_ids": tuple(sampling.stop_token_ids),
        "ignore_eos": sampling.ignore_eos,
        "include_stop_in_output": sampling.include_stop_in_output,
    }


def _speculation_of(speculation: Any) -> SpeculationParams:  # noqa: ANN401
    return SpeculationParams(
        mode=SpeculationMode.OFF if speculation.is_off else SpeculationMode.AUTO,
        max_window=speculation.max_window if speculation.HasField("max_window") else None,
        drafters=tuple(speculation.drafters) or None,
    )


def _constraint_of(constraint: Any) -> Constraint | None:  # noqa: ANN401
    if not constraint.kind:
        return None
    return Constraint(kind=constraint.kind, source=constraint.source, field="constraint")


def _output_message(output: Output, request_id: str, num_prompt_tokens: int, identity: str) -> Any:  # noqa: ANN401
    message = messages.Output(
        request_id=request_id,
        epoch=output.epoch,
        first_token_index=output.first_token_index,
        token_ids=output.token_ids,
        text=output.text,
        logprobs=[_logprob_message(one) for one in output.logprobs or ()],
        finish_reason=output.finish_reason or "",
        num_cached_tokens=output.num_cached_tokens,
        speculation=_speculation_message(output.speculation),
        num_prompt_tokens=num_prompt_tokens,
        model_identity=identity,
    )
    if isinstance(output.stop_reason, str):
        message.stop_string = output.stop_reason
    elif output.stop_reason is not None:
        message.stop_token_id = output.stop_reason
    return message


def _logprob_message(logprob: TokenLogprob) -> Any:  # noqa: ANN401
    top = [messages.TokenLogprob(token_id=token_id, logprob=value) for token_id, value in logprob.top]
    return messages.TokenLogprob(token_id=logprob.token_id, logprob=logprob.logprob, top=top)


def _speculation_message(stats: SpeculationStats) -> Any:  # noqa: ANN401
    counts = {
        name: messages.DrafterCounts(num_drafted=drafted, num_accepted=accepted)
        for name, (drafted, accepted) in stats.by_drafter.items()
    }
    return messages.SpeculationStats(
        num_steps=stats.num_steps,
        num_draft_tokens=stats.num_draft_tokens,
        num_accepted_tokens=stats.num_accepted_tokens,
        by_drafter=counts,
        reason=stats.reason or "",
    )
