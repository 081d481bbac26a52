"""The response that has all of an answer at once, for calls that do not stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.responses import Response

from paceline.gateway.answer import Answer, Choice
from paceline.gateway.openai.usage import envelope_of, totals_of


async def whole_response(answer: Answer, kind: str, describe: Callable[[Choice], dict[str, Any]]) -> Response:
    """Returns the response that has all of a complete answer; `describe` makes an object of a choice.

    It is made beside the event loop, one choice after the other, because log-probabilities can be many megabytes.
    """

    def encode() -> bytes:
        choices = [msgspec.Raw(msgspec.json.encode(describe(choice))) for choice in answer.choices]
        return msgspec.json.encode({**envelope_of(answer, kind), "choices": choices, **totals_of(answer)})

    return Response(await asyncio.to_thread(encode), media_type="application/json")
