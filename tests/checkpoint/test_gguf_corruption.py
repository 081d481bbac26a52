"""Fuzzing of the GGUF reader: for any bytes it opens the file or raises CheckpointError, and does nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.checkpoint import GgufFile, dequantize
from paceline.core.errors import CheckpointError
from tests.checkpoint.small_gguf import write_small_gguf

FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def sound_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_small_gguf(tmp_path_factory.mktemp("sound") / "small.gguf").read_bytes()


def opens_or_is_refused(path: Path, content: bytes) -> bool:
    """Returns whether the content opened as a model; then reads all of the model's bytes."""
    path.write_bytes(content)
    try:
        model = GgufFile.open(path)
    except CheckpointError:
        return False
    with model:
        for tensor in model.tensors.values():
            num_blocks = tensor.data.nbytes // tensor.type.type_size_bytes
            num_weights = 1
            for size in tensor.shape:
                num_weights *= size
            assert num_blocks * tensor.type.block_size == num_weights
            assert int(tensor.data.sum()) >= 0
    return True


@FUZZ
@given(data=st.data())
def test_any_truncation_is_refused(tmp_path: Path, sound_bytes: bytes, data: st.DataObject):
    length = data.draw(st.integers(0, len(sound_bytes) - 1))
    assert not opens_or_is_refused(tmp_path / "model.gguf", sound_bytes[:length]) or has_only_padding(
        sound_bytes[length:]
    )


def header_size(sound_bytes: bytes) -> int:
    """Returns the number of bytes before the data section, which follows the last tensor's description.

    After the last name come the number of dimensions, one size, the type and the offset: 24 bytes.
    """
    return sound_bytes.index(b"output_norm.weight") + len("output_norm.weight") + 24


def has_only_padding(content: bytes) -> bool:
    return len(content) < 32 and not any(content)


@FUZZ
@given(flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=8))
def test_bit_flips_never_crash(tmp_path: Path, sound_bytes: bytes, flips: list[tuple[float, int]]):
    content = bytearray(sound_bytes)
    for where, bit in flips:
        content[int(where * len(content))] ^= 1 << bit
    is_header_intact = content[: header_size(sound_bytes)] == sound_bytes[: header_size(sound_bytes)]
    opened = opens_or_is_refused(tmp_path / "model.gguf", bytes(content))
    assert opened or not is_header_intact


@FUZZ
@given(
    where=st.floats(0, 1, exclude_max=True),
    replacement=st.one_of(
        st.binary(min_size=1, max_size=16),
        st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"\xff" * 7 + b"\x7f", b"\x09\x00\x00\x00" * 4]),
    ),
)
def test_overwritten_header_never_crashes(tmp_path: Path, sound_bytes: bytes, where: float, replacement: bytes):
    start = int(where * header_size(sound_bytes))
    content = sound_bytes[:start] + replacement + sound_bytes[start + len(replacement) :]
    opened = opens_or_is_refused(tmp_path / "model.gguf", content)
    assert opened or content != sound_bytes


@FUZZ
@given(tail=st.binary(max_size=400))
def test_random_bytes_after_the_magic_never_crash(tmp_path: Path, tail: bytes):
    opened = opens_or_is_refused(tmp_path / "model.gguf", b"GGUF\x03\x00\x00\x00" + tail)
    assert not opened or len(tail) >= 16


def test_the_uncorrupted_file_opens(tmp_path: Path, sound_bytes: bytes):
    assert opens_or_is_refused(tmp_path / "model.gguf", sound_bytes)
    with GgufFile.open(tmp_path / "model.gguf") as model:
        assert all(dequantize(tensor).size > 0 for tensor in model.tensors.values())
