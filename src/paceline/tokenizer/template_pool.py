"""`TemplatePool`: the processes that render one chat template, started on demand and kept.

`template_process` defines one such process. `chat_template` decides what they are given and what their failures mean.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable

from paceline.tokenizer.template_process import TemplateProcess

MAX_TEMPLATE_PROCESSES = 4
"""How many renderings of one template can run at once. A kept process takes 20 MiB; all of them share half of that."""


class TemplatePool:
    """Renders in up to four processes at once; safe to use from several threads, and in a fork of its process.

    The processes end with this object, and when the interpreter exits.
    """

    def __init__(self, source: str, timeout_s: float) -> None:
        self._source = source
        self._timeout_s = timeout_s
        self._processes: set[TemplateProcess] = set()
        self._idle: list[TemplateProcess] = []
        self._lock = threading.Lock()
        self._permits = threading.Semaphore(MAX_TEMPLATE_PROCESSES)
        weakref.finalize(self, _close_all, self._processes)
        os.register_at_fork(after_in_child=_forgetting(weakref.ref(self)))

    def start(self) -> None:
        """Starts a process where none is idle. Raises what `TemplateProcess` raises."""
        with self._permits:
            self._give_back(self._take())

    def render(self, variables: bytes, timeout_s: float) -> str:
        """Returns the template's text for a JSON object of variables; waits while four renderings are under way.

        Raises what `TemplateProcess` and its `call` raise. A process that took too long, ended, or has grown large is
        replaced when a later rendering needs one.
        """
        with self._permits:
            process = self._take()
            try:
                return process.call(variables, timeout_s)
            finally:
                self._give_back(process)

    def close(self) -> None:
        """Ends all processes, which fails renderings that are under way; a later rendering starts a process again."""
        with self._lock:
            closed = list(self._processes)
            self._processes.clear()
            self._idle.clear()
        _close_all(closed)

    def _take(self) -> TemplateProcess:
        """Returns an idle process or a new one. There are never more than permits: each busy process holds one."""
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_alive:
                    return process
                self._processes.discard(process)
                process.close()
        process = TemplateProcess(self._source, self._timeout_s)
        with self._lock:
            self._processes.add(process)
        return process

    def _give_back(self, process: TemplateProcess) -> None:
        is_reusable = process.is_reusable
        with self._lock:
            if is_reusable and process in self._processes:
                self._idle.append(process)
                return
            self._processes.discard(process)
        process.close()

    def _forget(self) -> None:
        """Drops all processes in a fork of this process. If both processes used one renderer, they would read each
        other's texts."""
        for process in self._processes:
            process.forget()
        self._processes.clear()
        self._idle.clear()
        self._lock = threading.Lock()
        self._permits = threading.Semaphore(MAX_TEMPLATE_PROCESSES)


def _close_all(processes: Iterable[TemplateProcess]) -> None:
    for process in list(processes):
        process.close()


def _forgetting(pool: weakref.ref[TemplatePool]) -> Callable[[], None]:
    """Returns the function that is called in a fork; it does not keep the pool alive."""

    def forget() -> None:
        if (existing := pool()) is not None:
            existing._forget()

    return forget
