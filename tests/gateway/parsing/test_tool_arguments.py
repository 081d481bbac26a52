"""Which arguments of a tool call are complete: those that every client can read as a JSON object."""

from __future__ import annotations

import pytest

from paceline.gateway.parsing.message import ToolCall


@pytest.mark.parametrize(
    "arguments",
    ["", "{", "5", "null", "[]", '"a"', '{"a": NaN}', '{"a": 1e999}', '{"a": -Infinity}', '{"a":' * 100_000],
    ids=lambda text: text[:20],
)
def test_other_texts_are_no_arguments(arguments: str) -> None:
    call = ToolCall("f", arguments)
    assert call.parsed_arguments is None
    assert not call.is_complete


def test_an_object_is() -> None:
    call = ToolCall("f", '{"a": [1, 2.5, null, "é"]}')
    assert call.parsed_arguments == {"a": [1, 2.5, None, "é"]}
    assert call.is_complete
