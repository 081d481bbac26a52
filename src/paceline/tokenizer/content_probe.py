"""Renders probe chats to find out which form of content a chat template shows, for each role separately.

A template may take strings, lists of text parts, or both, and roles may differ in this. A template often drops content
in another form without an error. `chat_messages` applies what is found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from paceline.tokenizer.chat_messages import STRING_FORM, ContentForm, text_part

Message = dict[str, object]
Render = Callable[[list[Message]], str | None]

# Words that no template contains itself.
_FIRST = "qvzxfirstwjkqx"
_SECOND = "qvzxsecondwjkqx"
_MARK = "qvzxmarkwjkqx"
_CALL_ID = "abcdEFGH1"  # some templates insist on nine letters and digits


def probe_forms(render: Render, forms: dict[str, ContentForm]) -> None:
    """Enters in `forms`, by role, the form in which the template shows contents.

    `render` returns the text of a chat, or None where the template refuses it. An exception of `render` ends the probe;
    the forms found until then stay in `forms`. A role is left out if the template shows its contents in no form.
    """
    for role in ("user", "system", "assistant", "tool"):
        shown = (_shown_form(render, chat) for chat in _chats(role, forms))
        form = next((form for form in shown if form is not None), None)
        if form is not None:
            forms[role] = form


class _Chat:
    """A chat with one message whose content is still to be filled in."""

    def __init__(self, before: list[Message], message: Message, *after: Message) -> None:
        self._before = before
        self._message = message
        self._after = after

    def with_content(self, content: object) -> list[Message]:
        return [*self._before, {**self._message, "content": content}, *self._after]


def _chats(role: str, forms: Mapping[str, ContentForm]) -> Iterator[_Chat]:
    """Yields chats in which a template may show a message of the role, the most usual order first."""
    user: Message = {"role": "user", "content": forms.get("user", STRING_FORM).adapt("Hello")}
    answer: Message = {"role": "assistant", "content": forms.get("assistant", STRING_FORM).adapt("Hi")}
    message: Message = {"role": role}
    match role:
        case "user":
            yield _Chat([], message)
            for content in ("Be brief.", [text_part("Be brief.")]):
                yield _Chat([{"role": "system", "content": content}], message)
        case "system":
            yield _Chat([], message, user)
            yield _Chat([], message)
        case "assistant":
            yield _Chat([user], message, user)
            yield _Chat([user], message)
        case _:
            message |= {"name": "probe", "tool_call_id": _CALL_ID}
            for before in (*([user, call] for call in _tool_calls()), [user, answer], [user]):
                yield _Chat(before, message)
                yield _Chat(before, message, answer, user)


def _tool_calls() -> Iterator[Message]:
    """Yields messages with a tool call; some templates take its arguments as a mapping, others as JSON."""
    for arguments in ({"x": 1}, '{"x": 1}'):
        call = {"id": _CALL_ID, "type": "function", "function": {"name": "probe", "arguments": arguments}}
        yield {"role": "assistant", "content": "", "tool_calls": [call]}


def _shown_form(render: Render, chat: _Chat) -> ContentForm | None:
    """Returns the form in which the template shows the content of this chat; None where it shows it in no form."""
    takes_string = _shows(render(chat.with_content(_FIRST)), _FIRST)
    takes_parts = _shows(render(chat.with_content(_marked_parts(_FIRST, _SECOND))), _FIRST, _SECOND)
    if takes_string or takes_parts or _shows(render(chat.with_content(_marked_parts(_FIRST))), _FIRST):
        return ContentForm(takes_string=takes_string, takes_parts=takes_parts)
    return None


def _marked_parts(*words: str) -> list[dict[str, object]]:
    """Returns text parts with a mark, which appears only if a template writes a whole part as Python or JSON."""
    return [{**text_part(word), "mark": _MARK} for word in words]


def _shows(text: str | None, *words: str) -> bool:
    if text is None or _MARK in text:
        return False
    places = [text.find(word) for word in words]
    return -1 not in places and places == sorted(places)
