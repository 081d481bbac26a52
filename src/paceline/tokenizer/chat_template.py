"""`ChatTemplate`: turns messages into the prompt text that a chat model was trained on.

`chat_messages` and `tool_messages` convert the messages to what templates expect. `template_pool` renders them in
separate processes, because a template comes with the model and is not trusted.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from paceline.core.errors import InvalidRequestError
from paceline.tokenizer.chat_messages import ContentForm, template_message
from paceline.tokenizer.content_probe import Message, probe_forms
from paceline.tokenizer.template_pool import TemplatePool
from paceline.tokenizer.template_process import TemplateCrashError, TemplateRefusedError, TemplateTimeoutError
from paceline.tokenizer.tool_messages import ToolForm, complete_tool, tool_messages
from paceline.tokenizer.tool_probe import probe_tool, probe_tool_form

_TIMEOUT_S = 5.0

Tools = Sequence[Mapping[str, object]]


@dataclass(slots=True)
class _Forms:
    """The forms that a template shows: of contents by role, and of tool calls."""

    contents: dict[str, ContentForm] = field(default_factory=dict)
    tools: ToolForm = field(default_factory=ToolForm)


class ChatTemplate:
    """A template. Every rendering sees `variables` (such as `bos_token`). Safe to use from several threads.

    A rendering that takes longer than `timeout_s` seconds is ended.
    """

    def __init__(self, source: str, variables: Mapping[str, object], *, timeout_s: float = _TIMEOUT_S) -> None:
        self._variables = variables
        self._timeout_s = timeout_s
        self._pool = TemplatePool(source, timeout_s)
        self._forms: _Forms | None = None
        self._preparing = threading.Lock()

    def prepare(self) -> None:
        """Compiles the template and finds out which forms of content and of tool calls it shows, so that the first
        rendering does not wait for this.

        Takes 0.2 s, and up to `timeout_s` more for a slow template. Raises CheckpointError where it does not compile.
        """
        self._known_forms()

    def render(self, messages: Sequence[Mapping[str, object]], tools: Tools | None = None, **options: object) -> str:
        """Returns the prompt for `messages`, by default up to where the assistant's answer begins.

        Raises InvalidRequestError where the template refuses the messages, fails on them, writes too much or takes too
        long, and where messages or options are not JSON values. Raises CheckpointError where the template does not
        compile.
        """
        _check_mappings(messages)
        forms = self._known_forms()
        shown = [template_message(message, forms.contents) for message in tool_messages(messages, forms.tools)]
        given = None if tools is None else [complete_tool(tool) for tool in tools]
        variables = self._encoded(shown, {"tools": given, **options})
        try:
            return self._pool.render(variables, self._timeout_s)
        except TemplateRefusedError as error:
            reason = f"does not accept these messages ({error}); change them"
        except TemplateTimeoutError as error:
            reason = f"takes longer than {error} for these messages; send fewer or shorter ones"
        except TemplateCrashError as error:
            reason = f"ends its process ({error}) on these messages; change them"
        raise InvalidRequestError(f"the model's chat template {reason}", param="messages")

    def close(self) -> None:
        """Ends the processes that render; a later rendering starts a new one."""
        self._pool.close()

    def _encoded(self, messages: Sequence[Mapping[str, object]], options: Mapping[str, object]) -> bytes:
        defaults = {"add_generation_prompt": True, "tools": None, "documents": None}
        variables = {**self._variables, **defaults, **options, "messages": messages}
        try:
            text = json.dumps(variables, ensure_ascii=False, default=_as_dict)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequestError(
                f"the chat template can be given JSON values only ({error}); change the messages or options",
                param="messages",
            ) from error
        return text.encode("utf-8", "surrogatepass")

    def _known_forms(self) -> _Forms:
        with self._preparing:
            if self._forms is None:
                self._forms = self._probed_forms()
            return self._forms

    def _probed_forms(self) -> _Forms:
        """Returns the forms. If the template is slow, those are the usual ones for which no time remains.

        Some templates refuse chats with tools, and some refuse all others, so each probe chat is rendered both ways
        where the first one fails.
        """
        self._pool.start()
        deadline_s = time.monotonic() + self._timeout_s
        forms = _Forms()
        without_tools, with_tools = None, [probe_tool()]
        with contextlib.suppress(TemplateTimeoutError):
            probe_forms(self._probe(deadline_s, without_tools, with_tools), forms.contents)
            forms.tools = probe_tool_form(self._probe(deadline_s, with_tools, without_tools), forms.contents)
        return forms

    def _probe(self, deadline_s: float, *choices: Tools | None) -> Callable[[list[Message]], str | None]:
        """Returns a function that renders messages with the first tools that the template accepts.

        It returns None where the template accepts none of them, and raises TemplateTimeoutError after the deadline.
        """

        def render(messages: list[Message]) -> str | None:
            for tools in choices:
                with contextlib.suppress(TemplateRefusedError, TemplateCrashError):
                    variables = self._encoded(messages, {"tools": tools})
                    return self._pool.render(variables, deadline_s - time.monotonic())
            return None

        return render


def _check_mappings(messages: Sequence[object]) -> None:
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            kind = type(message).__name__
            raise InvalidRequestError(f"message {index} is a {kind}; pass a mapping such as a dict", param="messages")


def _as_dict(value: object) -> dict[object, object]:
    """Returns a mapping of another type as a dict, for json.dumps; raises TypeError for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
