"""How much of a prompt is read, as llama-server's clients expect it in a stream."""

from __future__ import annotations

from typing import Any

from paceline.gateway.answer import Choice


def progress_of(choice: Choice) -> dict[str, Any]:
    """Returns the field of a chunk for a choice whose prompt is being read."""
    counts = {
        "total": choice.num_prompt_tokens,
        "cache": choice.num_cached_tokens,
        "processed": choice.num_read_tokens,
    }
    return {"prompt_progress": counts}
