"""`ProgressListener`: the interface through which a pull reports its progress; the command line displays it."""

from __future__ import annotations

from typing import Protocol


class ProgressListener(Protocol):
    """Receives the progress of a pull. `advance` may be called from several threads at once."""

    def begin(self, description: str, total_bytes: int | None) -> None:
        """Reports that a phase starts and the one before is over; `total_bytes` is None if the size is not known."""
        ...

    def advance(self, num_bytes: int) -> None:
        """Reports that `num_bytes` more of the phase are done; the number is negative if a download starts over."""
        ...

    def note(self, message: str) -> None:
        """Reports something that a person may want to know, such as a mirror that failed."""
        ...


class SilentProgress:
    """The listener that shows nothing."""

    def begin(self, description: str, total_bytes: int | None) -> None:
        """Does nothing."""

    def advance(self, num_bytes: int) -> None:
        """Does nothing."""

    def note(self, message: str) -> None:
        """Does nothing."""
