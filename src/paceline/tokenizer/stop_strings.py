"""`StopStringMatcher`: finds stop strings in a text that arrives in pieces, whatever the borders of the pieces."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class StopMatch:
    """`text` may be shown; `matched` is the stop string that ended the text, or None."""

    text: str
    matched: str | None = None


class StopStringMatcher:
    """Decides by the stop string that is complete first; of those complete at the same character, the longest.

    Text is held back only where it could be the beginning of a stop string. After a match nothing may be fed.
    """

    def __init__(self, stop: tuple[str, ...], include_stop: bool) -> None:
        if "" in stop:
            raise InvalidRequestError("a stop string is empty; leave it out", param="stop")
        self._stop = stop
        self._include_stop = include_stop
        self._held = ""

    def feed(self, text: str) -> StopMatch:
        """Takes the next piece of text, of any length."""
        if not self._stop:
            return StopMatch(text)
        pending = self._held + text
        matched = self._first_complete(pending)
        if matched is not None:
            self._held = ""
            start = pending.find(matched)
            return StopMatch(pending[: start + len(matched) if self._include_stop else start], matched)
        safe_length = len(pending) - self._num_held(pending)
        self._held = pending[safe_length:]
        return StopMatch(pending[:safe_length])

    def flush(self) -> str:
        """The text held back, which no stop string can complete any more."""
        held, self._held = self._held, ""
        return held

    def _first_complete(self, pending: str) -> str | None:
        ends = [(pending.find(stop) + len(stop), -len(stop), stop) for stop in self._stop if stop in pending]
        return min(ends)[2] if ends else None

    def _num_held(self, pending: str) -> int:
        """Length of the longest end of `pending` that is a beginning of a stop string."""
        lengths = range(max(map(len, self._stop), default=1) - 1, 0, -1)
        ends = (pending[-length:] for length in lengths if length <= len(pending))
        return next((len(end) for end in ends if any(stop.startswith(end) for stop in self._stop)), 0)
