"""Tests how the format of calls is recognised from a chat template, and what a tool choice allows."""

from __future__ import annotations

import pytest

from paceline.gateway.parsing.formats.registry import detect_format, find_format, format_names
from paceline.gateway.parsing.tools import ToolChoice
from tests.gateway.parsing.parsed import TIME, TOOLS


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (r"""{{- "<tool_call>\n{\"name\": <function-name>, \"arguments\": <args>}\n</tool_call>" }}""", "hermes"),
        (r"""{{- '<tool_call>\n<function=' + name + '>\n<parameter=' + key + '>\n' }}""", "qwen3-coder"),
        (r"""{{- '<|start_header_id|>' }}{{- '{"name": "' + name + '", ' }}{{- '"parameters": ' }}""", "llama3"),
        (r"""{{- "<|python_tag|>" + tool_call.name + ".call(" }}""", "llama3"),
        (r"""{{- "[TOOL_CALLS]" + name + "[ARGS]" + arguments }}""", "mistral"),
        (r"""{{- '<tool_call>' + name + '\n<arg_key>' + key + '</arg_key>' + arguments }}""", None),
        (r"""{{- '<|start_header_id|><|python_tag|><function=' + name + '>' }}""", None),
        (r"""{% for message in messages %}{{ message.content }}{% endfor %}""", None),
    ],
)
def test_detects_the_format_of_a_template(template: str, expected: str | None) -> None:
    assert detect_format(template) == expected


def test_formats_are_found_by_name() -> None:
    assert sorted(format_names()) == ["hermes", "llama3", "mistral", "qwen3-coder"]
    assert [found.name for name in format_names() if (found := find_format(name))] == format_names()
    assert find_format("other") is None


def test_a_tool_choice_allows_all_one_or_no_tools() -> None:
    assert ToolChoice().allowed(TOOLS) == list(TOOLS)
    assert ToolChoice("required", frozenset({"get"})).allowed(TOOLS) == [TIME]
    assert ToolChoice("none").allowed(TOOLS) == []
    assert [ToolChoice(mode).is_required for mode in ("none", "auto", "required")] == [False, False, True]
