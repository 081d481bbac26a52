"""The request bodies of Ollama's API. A field is honoured, or marked as having no effect, or refused."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from paceline.core import Constraint
from paceline.gateway.http.field_types import MAX_COUNT, NoEffect, Seed, StopStrings, Text, TopK, only, within
from paceline.gateway.http.strict_body import StrictBody
from paceline.gateway.parsing.tools import Tool
from paceline.gateway.sampling_fields import given

MAX_TOOLS = 128
_LATEST = ":latest"
NoImages = Annotated[list[str] | None, only(None, [])]


class Options(StrictBody):
    """Sampling parameters, and settings of the runtime, which have no effect. `num_predict` -1 or -2 means no limit.

    The penalty of repetitions counts the whole text, whatever `repeat_last_n` says.
    """

    seed: Seed = None
    temperature: float | None = within("temperature")
    top_k: TopK = None
    top_p: float | None = within("top_p")
    min_p: float | None = within("min_p")
    repeat_penalty: float | None = within("repetition_penalty")
    presence_penalty: float | None = within("presence_penalty")
    frequency_penalty: float | None = within("frequency_penalty")
    num_predict: int | None = Field(default=None, ge=-2, le=MAX_COUNT)
    stop: StopStrings = ()
    # These would change the answer.
    typical_p: Annotated[float | None, only(None, 1.0)] = None
    tfs_z: Annotated[float | None, only(None, 1.0)] = None
    mirostat: Annotated[int | None, only(None, 0)] = None
    repeat_last_n: NoEffect[int | None] = None
    mirostat_eta: NoEffect[float | None] = None
    mirostat_tau: NoEffect[float | None] = None
    penalize_newline: NoEffect[bool | None] = None
    num_ctx: NoEffect[int | None] = None
    num_keep: NoEffect[int | None] = None
    num_batch: NoEffect[int | None] = None
    num_gpu: NoEffect[int | None] = None
    main_gpu: NoEffect[int | None] = None
    num_thread: NoEffect[int | None] = None
    numa: NoEffect[bool | None] = None
    use_mmap: NoEffect[bool | None] = None
    use_mlock: NoEffect[bool | None] = None
    low_vram: NoEffect[bool | None] = None
    f16_kv: NoEffect[bool | None] = None
    vocab_only: NoEffect[bool | None] = None
    logits_all: NoEffect[bool | None] = None
    embedding_only: NoEffect[bool | None] = None

    @property
    def sampling(self) -> dict[str, Any]:
        """The sampling parameters that are set, by their names in `SamplingParams`."""
        limit = self.num_predict or 0
        return given(
            seed=self.seed,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repetition_penalty=self.repeat_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            max_tokens=limit if limit > 0 else None,
            stop=self.stop,
        )


class GenerationFields(StrictBody):
    """The fields that /api/chat and /api/generate share. `keep_alive` has no effect: the model stays loaded."""

    model: str | None = None
    stream: bool | None = None
    format: Literal["", "json"] | dict[str, Any] | None = None
    options: Options | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: NoEffect[str | float | None] = None
    logprobs: Annotated[bool | None, only(None, False)] = None
    top_logprobs: Annotated[int | None, only(None, 0)] = None

    @property
    def model_name(self) -> str | None:
        """The name of the model without the tag `latest`, which Ollama's clients add; None means the default model."""
        return (self.model or "").removesuffix(_LATEST) or None

    @property
    def is_streamed(self) -> bool:
        """Whether the answer is streamed, as it is unless the client says otherwise."""
        return self.stream is not False

    @property
    def constraint(self) -> Constraint | None:
        """The form of the answer; None means free text."""
        if not self.format:
            return None
        if self.format == "json":
            return Constraint(kind="json_object", source="", field="format")
        return Constraint(kind="lenient_json_schema", source=json.dumps(self.format), field="format")

    @property
    def template_options(self) -> dict[str, Any]:
        """The template variables for reasoning; templates that do not know them ignore them."""
        if self.think is None:
            return {}
        effort = {"reasoning_effort": self.think} if isinstance(self.think, str) else {}
        return {"enable_thinking": self.think is not False, **effort}


class CalledFunction(StrictBody):
    """A function that an earlier answer called."""

    name: str
    arguments: dict[str, Any] = Field(default={})
    index: NoEffect[int | None] = None
    description: NoEffect[str | None] = None


class ToolCallMessage(StrictBody):
    """A tool call of an earlier answer."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] | None = None


class ChatMessage(StrictBody):
    """One message of a chat. `tool_name` names the tool of which a message of the role `tool` is the result."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Text = ""
    thinking: Text | None = None
    images: NoImages = None
    tool_calls: list[ToolCallMessage] | None = Field(default=None, fail_fast=True)
    tool_name: str | None = None
    tool_call_id: str | None = None

    def template_message(self) -> dict[str, object]:
        """Returns the message for the template; the value None marks an absent field."""
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": json.dumps(call.function.arguments)},
            }
            for call in self.tool_calls or ()
        ]
        return {
            "role": self.role,
            "content": self.content,
            "name": self.tool_name,
            "tool_call_id": self.tool_call_id,
            "tool_calls": calls or None,
            "reasoning_content": self.thinking,
        }


class FunctionDefinition(StrictBody):
    """A function that the model may call; `parameters` is the JSON schema of its arguments."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolDefinition(StrictBody):
    """A tool. Functions are the only kind."""

    function: FunctionDefinition
    type: Literal["function"] | None = None

    @property
    def tool(self) -> Tool:
        """The function as the service takes it."""
        function = self.function
        return Tool(function.name, function.description, function.parameters, bool(function.strict))


class ChatRequest(GenerationFields):
    """The body of POST /api/chat. Without messages the answer only says that the model is loaded."""

    messages: list[ChatMessage] = Field(default=[], fail_fast=True)
    tools: list[ToolDefinition] | None = Field(default=None, max_length=MAX_TOOLS, fail_fast=True)


class GenerateRequest(GenerationFields):
    """The body of POST /api/generate. Without a prompt the answer only says that the model is loaded."""

    prompt: Text | None = None
    suffix: Text | None = None
    system: Text | None = None
    raw: bool | None = None
    images: NoImages = None
    template: Annotated[str | None, only(None, "")] = None
    context: Annotated[list[int] | None, only(None, [])] = None


class ShowRequest(StrictBody):
    """The body of POST /api/show. `name` is the older name of `model`, and `verbose` has no effect."""

    model: str | None = None
    name: str | None = None
    verbose: NoEffect[bool | None] = None

    @property
    def model_name(self) -> str:
        """The name of the model without the tag `latest`."""
        return (self.model or self.name or "default").removesuffix(_LATEST)
