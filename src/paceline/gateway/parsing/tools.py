"""The tools that a client offers to the model, and how the model may use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is the JSON schema of its arguments; None means no arguments.

    `is_strict` says that a grammar must enforce the whole schema, or be refused if it cannot.
    """

    name: str
    description: str | None
    parameters: dict[str, Any] | None
    is_strict: bool

    def with_any_arguments(self) -> Tool:
        """Returns the tool with parameters of the same names and any values; a strict tool stays as it is."""
        if self.is_strict:
            return self
        properties = (self.parameters or {}).get("properties")
        names = properties if isinstance(properties, dict) else {}
        anything = {"type": "object", "properties": {name: {} for name in names}, "additionalProperties": True}
        return replace(self, parameters=anything)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may or must call tools, and which of them (`names` None: all of them)."""

    mode: Literal["none", "auto", "required"] = "auto"
    names: frozenset[str] | None = None
    is_parallel: bool = True

    @property
    def is_required(self) -> bool:
        """Whether the answer must be a call."""
        return self.mode == "required"

    def allowed(self, tools: Sequence[Tool]) -> list[Tool]:
        """Returns the tools that the model may call, in the given order."""
        if self.mode == "none":
            return []
        return [tool for tool in tools if self.names is None or tool.name in self.names]
