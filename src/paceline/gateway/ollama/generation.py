"""POST /api/chat and /api/generate: answers checked bodies, whole or as lines of JSON."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from paceline.core import SpeculationParams
from paceline.gateway.answer import Answer, Choice
from paceline.gateway.generation_call import Chat, GenerationCall, Infill, Input
from paceline.gateway.http.arrival import Arrival
from paceline.gateway.http.context import Gateway
from paceline.gateway.http.json_response import JsonResponse
from paceline.gateway.http.streamed_response import Chunk, Chunks, StreamedResponse, StreamFormat, json_line
from paceline.gateway.ollama.errors import error_body
from paceline.gateway.ollama.schema import ChatRequest, GenerateRequest, GenerationFields
from paceline.gateway.parsing.events import Content, Reasoning
from paceline.gateway.parsing.message import Message
from paceline.gateway.speculation_summary import speculation_of

JSON_LINES_TYPE = "application/x-ndjson"
JSON_LINES = StreamFormat(media_type=JSON_LINES_TYPE, encode=json_line, error_chunk=error_body)
_NANOSECONDS = 10**9

Describe = Callable[[str, str, list[dict[str, Any]]], Chunk]
"""Returns the fields of a response for a piece of content, a piece of reasoning, and tool calls."""


async def chat(gateway: Gateway, body: ChatRequest, arrival: Arrival) -> Response:
    """Answers a checked chat; raises what `GenerationService.begin` raises."""
    if not body.messages:
        return _loaded(gateway, body, _chat_fields)
    tools = tuple(tool.tool for tool in body.tools or ())
    messages = [message.template_message() for message in body.messages]
    call = _call(body, arrival, Chat(messages, body.template_options, tools))
    return await _respond(gateway, body, arrival, call, _chat_fields)


async def generate(gateway: Gateway, body: GenerateRequest, arrival: Arrival) -> Response:
    """Answers a checked prompt; raises what `GenerationService.begin` raises."""
    if not body.prompt:
        return _loaded(gateway, body, _generate_fields)
    call = _call(body, arrival, _input_of(body, body.prompt))
    return await _respond(gateway, body, arrival, call, _generate_fields)


def _input_of(body: GenerateRequest, prompt: str) -> Input:
    """Returns a gap to fill in, the prompt as it is, or a chat with the prompt as the user's message."""
    if body.suffix:
        return Infill(prompt, body.suffix)
    if body.raw:
        return [prompt]
    system = [{"role": "system", "content": body.system}] if body.system else []
    return Chat([*system, {"role": "user", "content": prompt}], body.template_options)


def _call(body: GenerationFields, arrival: Arrival, content: Input) -> GenerationCall:
    return GenerationCall(
        call_id=f"ollama-{uuid.uuid4().hex}",
        model=body.model_name,
        input=content,
        num_choices=1,
        sampling={} if body.options is None else body.options.sampling,
        speculation=SpeculationParams(),
        constraint=body.constraint,
        principal=arrival.principal,
        arrival_s=arrival.time_s,
        size_bytes=arrival.body_size_bytes,
    )


async def _respond(
    gateway: Gateway, body: GenerationFields, arrival: Arrival, call: GenerationCall, describe: Describe
) -> Response:
    answer = await gateway.service.begin(call)
    if body.is_streamed:
        chunks = _chunks(answer, arrival, describe)
        return await StreamedResponse.begin(chunks, JSON_LINES, gateway.config.keep_alive_s)
    started_s = first_s = time.monotonic()
    async with aclosing(answer.news()) as news:
        async for _ in news:
            first_s = first_s if first_s > started_s else time.monotonic()
    (choice,) = answer.choices
    content = choice.text if choice.parser is None else choice.message.content
    fields = describe(content, choice.message.reasoning, _calls_of(choice.message))
    return JsonResponse({**_begin(answer.model_name), **fields, **_end(choice, arrival, started_s, first_s)})


async def _chunks(answer: Answer, arrival: Arrival, describe: Describe) -> Chunks:
    """Yields a line for each piece of text, one with all tool calls, and a last one with the counts and the times."""
    (choice,) = answer.choices
    started_s, first_s = time.monotonic(), 0.0
    async with aclosing(answer.news()) as news:
        async for _ in news:
            first_s = first_s or time.monotonic()
            content, reasoning = _new_texts(choice)
            if content or reasoning:
                yield {**_begin(answer.model_name), **describe(content, reasoning, []), "done": False}
    if calls := _calls_of(choice.message):
        yield {**_begin(answer.model_name), **describe("", "", calls), "done": False}
    yield {**_begin(answer.model_name), **describe("", "", []), **_end(choice, arrival, started_s, first_s)}


def _new_texts(choice: Choice) -> tuple[str, str]:
    """Returns the content and the reasoning that were not sent yet."""
    if choice.parser is None:
        return choice.take_text(), ""
    parts = choice.take_parts()
    content = "".join(part.text for part in parts if isinstance(part, Content))
    return content, "".join(part.text for part in parts if isinstance(part, Reasoning))


def _calls_of(message: Message) -> list[dict[str, Any]]:
    """Returns the complete calls; a call that was cut off has no arguments that could be sent."""
    return [
        {"id": call.call_id, "function": {"index": index, "name": call.name, "arguments": arguments}}
        for index, call in enumerate(message.calls)
        if (arguments := call.parsed_arguments) is not None
    ]


def _chat_fields(content: str, reasoning: str, calls: list[dict[str, Any]]) -> Chunk:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        message["thinking"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return {"message": message}


def _generate_fields(content: str, reasoning: str, calls: list[dict[str, Any]]) -> Chunk:
    return {"response": content, **({"thinking": reasoning} if reasoning else {})}


def _begin(model_name: str) -> dict[str, Any]:
    return {"model": model_name, "created_at": datetime.now(UTC).isoformat()}


def _end(choice: Choice, arrival: Arrival, started_s: float, first_s: float) -> dict[str, Any]:
    """Returns the last fields of an answer. Durations are in nanoseconds; the prompt is read until the first token."""
    now_s = time.monotonic()
    return {
        "done": True,
        "done_reason": choice.finish_reason,
        "total_duration": round((now_s - arrival.time_s) * _NANOSECONDS),
        "load_duration": round((started_s - arrival.time_s) * _NANOSECONDS),
        "prompt_eval_count": choice.num_prompt_tokens,
        "prompt_eval_duration": round((first_s - started_s) * _NANOSECONDS),
        "eval_count": choice.num_tokens,
        "eval_duration": round((now_s - first_s) * _NANOSECONDS),
        "speculation": speculation_of([choice]),
    }


def _loaded(gateway: Gateway, body: GenerationFields, describe: Describe) -> Response:
    """Returns the answer to a request without text, by which clients load a model."""
    name = gateway.service.pool.find_model(body.model_name or gateway.service.pool.default_model).name
    return JsonResponse({**_begin(name), **describe("", "", []), "done": True, "done_reason": "load"})
