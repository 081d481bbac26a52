"""Turns a checked body into the `GenerationCall` that the generation service takes."""

from __future__ import annotations

import uuid
from typing import Any

from paceline.core import SpeculationParams
from paceline.gateway.generation_call import Chat, GenerationCall, Infill, Input
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest
from paceline.gateway.sampling_fields import given

GenerationBody = ChatCompletionRequest | CompletionRequest


def chat_call(body: ChatCompletionRequest, arrival: Arrival) -> GenerationCall:
    """Returns the call for POST /v1/chat/completions."""
    chat = Chat(
        [message.template_message() for message in body.messages],
        {**effort_options(body.reasoning_effort), **(body.chat_template_kwargs or {})},
        body.all_tools,
        body.all_tool_choice,
        "functions" if body.functions else "tools",
    )
    return _call(body, arrival, "chatcmpl", chat, echo=False)


def completion_call(body: CompletionRequest, arrival: Arrival) -> GenerationCall:
    """Returns the call for POST /v1/completions."""
    prompts: Input = Infill(body.infill_prefix, body.suffix) if body.suffix else body.prompt
    return _call(body, arrival, "cmpl", prompts, echo=bool(body.echo))


def _call(body: GenerationBody, arrival: Arrival, prefix: str, content: Input, *, echo: bool) -> GenerationCall:
    return GenerationCall(
        call_id=f"{prefix}-{uuid.uuid4().hex}",
        model=body.model,
        input=content,
        num_choices=body.num_choices,
        sampling=_sampling(body),
        speculation=SpeculationParams() if body.speculation is None else body.speculation.params,
        constraint=body.constraint,
        echo=echo,
        principal=arrival.principal,
        arrival_s=arrival.time_s,
        size_bytes=arrival.body_size_bytes,
        has_progress=bool(body.return_progress and body.stream),
    )


def effort_options(effort: str | None) -> dict[str, object]:
    """Returns the template variables for the effort of reasoning; templates that do not know them ignore them."""
    if effort is None:
        return {}
    return {"reasoning_effort": effort} | ({"enable_thinking": False} if effort == "none" else {})


def _sampling(body: GenerationBody) -> dict[str, Any]:
    return {
        **given(
            temperature=body.temperature,
            top_k=body.top_k,
            top_p=body.top_p,
            min_p=body.min_p,
            presence_penalty=body.presence_penalty,
            frequency_penalty=body.frequency_penalty,
            repetition_penalty=body.repetition_penalty,
            max_tokens=body.token_limit,
            min_tokens=body.min_tokens,
            seed=body.seed,
            num_logprobs=body.num_logprobs,
        ),
        "logit_bias": body.logit_bias,
        "stop": body.stop,
        "stop_token_ids": tuple(body.stop_token_ids or ()),
        "ignore_eos": bool(body.ignore_eos),
        "include_stop_in_output": bool(body.include_stop_str_in_output),
        "has_prompt_logprobs": body.has_prompt_logprobs,
    }
