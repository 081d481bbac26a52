"""`PullProgress`: shows the progress of a pull on stderr: a bar on a terminal, elsewhere a line for each phase."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import TransferSpeedColumn as SpeedColumn


class PullProgress:
    """A `ProgressListener` and context manager. The bar disappears when the context ends; the notes stay."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            SpeedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def begin(self, description: str, total_bytes: int | None) -> None:
        """Starts a new bar; if there is no terminal, prints the description as a line."""
        if not self._console.is_terminal:
            self.note(description)
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(description, total=total_bytes)

    def advance(self, num_bytes: int) -> None:
        """Moves the bar on by this many bytes."""
        if self._task is not None:
            self._progress.advance(self._task, num_bytes)

    def note(self, message: str) -> None:
        """Prints a line above the bar."""
        self._console.print(message, soft_wrap=True)
