"""Tests what a template sees of messages: absent keys, and the names of reasoning."""

from __future__ import annotations

import pytest

from paceline.core.errors import InvalidRequestError
from paceline.tokenizer.chat_template import ChatTemplate

SHOWS_ALL_KEYS = "{% for message in messages %}{{ message | tojson }}\n{% endfor %}"


def _render(source: str, *messages: object) -> str:
    return ChatTemplate(source, {}).render(messages)  # type: ignore[arg-type]


def test_keys_without_a_value_are_absent() -> None:
    answer = {"role": "assistant", "content": "Hi", "tool_calls": None, "refusal": None, "name": "n"}
    call = {"id": None, "function": {"name": "f", "arguments": {"x": None}}}
    calls = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert _render(SHOWS_ALL_KEYS, answer, calls) == (
        '{"role": "assistant", "content": "Hi", "name": "n"}\n'
        '{"role": "assistant", "tool_calls": [{"id": null, "function": {"name": "f", "arguments": {"x": null}}}], '
        '"content": ""}\n'
    )


def test_the_words_none_and_null_are_not_written_for_absent_keys() -> None:
    source = (
        "{{ messages[0].content }}|{{ messages[0].name | default('nobody') }}|{{ messages[0].tool_calls | length }}"
    )
    assert _render(source, {"role": "user", "content": None, "name": None, "tool_calls": None}) == "|nobody|0"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning_content": "a"}, "a|a|"),
        ({"thinking": "b"}, "b|b|"),
        ({"reasoning": "c"}, "c|c|c"),
        ({"reasoning_content": "a", "thinking": "b", "reasoning": "c"}, "a|b|c"),
        ({"thinking": "b", "reasoning": "c"}, "b|b|c"),
        ({"reasoning_content": None, "thinking": None, "reasoning": "c"}, "c|c|c"),
        ({"reasoning_content": "", "reasoning": "c"}, "||c"),
        ({"reasoning_content": None}, "||"),
        ({}, "||"),
    ],
)
def test_reasoning_is_found_by_each_of_its_names(fields: dict[str, object], expected: str) -> None:
    source = "{{ messages[0].reasoning_content }}|{{ messages[0].thinking }}|{{ messages[0].reasoning }}"
    assert _render(source, {"role": "assistant", "content": "x", **fields}) == expected


def test_a_template_that_shows_reasoning_of_answers() -> None:
    source = (
        "{% for message in messages %}[{{ message.role }}]"
        "{% if message.reasoning_content is defined %}({{ message.reasoning_content | trim }}){% endif %}"
        "{{ message.content }}{% endfor %}"
    )
    messages = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4", "reasoning": " easy "}]
    assert _render(source, *messages) == "[user]2+2?[assistant](easy)4"


def test_the_callers_messages_stay_as_they_are() -> None:
    message = {"role": "assistant", "content": None, "thinking": "b"}
    _render(SHOWS_ALL_KEYS, message)
    assert message == {"role": "assistant", "content": None, "thinking": "b"}


def test_a_message_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="message 1 is a str; pass a mapping such as a dict") as caught:
        _render(SHOWS_ALL_KEYS, {"role": "user", "content": "Hi"}, "Hi")
    assert caught.value.param == "messages"
