"""The messages of a chat, and the tools that it offers, in request bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from paceline.gateway.http.field_types import MessageContent, NoEffect, Reasoning, only
from paceline.gateway.http.strict_body import StrictBody, field_error
from paceline.gateway.parsing.tools import Tool, ToolChoice

MAX_TOOLS = 128


class FunctionDefinition(StrictBody):
    """A function that the model may call; `parameters` is the JSON schema of its arguments."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _check_parameters(self) -> Self:
        parameters = self.parameters or {}
        required = parameters.get("required", [])
        if (
            parameters.get("type", "object") != "object"
            or not isinstance(parameters.get("properties", {}), dict)
            or not isinstance(required, list)
            or not all(isinstance(name, str) for name in required)
        ):
            raise PydanticCustomError(
                "invalid_value", "parameters must be the schema of a json object", {"field": "parameters"}
            )
        return self

    @property
    def tool(self) -> Tool:
        """The function as the service takes it."""
        return Tool(self.name, self.description, self.parameters, bool(self.strict))


class ToolDefinition(StrictBody):
    """A tool. Functions are the only kind."""

    type: Literal["function"]
    function: FunctionDefinition


class CalledFunction(StrictBody):
    """A function that an earlier answer called, with its arguments as JSON text.

    OpenAI's client adds `parsed_arguments` itself and sends it back; it has no effect.
    """

    name: str
    arguments: str = ""
    parsed_arguments: NoEffect[Any] = None


class ToolCallMessage(StrictBody):
    """A tool call of an earlier answer."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: NoEffect[int | None] = None


class ChatMessage(StrictBody):
    """One message of a chat; the role `developer` is the newer name of `system`.

    Clients send earlier answers back as they got them, so fields of answers are accepted, and also `parsed`, which
    OpenAI's client adds itself.
    """

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: MessageContent = None
    reasoning_content: Reasoning = None
    reasoning: Reasoning = None
    thinking: Reasoning = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: list[ToolCallMessage] | None = Field(default=None, fail_fast=True)
    function_call: CalledFunction | None = None
    audio: Annotated[Any, only(None)] = None
    refusal: str | None = None
    annotations: NoEffect[list[Any] | None] = None
    parsed: NoEffect[Any] = None

    @property
    def is_call(self) -> bool:
        """Whether this is an earlier answer that calls tools, which needs no content."""
        return self.role == "assistant" and bool(self.tool_calls or self.function_call)

    def template_message(self) -> dict[str, object]:
        """Returns the message for the template; the value None marks an absent field."""
        calls = [
            call.model_dump(exclude_none=True, exclude={"index": True, "function": {"parsed_arguments"}})
            for call in self.tool_calls or ()
        ]
        return {
            "role": self.role,
            "content": self.content if self.content is not None else self.refusal,
            "name": self.name,
            "tool_call_id": self.tool_call_id,
            "tool_calls": calls or None,
            "function_call": self.function_call and self.function_call.model_dump(include={"name", "arguments"}),
            "reasoning_content": self.reasoning_content,
            "reasoning": self.reasoning,
            "thinking": self.thinking,
        }


def _tool_choice(value: Any) -> ToolChoice | None:  # noqa: ANN401 - a JSON value
    """Converts `tool_choice` or the older `function_call`: none, auto, required, an object that names a function, or an
    object of the type allowed_tools with a mode and several functions."""
    if value is None:
        return None
    if value in ("none", "auto", "required"):
        return ToolChoice(value)
    if not isinstance(value, dict):
        raise _bad_choice()
    if value.get("type") != "allowed_tools":
        return ToolChoice("required", frozenset({_name_of(value)}))
    allowed = value.get("allowed_tools", value)  # the Responses API has mode and tools beside the type
    if not isinstance(allowed, dict) or allowed.get("mode") not in ("auto", "required"):
        raise _bad_choice()
    tools = allowed.get("tools")
    if not isinstance(tools, list) or not tools:
        raise _bad_choice()
    return ToolChoice(allowed["mode"], frozenset(map(_name_of, tools)))


def _name_of(value: Any) -> str:  # noqa: ANN401
    """Returns the name in `{"type": "function", "function": {"name": ...}}` or in the older `{"name": ...}`."""
    function = value.get("function", value) if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise _bad_choice()
    return name


def _bad_choice() -> PydanticCustomError:
    return PydanticCustomError(
        "invalid_value", "it must be none, auto, required, an object that names a function, or one of allowed_tools"
    )


ToolChoiceField = Annotated[
    ToolChoice | None, PlainValidator(_tool_choice, json_schema_input_type=str | dict[str, Any] | None)
]


def check_tools(functions: list[FunctionDefinition], choice: ToolChoice | None, fields: tuple[str, str]) -> None:
    """Raises an error if two functions have one name, or if the choice needs a function that is not there.

    `fields` are the names of the request's fields with the functions and with the choice.
    """
    names = [function.name for function in functions]
    if len(set(names)) < len(names):
        raise field_error(fields[0], "two functions have the same name")
    if choice is not None and choice.is_required and not names:
        raise field_error(fields[1], f"there are no {fields[0]} to call")
    if choice is not None and (unknown := (choice.names or frozenset()) - set(names)):
        raise field_error(fields[1], f"there is no function named {min(unknown)!r}")
