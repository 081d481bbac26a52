"""Converts tools, tool calls and tool results to what a chat template expects.

`tool_probe` finds out which form of calls a template shows. `chat_messages` converts everything else in a message.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from paceline.core.errors import InvalidRequestError

Message = Mapping[str, object]

_SHORT_ID = re.compile("[A-Za-z0-9]{9}")
_SHORT_ID_LENGTH = 9


@dataclass(frozen=True, slots=True)
class ToolForm:
    """The form in which a template is given tool calls.

    With `takes_mappings`, the arguments of a call are a mapping, otherwise a JSON text. Without `takes_any_id`, the ids
    of calls become nine letters and digits. Without `takes_several_calls`, each call gets a turn of its own.
    """

    takes_mappings: bool = True
    takes_any_id: bool = True
    takes_several_calls: bool = True


def tool_messages(messages: Sequence[Message], form: ToolForm) -> list[Message]:
    """Returns the messages with their tool calls and tool results in this form.

    OpenAI's older `function_call` becomes a tool call, and a message of the role `function` its result. A result gets
    its `name` from its call. An empty list of calls is left out. Raises InvalidRequestError where a call has no name,
    an id is not a text, or arguments are not a JSON object.
    """
    converter = _Converter(form)
    converted = [converter.convert(index, message) for index, message in enumerate(messages)]
    return converted if form.takes_several_calls else list(_with_one_call_per_turn(converted))


def complete_tool(tool: object) -> object:
    """Returns the tool with a description and with parameters, which are empty where they are absent or None.

    A tool that is not in OpenAI's form, a mapping with a mapping `function`, is returned unchanged.
    """
    if not isinstance(tool, Mapping) or not isinstance(tool.get("function"), Mapping):
        return tool
    given = {key: value for key, value in tool["function"].items() if value is not None}
    given.setdefault("description", "")
    given.setdefault("parameters", {"type": "object", "properties": {}})
    return {**tool, "function": given}


class _Converter:
    """Converts the messages of one chat in their order, and remembers which calls they hold."""

    def __init__(self, form: ToolForm) -> None:
        self._form = form
        self._names_by_id: dict[str, str] = {}
        self._last_ids_by_name: dict[str, str | None] = {}

    def convert(self, index: int, message: Message) -> Message:
        where = f"messages[{index}]"
        if message.get("role") in ("tool", "function"):
            return self._result(message, where)
        calls = [self._call(call, path) for call, path in _calls_of(message, index)]
        if calls:
            message = {**message, "tool_calls": calls}
        dropped = ("function_call",) if calls else ("function_call", "tool_calls")
        return {key: value for key, value in message.items() if key not in dropped}

    def _call(self, call: object, path: str) -> Message:
        """Returns the call in the form. `path` names its function in messages of errors."""
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping):
            raise _refusal(path, function, "an object with a name and arguments")
        name = function.get("name")
        if not isinstance(name, str):
            raise _refusal(f"{path}.name", name, "a text")
        call_id = _checked_id(call.get("id"), path.removesuffix(".function") + ".id")
        if not self._form.takes_any_id:
            call_id = _short_id(call_id or path)
        self._last_ids_by_name[name] = call_id
        if call_id is not None:
            self._names_by_id[call_id] = name
            call = {**call, "id": call_id}
        arguments = self._arguments(function.get("arguments"), f"{path}.arguments")
        return {**call, "function": {**function, "arguments": arguments}}

    def _arguments(self, given: object, path: str) -> object:
        """Returns a call's arguments as a mapping or as JSON. Nothing and an empty text are no arguments."""
        if given is None or (isinstance(given, str) and not given.strip()):
            given = {}
        arguments = _parsed(given, path) if isinstance(given, str) else given
        if not isinstance(arguments, Mapping):
            raise _refusal(path, arguments, "a JSON object")
        if self._form.takes_mappings:
            return arguments
        return given if isinstance(given, str) else _json(arguments, path)

    def _result(self, message: Message, where: str) -> Message:
        """Returns a tool result with the id and the name of its call.

        A result without an id belongs to the last call of its name.
        """
        call_id, name = _checked_id(message.get("tool_call_id"), f"{where}.tool_call_id"), message.get("name")
        if call_id is None and isinstance(name, str):
            call_id = self._last_ids_by_name.get(name)
        elif call_id is not None and not self._form.takes_any_id:
            call_id = _short_id(call_id)
        found = {"tool_call_id": call_id, "name": self._names_by_id.get(call_id or "") if name is None else name}
        return {**message, "role": "tool", **{key: value for key, value in found.items() if value is not None}}


def _calls_of(message: Message, index: int) -> Iterator[tuple[object, str]]:
    """Yields the calls of a message, each with the path of its function for messages of errors."""
    where, calls, old_call = f"messages[{index}]", message.get("tool_calls"), message.get("function_call")
    if calls:
        if not isinstance(calls, list | tuple):
            raise _refusal(f"{where}.tool_calls", calls, "a list of calls")
        yield from ((call, f"{where}.tool_calls[{number}].function") for number, call in enumerate(calls))
    elif old_call is not None:
        yield {"id": f"call_{index}", "type": "function", "function": old_call}, f"{where}.function_call"


def _with_one_call_per_turn(messages: Iterable[Message]) -> Iterator[Message]:
    """Yields the messages with a turn for each call, which the call's result follows.

    The first of these turns keeps the content and the reasoning. Results that belong to no call of the turn come last.
    """
    remaining = deque(messages)
    while remaining:
        message = remaining.popleft()
        calls = message.get("tool_calls")
        if not isinstance(calls, list):
            yield message
            continue
        results: dict[object, deque[Message]] = {}
        while remaining and remaining[0].get("role") == "tool":
            result = remaining.popleft()
            results.setdefault(result.get("tool_call_id"), deque()).append(result)
        for number, call in enumerate(calls):
            yield {**(message if number == 0 else {"role": message.get("role")}), "tool_calls": [call]}
            if answers := results.get(call.get("id")):
                yield answers.popleft()
        yield from chain.from_iterable(results.values())


def _short_id(call_id: str) -> str:
    """Returns the id itself if it has nine letters and digits, and otherwise nine that depend on the id only."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:_SHORT_ID_LENGTH]


def _checked_id(value: object, path: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _refusal(path, value, "a text")
    return value


def _parsed(text: str, path: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path} is not valid JSON ({error}); send a JSON object", param=path) from error
    return value


def _json(arguments: Mapping[object, object], path: str) -> str:
    try:
        return json.dumps(arguments if isinstance(arguments, dict) else dict(arguments), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path} has a value that JSON lacks ({error}); change it", param=path) from error


def _refusal(path: str, value: object, expected: str) -> InvalidRequestError:
    kind = "missing" if value is None else f"a {type(value).__name__}"
    return InvalidRequestError(f"{path} is {kind}; send {expected}", param=path)
