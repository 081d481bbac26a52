"""The machine's top speed: memory reads and int8 multiply-adds per second, measured by the native core.

Benchmarks compare their results with it. The speed of a shared machine drifts, so measure it right before or after the
run that is compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline import _native
from paceline.core.errors import ConfigError

BUFFER_BYTES = 2**30  # several times the largest caches
DOT_DURATION_S = 0.01


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The highest speeds of the machine, with all threads together."""

    read_bytes_per_s: float
    multiply_adds_per_s: float


class MachineProbe:
    """Measures the limits as often as asked, with one buffer. `instruction_set` selects the dot product that is timed.

    Raises ConfigError for an instruction set that the machine does not have.
    """

    def __init__(self, num_threads: int, instruction_set: str, *, buffer_bytes: int = BUFFER_BYTES) -> None:
        try:
            self._native = _native.MachineProbe(num_threads, instruction_set, buffer_bytes)
        except ValueError as error:
            raise ConfigError(str(error)) from error

    def measure(self) -> MachineLimits:
        """Returns the limits as they are now. Blocks for about 0.1 s and keeps all threads busy."""
        return MachineLimits(self._native.read_bytes_per_s(), self._native.multiply_adds_per_s(DOT_DURATION_S))
