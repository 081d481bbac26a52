"""The machine's limits: each available instruction set gives positive numbers, and any other is refused."""

from __future__ import annotations

import pytest

from paceline.backends.native.model import instruction_sets
from paceline.core.errors import ConfigError
from paceline.machine.limits import MachineProbe

SMALL_BUFFER_BYTES = 2**22


@pytest.mark.parametrize("instruction_set", instruction_sets())
@pytest.mark.parametrize("num_threads", [1, 2])
def test_a_probe_measures(instruction_set: str, num_threads: int) -> None:
    limits = MachineProbe(num_threads, instruction_set, buffer_bytes=SMALL_BUFFER_BYTES).measure()
    assert limits.read_bytes_per_s > 0
    assert limits.multiply_adds_per_s > 0


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot run on this machine"):
        MachineProbe(1, "avx9", buffer_bytes=SMALL_BUFFER_BYTES)


def test_a_buffer_below_a_mebibyte_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1 MiB"):
        MachineProbe(1, "scalar", buffer_bytes=1000)
