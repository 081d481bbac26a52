"""`InFlightRequest`: one request that an engine holds. `OutputStream`: the outputs of one call's requests.

A request in flight keeps what a replay would need: the request, and the tokens that its client already has. The
`EngineClient` fills both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from paceline.core import Output, Request
from paceline.core.errors import PacelineError
from paceline.gateway.answer import OutputSource


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """One request that the engine of this epoch holds. `heard_s` is the time of its latest tokens, or of its arrival
    if it has none yet; times are those of the monotonic clock."""

    request: Request
    epoch: int
    arrival_s: float
    heard_s: float
    stream: OutputStream
    token_ids: list[int] = field(default_factory=list)

    def accept(self, output: Output) -> bool:
        """Keeps the output's tokens and returns True, or returns False if the output is to be ignored.

        An output is ignored if it comes from an engine of another epoch, or if all of its tokens are known already.
        Raises PacelineError if tokens before this output are missing, or if only some of its tokens are known.
        """
        num_known = len(self.request.resumed_token_ids) + len(self.token_ids)
        end = output.first_token_index + len(output.token_ids)
        if output.epoch != self.epoch or (output.token_ids and end <= num_known):
            return False
        if output.token_ids and output.first_token_index != num_known:
            raise PacelineError(
                f"the engine sent tokens from index {output.first_token_index} on, but index {num_known} was expected: "
                "send the request again"
            )
        self.token_ids += output.token_ids
        return True


class OutputStream(OutputSource):
    """The outputs of one call's requests, as `EngineClient` delivers them."""

    def __init__(self, requests: Sequence[Request], abandon: Callable[[Request], None]) -> None:
        self._choices = {request.request_id: index for index, request in enumerate(requests)}
        self._unfinished = {request.request_id: request for request in requests}
        self._abandon = abandon
        self._news: asyncio.Queue[Output | Exception] = asyncio.Queue()

    def put(self, output: Output) -> None:
        """Adds an output; the last output of a choice has a finish reason."""
        self._news.put_nowait(output)

    def fail(self, error: Exception) -> None:
        """Ends the iteration with this error, after the outputs that were added before."""
        self._news.put_nowait(error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, Output]:
        if not self._unfinished:
            raise StopAsyncIteration
        news = await self._news.get()
        if isinstance(news, Exception):
            raise news
        if news.finish_reason is not None:
            del self._unfinished[news.request_id]
        return self._choices[news.request_id], news

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for request in self._unfinished.values():
            self._abandon(request)
        self._unfinished.clear()
