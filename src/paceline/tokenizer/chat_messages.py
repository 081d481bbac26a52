"""What a message becomes before a chat template reads it.

The rules are those of Hugging Face `transformers`, for which templates are written.
"""

from __future__ import annotations

from collections.abc import Mapping

_REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")


def template_message(message: Mapping[str, object]) -> dict[str, object]:
    """The message without keys whose value is None, and with its reasoning under the two names that templates read.

    The first of `reasoning_content`, `thinking` and `reasoning` that is there becomes `reasoning_content`, and also
    `thinking` where that is absent.
    """
    given = {name: value for name, value in message.items() if value is not None}
    reasoning = next((given[name] for name in _REASONING_NAMES if name in given), None)
    return given if reasoning is None else {"thinking": reasoning, **given, "reasoning_content": reasoning}
