"""Renders probe chats to find out which form of tool calls a chat template shows.

`tool_messages` applies what is found here. A template may raise an error on calls in another form, leave them out, or
write them as Python or as JSON within JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product

from paceline.tokenizer.chat_messages import ContentForm, template_message
from paceline.tokenizer.tool_messages import ToolForm, tool_messages

Message = dict[str, object]
Render = Callable[[list[Message]], str | None]

_NAME = "qvzxtoolwjkqx"
# Words that no template contains itself. Each call has one argument, of this name and value.
_ARGUMENTS = (("qvzxfirstwjkqx", "qvzxonewjkqx"), ("qvzxsecondwjkqx", "qvzxtwowjkqx"))


def probe_tool() -> dict[str, object]:
    """Returns the tool that the calls of the probe chats use. It has no word of the calls' arguments."""
    parameters = {
        "type": "object",
        "properties": {"word": {"type": "string", "description": "A word."}},
        "required": [],
    }
    return {
        "type": "function",
        "function": {"name": _NAME, "description": "Takes words.", "parameters": parameters},
    }


def probe_tool_form(render: Render, contents: Mapping[str, ContentForm]) -> ToolForm:
    """Returns the form in which the template shows two calls of one turn.

    If it shows them in none, this is a form that it accepts without an error, and otherwise the usual form. `render`
    returns the text of a chat, or None where the template refuses it; its exceptions end the probe. `contents` are the
    forms of contents by role.
    """

    def text_of(chat: list[Message], form: ToolForm) -> str | None:
        return render([template_message(message, contents) for message in tool_messages(chat, form)])

    for is_good in (_shows_arguments, _is_accepted):
        for chat, form in product(_chats(), _forms()):
            if is_good(text_of(chat, form)):
                loose = replace(form, takes_any_id=True)
                return loose if is_good(text_of(chat, loose)) else form
    return ToolForm()


def _forms() -> Iterator[ToolForm]:
    """Yields the forms to try, all with ids that every template accepts. Mappings come first, which most templates are
    written for, and a turn is split only where nothing else helps."""
    for takes_several_calls in (True, False):
        for takes_mappings in (True, False):
            yield ToolForm(takes_mappings, takes_any_id=False, takes_several_calls=takes_several_calls)


def _chats() -> Iterator[list[Message]]:
    """Yields chats with two calls in one turn, in orders that templates may insist on, the most usual one first."""
    user: Message = {"role": "user", "content": "Hello"}
    answer: Message = {"role": "assistant", "content": "Hi"}
    ids = ("call_qvzx_1", "call_qvzx_2")
    functions = [{"name": _NAME, "arguments": {argument: value}} for argument, value in _ARGUMENTS]
    calls = [
        {"id": one_id, "type": "function", "function": function}
        for one_id, function in zip(ids, functions, strict=True)
    ]
    turn: Message = {"role": "assistant", "tool_calls": calls}
    results: list[Message] = [{"role": "tool", "tool_call_id": one_id, "content": "Done"} for one_id in ids]
    yield [user, turn, *results]
    yield [user, turn, *results, answer, user]
    yield [{"role": "system", "content": "Be brief."}, user, turn, *results]
    yield [user, turn]


def _is_accepted(text: str | None) -> bool:
    return text is not None


def _shows_arguments(text: str | None) -> bool:
    return text is not None and all(_shows_argument(text, argument, value) for argument, value in _ARGUMENTS)


def _shows_argument(text: str, argument: str, value: str) -> bool:
    """Returns whether the text has the argument, neither as a Python dict nor as JSON within JSON."""
    arguments = {argument: value}
    misspelt = (str(arguments), json.dumps(json.dumps(arguments))[1:-1])
    return argument in text and value in text and not any(spelling in text for spelling in misspelt)
