"""`ProgressListener`: what a pull tells whoever shows it; a display is the command line's matter."""

from __future__ import annotations

from typing import Protocol


class ProgressListener(Protocol):
    """Told how a pull goes. `advance` may be called from several threads at once."""

    def begin(self, description: str, total_bytes: int | None) -> None:
        """A phase starts (its predecessor is over); `total_bytes` None means that its size is not known."""
        ...

    def advance(self, num_bytes: int) -> None:
        """`num_bytes` more of the phase are done; negative where a download had to start over."""
        ...

    def note(self, message: str) -> None:
        """Something a person may want to know, such as a mirror that was passed over."""
        ...


class SilentProgress:
    """The listener that shows nothing."""

    def begin(self, description: str, total_bytes: int | None) -> None:
        """Ignored."""

    def advance(self, num_bytes: int) -> None:
        """Ignored."""

    def note(self, message: str) -> None:
        """Ignored."""
