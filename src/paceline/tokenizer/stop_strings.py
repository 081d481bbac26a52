"""`StopStringMatcher`: finds stop strings in a text that arrives in pieces, even across the borders of pieces."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.core.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class StopMatch:
    """`text` may be shown; `matched` is the stop string that ended the text, or None."""

    text: str
    matched: str | None = None


class StopStringMatcher:
    """Finds the stop string that is complete first, and the longest if several are complete at the same character.

    Text is held back only while it could be the beginning of a stop string. No text may be fed after a match.
    """

    def __init__(self, stop: tuple[str, ...], include_stop: bool) -> None:
        if "" in stop:
            raise InvalidRequestError("a stop string is empty; leave it out", param="stop")
        self._stop = stop
        self._longest = max(map(len, stop), default=0)
        self._stop_by_first: dict[str, list[str]] = {}
        for one in stop:
            self._stop_by_first.setdefault(one[0], []).append(one)
        self._include_stop = include_stop
        self._held = ""

    def feed(self, text: str) -> StopMatch:
        """Takes the next piece of text, of any length, and returns the text that may be shown."""
        if not self._stop:
            return StopMatch(text)
        pending = self._held + text
        found = self._first_complete(pending)
        if found is not None:
            self._held = ""
            start, matched = found
            return StopMatch(pending[: start + len(matched) if self._include_stop else start], matched)
        safe_length = len(pending) - self._num_held(pending)
        self._held = pending[safe_length:]
        return StopMatch(pending[:safe_length])

    def flush(self) -> str:
        """Returns the text that was held back. Call this when no more text follows."""
        held, self._held = self._held, ""
        return held

    def _first_complete(self, pending: str) -> tuple[int, str] | None:
        """Returns where the first complete stop string begins, and that string; None where none is complete.

        The text that was held back contains no complete stop string, so only ends in the new text are looked for.
        """
        num_held = len(self._held)
        starts = ((pending.find(stop, max(0, num_held - len(stop) + 1)), stop) for stop in self._stop)
        found = [(start + len(stop), start, stop) for start, stop in starts if start >= 0]
        return min(found)[1:] if found else None

    def _num_held(self, pending: str) -> int:
        """Returns the length of the longest end of `pending` that is a beginning of a stop string.

        Text that cannot begin a stop string is never held back again, so the time for a whole text is proportional to
        its length.
        """
        for start in range(max(0, len(pending) - self._longest + 1), len(pending)):
            end = pending[start:]
            if any(stop.startswith(end) for stop in self._stop_by_first.get(end[0], ())):
                return len(end)
        return 0
