"""The single response with the complete answer, for calls that do not stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.responses import Response

from paceline.gateway.answer import Answer, Choice
from paceline.gateway.openai.usage import envelope_of, totals_of


async def whole_response(answer: Answer, kind: str, describe: Callable[[Choice], dict[str, Any]]) -> Response:
    """Returns the response for a complete answer; `describe` turns a choice into an object for JSON.

    It encodes in a thread, one choice after the other, because log-probabilities can be many megabytes.
    """

    def encode() -> bytes:
        choices = [msgspec.Raw(msgspec.json.encode(describe(choice))) for choice in answer.choices]
        return msgspec.json.encode({**envelope_of(answer, kind), "choices": choices, **totals_of(answer)})

    return Response(await asyncio.to_thread(encode), media_type="application/json")
