"""Tests the forms of tool calls: what is refused, which ids are made, and what becomes of turns that are split."""

from __future__ import annotations

import pytest

from paceline.core.errors import InvalidRequestError
from paceline.tokenizer.chat_template import ChatTemplate
from paceline.tokenizer.tool_messages import ToolForm, complete_tool, tool_messages
from tests.tokenizer.tool_templates import call, result, turn

TEXTS = ToolForm(takes_mappings=False)
SHORT_IDS = ToolForm(takes_any_id=False)
SINGLE_CALLS = ToolForm(takes_several_calls=False)
PATH = "messages[1].tool_calls[1].function"


@pytest.mark.parametrize(
    ("second", "path", "reason"),
    [
        (call("{"), f"{PATH}.arguments", "is not valid JSON (Expecting property name"),
        (call('{"a": 1'), f"{PATH}.arguments", "is not valid JSON"),
        (call("[" * 99999), f"{PATH}.arguments", "is not valid JSON"),
        (call("[1]"), f"{PATH}.arguments", "is a list; send a JSON object"),
        (call(3), f"{PATH}.arguments", "is a int; send a JSON object"),
        (call("null"), f"{PATH}.arguments", "is missing; send a JSON object"),
        ({"id": "a"}, PATH, "is missing; send an object with a name and arguments"),
        ({"function": "f"}, PATH, "is a str; send an object with a name and arguments"),
        ({"function": {"arguments": "{}"}}, f"{PATH}.name", "is missing; send a text"),
        ({**call("{}"), "id": 3}, "messages[1].tool_calls[1].id", "is a int; send a text"),
    ],
)
@pytest.mark.parametrize("form", [ToolForm(), TEXTS])
def test_a_malformed_call_is_named(second: dict[str, object], path: str, reason: str, form: ToolForm) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tool_messages([{"role": "user", "content": "Hi"}, turn(call("{}"), second)], form)
    assert caught.value.param == path
    assert str(caught.value).startswith(f"{path} {reason}")


@pytest.mark.parametrize(
    ("message", "path"),
    [
        ({"role": "assistant", "tool_calls": {"a": 1}}, "messages[0].tool_calls"),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{"}},
            "messages[0].function_call.arguments",
        ),
        ({"role": "assistant", "function_call": "f"}, "messages[0].function_call"),
        ({"role": "tool", "tool_call_id": ["a"], "content": "x"}, "messages[0].tool_call_id"),
    ],
)
def test_a_malformed_message_is_named(message: dict[str, object], path: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        tool_messages([message], ToolForm())
    assert caught.value.param == path


def test_an_error_reaches_the_caller_of_a_template() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        ChatTemplate("", {}).render([turn(call("{]"))])
    assert caught.value.param == "messages[0].tool_calls[0].function.arguments"


@pytest.mark.parametrize("given", ["", " \n", None, {}, "{}"])
def test_no_arguments_are_an_empty_mapping(given: object) -> None:
    (message,) = tool_messages([turn(call(given))], ToolForm())
    assert message == turn(call({}))
    (message,) = tool_messages([turn(call(given))], TEXTS)
    assert message == turn(call("{}"))


def test_a_text_of_arguments_keeps_its_spelling() -> None:
    (message,) = tool_messages([turn(call('{"a":1,  "b":"\\u00e9"}'))], TEXTS)
    assert message == turn(call('{"a":1,  "b":"\\u00e9"}'))


def test_arguments_that_are_no_json_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="has a value that JSON lacks"):
        tool_messages([turn(call({"a": object()}))], TEXTS)


def test_short_ids_are_stable_and_distinct() -> None:
    ids = ["call_1", "call_2", "abcDEF123", "abcDEF12-", "", "ünfachneu"]
    chat = [turn(*(call("{}", one_id) for one_id in ids)), *(result(call_id=one_id) for one_id in ids if one_id)]
    first, *results = tool_messages(chat, SHORT_IDS)
    made = [one["id"] for one in first["tool_calls"]]  # type: ignore[attr-defined]
    assert [message["tool_call_id"] for message in results] == [one for one, old in zip(made, ids, strict=True) if old]
    assert made[2] == "abcDEF123"
    assert len(set(made)) == len(ids)
    assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in made)
    assert tool_messages(chat[:1], SHORT_IDS) == [first]


def test_a_call_without_an_id_gets_a_short_one_with_its_result() -> None:
    chat = [turn({"function": {"name": "f", "arguments": {}}}), {"role": "tool", "name": "f", "content": "x"}]
    asked, answer = tool_messages(chat, SHORT_IDS)
    assert asked["tool_calls"][0]["id"] == answer["tool_call_id"]  # type: ignore[index]
    assert tool_messages(chat, ToolForm()) == chat


def test_a_split_turn_loses_nothing() -> None:
    first, second, third = (call({}, name, name) for name in "abc")
    stray = result("?", "z")
    chat = [
        turn(first, second, third, content="x", reasoning_content="y"),
        result("2", "b"),
        stray,
        result("1", "a"),
        result("1+", "a"),
        {"role": "user", "content": "Hi"},
    ]
    assert tool_messages(chat, SINGLE_CALLS) == [
        turn(first, content="x", reasoning_content="y"),
        result("1", "a", name="a"),
        turn(second),
        result("2", "b", name="b"),
        turn(third),
        stray,
        result("1+", "a", name="a"),
        {"role": "user", "content": "Hi"},
    ]


def test_results_without_ids_follow_their_calls_in_order() -> None:
    calls = [{"function": {"name": name, "arguments": {}}} for name in "ab"]
    results = [{"role": "tool", "content": text} for text in "12"]
    split = tool_messages([turn(*calls), *results], SINGLE_CALLS)
    assert split == [turn(calls[0]), results[0], turn(calls[1]), results[1]]


def test_the_older_form_becomes_a_call_with_its_result() -> None:
    chat = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}, "tool_calls": None},
        {"role": "function", "name": "f", "content": "x"},
        {"role": "function", "name": "g", "content": "y"},
    ]
    asked, answer, stray = tool_messages(chat, ToolForm())
    assert asked == {**turn(call({}, "call_0", "f")), "content": None}
    assert answer == result("x", "call_0", name="f")
    assert stray == {"role": "tool", "name": "g", "content": "y"}


def test_the_newer_form_of_calls_wins() -> None:
    (message,) = tool_messages([turn(call({}), function_call={"name": "f", "arguments": "{"})], ToolForm())
    assert message == turn(call({}))


def test_the_callers_messages_stay_as_they_are() -> None:
    chat = [turn(call('{"a": 1}'), call("", "b")), result()]
    tool_messages(chat, ToolForm(takes_any_id=False, takes_several_calls=False))
    assert chat == [turn(call('{"a": 1}'), call("", "b")), result()]


def test_what_is_no_function_stays_as_it_is() -> None:
    assert complete_tool({"name": "f"}) == {"name": "f"}
    assert complete_tool({"type": "web_search", "function": None}) == {"type": "web_search", "function": None}
