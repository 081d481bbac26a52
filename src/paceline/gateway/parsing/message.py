"""`Message`: the parts of an answer put together."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from paceline.gateway.parsing.events import CallArguments, CallBegin, Content, Part, Reasoning

_ID_BYTES = 12


@dataclass(slots=True)
class ToolCall:
    """A call that the model asks for. `arguments` is the text of a JSON object, cut off if the answer was.

    `call_id` is random; clients send it back with the call's result.
    """

    name: str
    arguments: str = ""
    call_id: str = field(default_factory=lambda: f"call_{secrets.token_hex(_ID_BYTES)}")

    @property
    def is_complete(self) -> bool:
        """Whether the arguments are a JSON object. A stop string may have cut them off."""
        return self.parsed_arguments is not None

    @property
    def parsed_arguments(self) -> dict[str, Any] | None:
        """The arguments as an object; None if they are not one, or contain numbers that JSON cannot have."""
        try:
            found = json.loads(self.arguments, parse_constant=_refuse, parse_float=_finite)
        except (ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value


@dataclass(slots=True)
class Message:
    """The answer so far. Reasoning and content are empty where there are none."""

    reasoning: str = ""
    content: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def add(self, parts: Iterable[Part]) -> None:
        """Adds parts that the parser gave out."""
        for part in parts:
            match part:
                case Reasoning(text):
                    self.reasoning += text
                case Content(text):
                    self.content += text
                case CallBegin(_, name):
                    self.calls.append(ToolCall(name))
                case CallArguments(index, text):
                    self.calls[index].arguments += text
