"""The parts of OpenAI's responses beside the choices: the common first fields, and usage."""

from __future__ import annotations

from typing import Any

from paceline.gateway.answer import Answer, Choice
from paceline.gateway.speculation_summary import speculation_of


def envelope_of(answer: Answer, kind: str) -> dict[str, Any]:
    """Returns the fields with which every response object of this answer begins."""
    return {"id": answer.call_id, "object": kind, "created": answer.created_s, "model": answer.model_name}


def totals_of(answer: Answer) -> dict[str, Any]:
    """Returns the usage and the speculation of all choices together, once they are complete."""
    return {"usage": usage_of(answer.choices), "speculation": speculation_of(answer.choices)}


def usage_of(choices: list[Choice]) -> dict[str, Any]:
    """Returns OpenAI's usage; a prompt counts once, however many choices it has."""
    prompts = [choice for choice in choices if choice.is_first]
    num_prompt_tokens = sum(choice.num_prompt_tokens for choice in prompts)
    num_completion_tokens = sum(choice.num_tokens for choice in choices)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_completion_tokens,
        "total_tokens": num_prompt_tokens + num_completion_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(choice.num_cached_tokens for choice in prompts)},
        "completion_tokens_details": {"reasoning_tokens": sum(choice.num_reasoning_tokens for choice in choices)},
    }


def usage_so_far(choice: Choice, num_tokens: int) -> dict[str, int]:
    """Returns the usage of one choice after its first `num_tokens` tokens."""
    return {
        "prompt_tokens": choice.num_prompt_tokens,
        "completion_tokens": num_tokens,
        "total_tokens": choice.num_prompt_tokens + num_tokens,
    }


class ChunkUsage:
    """Makes the field `usage` of a stream's chunks, as the request's `stream_options` ask for it."""

    def __init__(self, *, has_usage_chunk: bool, has_usage_in_chunks: bool) -> None:
        self._empty: dict[str, Any] = {"usage": None} if has_usage_chunk else {}
        self._is_continuous = has_usage_in_chunks

    def field(self, choice: Choice, num_tokens: int) -> dict[str, Any]:
        """Returns the field for a chunk of this choice; it is empty if the request does not ask for usage."""
        return {"usage": usage_so_far(choice, num_tokens)} if self._is_continuous else self._empty
