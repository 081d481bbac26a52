"""`LocalRequests`: makes the requests of callers in this process, for `Engine.generate` and `Engine.stream`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import count
from numbers import Integral

from paceline.core import Constraint, Request, SamplingParams, SpeculationParams
from paceline.core.errors import InvalidRequestError
from paceline.tokenizer import Tokenizer


class LocalRequests:
    """Makes requests with ids that are not in `used_ids`, which the engine keeps up to date."""

    def __init__(self, tokenizer: Tokenizer, used_ids: Collection[str]) -> None:
        self._tokenizer = tokenizer
        self._used_ids = used_ids
        self._ids = (f"local-{number}" for number in count())

    def make(
        self,
        prompt: str | list[int],
        sampling: SamplingParams | None,
        speculation: SpeculationParams | None,
        constraint: Constraint | None,
    ) -> Request:
        """Returns a request; a prompt is text or token ids. Raises InvalidRequestError for any other prompt."""
        token_ids = self._tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else _token_ids(prompt)
        return Request(
            request_id=next(name for name in self._ids if name not in self._used_ids),
            prompt_token_ids=token_ids,
            sampling=sampling or SamplingParams(),
            speculation=speculation or SpeculationParams(),
            constraint=constraint,
        )


def _token_ids(prompt: object) -> list[int]:
    """Returns the token ids of a prompt that is not a text; raises InvalidRequestError unless all are integers."""
    if not isinstance(prompt, Iterable) or isinstance(prompt, bytes):
        raise InvalidRequestError(f"a prompt is {prompt!r}; it must be a text or a list of token ids", "prompt")
    token_ids = list(prompt)
    for token_id in token_ids:
        if not isinstance(token_id, Integral):
            raise InvalidRequestError(f"a prompt contains {token_id!r}; token ids must be integers", "prompt")
    return token_ids
