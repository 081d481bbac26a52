"""Converts messages to what a chat template expects.

Keys and names of reasoning follow Hugging Face `transformers`, for which templates are written. `content_probe` finds
out which form of content a template shows. `tool_messages` converts tool calls and tool results before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

_REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")


@dataclass(frozen=True, slots=True)
class ContentForm:
    """The form in which a template is given the contents of messages of one role.

    With `takes_string`, one text is a string, otherwise a list of one text part. With `takes_parts`, several text parts
    stay a list, otherwise line breaks join them to one text.
    """

    takes_string: bool
    takes_parts: bool

    def adapt(self, content: object) -> object:
        """Returns the content in this form. Anything but a string or a list of text parts is returned unchanged."""
        if isinstance(content, str):
            return content if self.takes_string else [text_part(content)]
        if not _are_text_parts(content) or (self.takes_parts and len(content) > 1):
            return content
        return self.adapt("\n".join(str(part["text"]) for part in content))


STRING_FORM = ContentForm(takes_string=True, takes_parts=False)
"""The form for a role that was not probed."""


def text_part(text: str) -> dict[str, object]:
    """Returns one text part of a content that is a list."""
    return {"type": "text", "text": text}


def template_message(message: Mapping[str, object], forms: Mapping[str, ContentForm]) -> dict[str, object]:
    """Returns the message as a template reads it: without keys whose value is None, and with its content in the form of
    its role.

    The role `developer` becomes `system`, its older name. A message with tool calls and no content gets an empty text.
    The value of the first key present among `reasoning_content`, `thinking` and `reasoning` becomes
    `reasoning_content`, and also `thinking` where that is absent.
    """
    given = {name: value for name, value in message.items() if value is not None}
    reasoning = next((given[name] for name in _REASONING_NAMES if name in given), None)
    if reasoning is not None:
        given = {"thinking": reasoning, **given, "reasoning_content": reasoning}
    if given.get("role") == "developer":
        given["role"] = "system"
    if given.get("tool_calls"):
        given.setdefault("content", "")
    if "content" in given:
        given["content"] = forms.get(str(given.get("role")), STRING_FORM).adapt(given["content"])
    return given


def _are_text_parts(content: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    return isinstance(content, list | tuple) and all(
        isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    )
