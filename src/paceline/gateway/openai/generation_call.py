"""Turns a checked body into the `GenerationCall` that the generation service takes."""

from __future__ import annotations

import uuid
from typing import Any

from paceline.core import SpeculationParams
from paceline.gateway.generation_call import Chat, GenerationCall, Infill, Input
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.openai.schema import ChatCompletionRequest, CompletionRequest

GenerationBody = ChatCompletionRequest | CompletionRequest


def chat_call(body: ChatCompletionRequest, arrival: Arrival) -> GenerationCall:
    """Returns the call for POST /v1/chat/completions."""
    chat = Chat(
        [message.template_message() for message in body.messages],
        {**_effort(body), **(body.chat_template_kwargs or {})},
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
        speculation=_speculation(body),
        constraint=body.constraint,
        echo=echo,
        principal=arrival.principal,
        arrival_s=arrival.time_s,
        size_bytes=arrival.body_size_bytes,
    )


def _effort(body: ChatCompletionRequest) -> dict[str, object]:
    """Returns the template variables for the effort of reasoning; templates that do not know them ignore them."""
    if body.reasoning_effort is None:
        return {}
    return {"reasoning_effort": body.reasoning_effort} | (
        {"enable_thinking": False} if body.reasoning_effort == "none" else {}
    )


def _sampling(body: GenerationBody) -> dict[str, Any]:
    """Returns the sampling parameters that the client set. A `top_k` of 0 means all tokens."""
    names = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty")
    given = {name: value for name in names if (value := getattr(body, name)) is not None}
    if body.top_k is not None:
        given["top_k"] = body.top_k or None
    return {
        **given,
        "max_tokens": body.token_limit,
        "min_tokens": body.min_tokens or 0,
        "logit_bias": body.logit_bias,
        "seed": body.seed,
        "stop": body.stop,
        "stop_token_ids": tuple(body.stop_token_ids or ()),
        "ignore_eos": bool(body.ignore_eos),
        "include_stop_in_output": bool(body.include_stop_str_in_output),
        "num_logprobs": body.num_logprobs,
    }


def _speculation(body: GenerationBody) -> SpeculationParams:
    options = body.speculation
    if options is None:
        return SpeculationParams()
    return SpeculationParams(
        mode=options.speculation_mode,
        max_window=options.max_window,
        drafters=None if options.drafters is None else tuple(options.drafters),
    )
