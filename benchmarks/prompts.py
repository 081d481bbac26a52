"""Token ids for measurements, from the text of the benchmark tasks, so that every engine reads the same."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.operations.workload import Task
from paceline.tokenizer import Tokenizer


def text_passages(tokenizer: Tokenizer, tasks: Sequence[Task], length: int, count: int) -> list[list[int]]:
    """Returns `count` passages of `length` tokens with different beginnings. Repeats the text if it is too short."""
    text = "\n\n".join(message["content"] for task in tasks for message in task.messages)
    token_ids = tokenizer.encode(text, parse_special=False)
    stride = max(1, len(token_ids) // count)
    repeated = token_ids * (2 + length // len(token_ids))
    return [repeated[start : start + length] for start in range(0, stride * count, stride)]
