"""Tests the count of right tool calls: the judgement of given answers, the tasks themselves, and the printed text."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

import jsonschema
import pytest
import tool_calls
from tool_calls import Answer, Call, ExpectedCall

NAMES = ("weather", "order")
LISBON = ExpectedCall("weather", {"city": ["Lisbon", "Lisboa"], "unit": ["celsius"]}, ["unit"])
OSLO = ExpectedCall("weather", {"city": ["Oslo"]})
ORDER = ExpectedCall("order", {"items": [[{"sku": "a-1", "count": 2}]], "is_gift": [True], "total": [9.5, 10]})


def weather(city: object, **more: object) -> Call:
    return Call("weather", {"city": city, **more})


def order(**changes: object) -> Call:
    arguments: dict[str, Any] = {"items": [{"sku": "a-1", "count": 2}], "is_gift": True, "total": 10}
    return Call("order", {**arguments, **changes})


def answer(task_id: str = "single-1", calls: list[Call] | None = None, **fields: Any) -> Answer:
    given: dict[str, Any] = {"content": "", "finish_reason": "stop", "is_right": False, "written_as": None}
    return Answer(task_id=task_id, kind=task_id.split("-")[0], calls=calls or [], **{**given, **fields})


@pytest.mark.parametrize("call", [weather("Lisbon"), weather(" LISBOA "), weather("lisbon", unit="Celsius")], ids=repr)
def test_a_call_with_acceptable_values_is_right(call: Call) -> None:
    assert tool_calls.is_right([call], [[LISBON]])


@pytest.mark.parametrize(
    "call",
    [
        Call("clock", {"city": "Lisbon"}),
        Call("Weather", {"city": "Lisbon"}),
        weather("Porto"),
        weather(["Lisbon"]),
        weather("Lisbon", unit="kelvin"),
        weather("Lisbon", unit=None),
        weather("Lisbon", day="today"),
        Call("weather", {"unit": "celsius"}),
        Call("weather", {}),
        Call("weather", None),
    ],
    ids=repr,
)
def test_a_wrong_name_value_or_argument_is_wrong(call: Call) -> None:
    assert not tool_calls.is_right([call], [[LISBON]])


def test_missing_and_extra_calls_are_wrong() -> None:
    lisbon, oslo = weather("Lisbon"), weather("Oslo")
    assert not tool_calls.is_right([], [[LISBON]])
    assert not tool_calls.is_right([lisbon, lisbon], [[LISBON]])
    assert not tool_calls.is_right([lisbon], [[LISBON, OSLO]])
    assert not tool_calls.is_right([lisbon, lisbon], [[LISBON, OSLO]])
    assert not tool_calls.is_right([lisbon, oslo, oslo], [[LISBON, OSLO]])


def test_the_order_of_parallel_calls_does_not_matter() -> None:
    lisbon, oslo = weather("Lisbon"), weather("Oslo")
    assert tool_calls.is_right([lisbon, oslo], [[LISBON, OSLO]])
    assert tool_calls.is_right([oslo, lisbon], [[LISBON, OSLO]])


def test_one_acceptable_set_of_calls_suffices() -> None:
    assert tool_calls.is_right([weather("Oslo")], [[LISBON], [OSLO]])
    assert not tool_calls.is_right([weather("Oslo")], [[LISBON], []])


def test_where_no_call_is_expected_any_call_is_wrong() -> None:
    assert tool_calls.is_right([], [[]])
    assert not tool_calls.is_right([weather("Oslo")], [[]])


@pytest.mark.parametrize(
    ("changes", "is_right"),
    [
        ({}, True),
        ({"total": 10.0}, True),
        ({"items": [{"count": 2.0, "sku": "A-1 "}]}, True),
        ({"total": "10"}, False),
        ({"total": True}, False),
        ({"is_gift": 1}, False),
        ({"is_gift": "true"}, False),
        ({"items": {"sku": "a-1", "count": 2}}, False),
        ({"items": [{"sku": "a-1"}]}, False),
        ({"items": [{"sku": "a-1", "count": 2, "note": ""}]}, False),
        ({"items": [{"sku": "a-1", "count": 2}] * 2}, False),
        ({"items": []}, False),
    ],
    ids=repr,
)
def test_nested_values_are_compared_part_by_part(changes: dict[str, object], is_right: bool) -> None:
    assert tool_calls.is_right([order(**changes)], [[ORDER]]) is is_right


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ('```json\n{"name": "weather", "arguments": {}}\n```', "json block"),
        ('```json\n{\n  "name": "weather",\n  "arguments": {"city": "Oslo"}\n}', "json block"),
        ('Sure:\n{"name": "weather", "arguments": {}}', "bare JSON"),
        ('<tool_call>{"name": "weather", "arguments": {}}</tool_call>', "<tool_call>"),
        ('{"a": {"name": "order", "arguments": {}}}', "bare JSON"),
        ('{"name": "weather"} and {"name": "clock", "arguments": {}}', None),
        ('{"name": ["weather"], "arguments": {}}', None),
        ('{"name": "weather", "arguments": {', None),
        ("It rains in {Oslo}.", None),
    ],
)
def test_a_call_in_the_content_is_found(content: str, form: str | None) -> None:
    assert tool_calls.call_written_as(content, NAMES) == form


@pytest.mark.parametrize(
    ("text", "arguments"), [('{"a": [1]}', {"a": [1]}), ("[1]", None), ("", None), ('{"a": ', None)]
)
def test_arguments_are_parsed_if_they_are_an_object(text: str, arguments: object) -> None:
    assert tool_calls.parse_call({"function": {"name": "f", "arguments": text}}) == Call("f", arguments)  # type: ignore[arg-type]


def test_there_are_ten_tasks_of_each_kind_and_no_two_ask_the_same() -> None:
    tasks = tool_calls.read_tool_tasks()
    assert Counter(task.kind for task in tasks) == dict.fromkeys(tool_calls.KINDS, 10)
    assert len({task.id for task in tasks}) == len({task.messages[-1]["content"] for task in tasks}) == len(tasks)


@pytest.mark.parametrize("task", tool_calls.read_tool_tasks(), ids=lambda task: task.id)
def test_each_task_expects_calls_that_its_tools_allow(task: tool_calls.ToolTask) -> None:
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in task.tools}
    assert 3 <= len(task.tools) == len(schemas) <= 6
    sizes = {"single": (1,), "parallel": (2, 3), "nested": (1,), "none": (0,)}[task.kind]
    for one_set in task.expected:
        assert len(one_set) in sizes
        for call in one_set:
            assert set(schemas[call.name]["required"]) == call.arguments.keys() - set(call.optional)
            for name, values in call.arguments.items():
                for value in values:
                    jsonschema.validate(value, schemas[call.name]["properties"][name])


def test_the_table_counts_right_answers_by_kind_and_calls_in_the_content() -> None:
    given = [
        answer("single-1", [weather("Oslo")], is_right=True),
        answer("single-2", content="...", written_as="json block"),
        answer("none-1", is_right=True),
    ]
    last = tool_calls.render({"paceline": given}).splitlines()[-1]
    assert last == "| paceline | 1 of 2 | 0 of 0 | 0 of 0 | 1 of 1 | 2 of 3 | 1 as json block |"


def test_only_tasks_with_other_calls_are_shown() -> None:
    ours = [answer("single-1", [weather("Oslo")], is_right=True), answer("none-1", is_right=True, content="Hi")]
    theirs = [answer("single-1", content="Rain", finish_reason="length"), answer("none-1", is_right=True, content="Ho")]
    assert tool_calls.render_differences({"paceline": ours, "llama.cpp": theirs}).split("\n") == [
        "",
        "single-1",
        '  paceline: right: weather({"city": "Oslo"})',
        "  llama.cpp: wrong: content 'Rain'; finish_reason length",
    ]


def test_an_unknown_server_is_refused() -> None:
    assert tool_calls.server_names("llama.cpp,paceline") == ["llama.cpp", "paceline"]
    with pytest.raises(argparse.ArgumentTypeError, match="there is no server ollama; name paceline or llama"):
        tool_calls.server_names("ollama")
