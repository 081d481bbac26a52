"""The GGUF reader reads real and small files as the `gguf` package does, copies no data, and refuses malformed ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from paceline.checkpoint import GgmlType, GgufFile, dequantize
from paceline.core.errors import CheckpointError, ModelNotFoundError, PacelineError, UnsupportedModelError
from tests.checkpoint.small_gguf import SCORES, TENSORS, TOKENS, write_small_gguf


@pytest.fixture
def small_path(tmp_path: Path) -> Path:
    return write_small_gguf(tmp_path / "small.gguf")


def test_metadata_of_every_kind(small_path: Path):
    with GgufFile.open(small_path) as model:
        metadata = dict(model.metadata)
    assert metadata["general.architecture"] == "llama"
    assert metadata["small.uint8"] == 200
    assert metadata["small.int8"] == -100
    assert metadata["small.uint16"] == 60000
    assert metadata["small.int16"] == -30000
    assert metadata["small.uint32"] == 4_000_000_000
    assert metadata["small.int32"] == -2_000_000_000
    assert metadata["small.uint64"] == 2**63 + 1
    assert metadata["small.int64"] == -(2**62)
    assert metadata["small.float32"] == 0.5
    assert metadata["small.float64"] == 0.1
    assert metadata["small.bool"] is True
    assert metadata["small.string"] == "Grüße, 世界"
    assert metadata["small.tokens"] == TOKENS
    np.testing.assert_array_equal(metadata["small.scores"], np.array(SCORES, np.float32))
    np.testing.assert_array_equal(metadata["small.types"], np.array([1, -2, 3], np.int32))
    np.testing.assert_array_equal(metadata["small.flags"], [True, False, True])


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_tensors_are_views_with_shape_and_type(tmp_path: Path, alignment: int | None):
    with GgufFile.open(write_small_gguf(tmp_path / "small.gguf", alignment=alignment)) as model:
        assert list(model.tensors) == list(TENSORS)
        for name, values in TENSORS.items():
            tensor = model.tensors[name]
            assert tensor.shape == values.shape
            assert tensor.data.ndim == 1
            assert not tensor.data.flags.owndata
            assert not tensor.data.flags.writeable
            np.testing.assert_allclose(dequantize(tensor), values, atol=0.005)
        assert model.tensors["blk.0.attn_q.weight"].type is GgmlType.Q8_0
        assert model.tensors["blk.0.experts.weight"].type is GgmlType.F16


def test_real_model_reads_like_the_gguf_package(smollm2_path: Path):
    reader = gguf.GGUFReader(smollm2_path)
    with GgufFile.open(smollm2_path) as model:
        assert model.paths == (smollm2_path,)
        assert model.size_bytes == smollm2_path.stat().st_size
        expected = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        found = {
            name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in model.metadata.items()
        }
        assert found == expected
        assert len(model.tensors) == 272
        for theirs in reader.tensors:
            ours = model.tensors[theirs.name]
            assert ours.shape == tuple(int(size) for size in reversed(theirs.shape))
            assert int(ours.type) == int(theirs.tensor_type)
            assert ours.data.nbytes == theirs.n_bytes
            np.testing.assert_array_equal(ours.data[:64], theirs.data.reshape(-1).view(np.uint8)[:64])


def resident_bytes(path: Path) -> int:
    """Returns how many bytes of this process' mappings of `path` are in memory."""
    total, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_ours = line.endswith(str(path))
        elif is_ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total


def test_released_pages_leave_memory_and_come_back(tmp_path: Path):
    path = tmp_path / "large.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    values = np.arange(1 << 20, dtype=np.float32)
    for name in ("first", "second"):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with GgufFile.open(path) as model:
        sums = [tensor.data.sum() for tensor in model.tensors.values()]
        full = resident_bytes(path)
        assert full >= 2 * values.nbytes
        model.release_pages(model.tensors["first"])
        assert resident_bytes(path) <= full - values.nbytes + 2 * 4096
        model.release_pages()
        assert resident_bytes(path) == 0
        assert [tensor.data.sum() for tensor in model.tensors.values()] == sums


def test_files_with_other_contents_have_other_fingerprints(tmp_path: Path):
    paths = [write_small_gguf(tmp_path / f"{number}.gguf") for number in range(3)]
    data = bytearray(paths[1].read_bytes())
    data[-1] ^= 1  # the last byte of the last tensor
    paths[1].write_bytes(data)
    data = paths[2].read_bytes()
    paths[2].write_bytes(data.replace("Grüße, 世界".encode(), "Grüsze, 世界".encode()))
    prints = []
    for path in (paths[0], *paths):
        with GgufFile.open(path) as model:
            prints.append(model.fingerprint())
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


def test_views_outlive_close(small_path: Path):
    model = GgufFile.open(small_path)
    tensor = model.tensors["output_norm.weight"]
    model.close()
    model.close()
    assert model.tensors == {}
    np.testing.assert_array_equal(dequantize(tensor), TENSORS["output_norm.weight"])


def test_version_2_is_read(small_path: Path):
    replace_bytes(small_path, 4, struct.pack("<I", 2))
    with GgufFile.open(small_path) as model:
        assert set(model.tensors) == set(TENSORS)


def write_split_model(directory: Path) -> list[Path]:
    writer = gguf.GGUFWriter(directory / "split.gguf", "llama", split_max_tensors=3)
    for number in range(7):
        writer.add_tensor(f"blk.{number}.weight", np.full((2, 32), number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(directory.glob("split-*.gguf"))


def test_split_model_opens_from_any_part(tmp_path: Path):
    parts = write_split_model(tmp_path)
    assert [part.name for part in parts] == [f"split-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for part in parts:
        with GgufFile.open(part) as model:
            assert model.paths == tuple(parts)
            assert model.size_bytes == sum(each.stat().st_size for each in parts)
            assert model.metadata["general.architecture"] == "llama"
            for number in range(7):
                tensor = model.tensors[f"blk.{number}.weight"]
                np.testing.assert_array_equal(dequantize(tensor), np.full((2, 32), number, np.float32))
                model.release_pages(tensor)


def test_split_model_with_a_missing_or_renamed_part_is_refused(tmp_path: Path):
    parts = write_split_model(tmp_path)
    parts[1].rename(tmp_path / "elsewhere.gguf")
    with pytest.raises(CheckpointError, match=r"part split-00002-of-00003\.gguf of the split model is missing"):
        GgufFile.open(parts[0])
    with pytest.raises(CheckpointError, match="one of 3 parts, so its name must end in"):
        GgufFile.open(tmp_path / "elsewhere.gguf")


def test_split_model_with_a_part_twice_is_refused(tmp_path: Path):
    parts = write_split_model(tmp_path)
    parts[2].write_bytes(parts[1].read_bytes())
    with pytest.raises(CheckpointError, match=r"'blk\.3\.weight' is in an earlier part"):
        GgufFile.open(parts[0])


def replace_bytes(path: Path, offset: int, replacement: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[offset : offset + len(replacement)] = replacement
    path.write_bytes(content)


def after(path: Path, name: str) -> int:
    """Returns the offset of the byte after the given string."""
    encoded = name.encode()
    return path.read_bytes().index(struct.pack("<Q", len(encoded)) + encoded) + 8 + len(encoded)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def truncate_in_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:150])


def claim_many_dimensions(path: Path) -> None:
    replace_bytes(path, after(path, "output_norm.weight"), struct.pack("<I", 5))


def claim_vast_dimension(path: Path) -> None:
    replace_bytes(path, after(path, "output_norm.weight") + 4, struct.pack("<Q", 2**63))


def claim_no_elements(path: Path) -> None:
    replace_bytes(path, after(path, "output_norm.weight") + 4, struct.pack("<Q", 0))


def claim_ragged_row(path: Path) -> None:
    replace_bytes(path, after(path, "blk.0.attn_q.weight") + 4, struct.pack("<Q", 63))


def claim_unknown_type(path: Path) -> None:
    replace_bytes(path, after(path, "output_norm.weight") + 12, struct.pack("<I", 99))


def misalign(path: Path) -> None:
    replace_bytes(path, after(path, "output_norm.weight") + 16, struct.pack("<Q", 33))


def move_beyond_end(path: Path) -> None:
    replace_bytes(path, after(path, "output_norm.weight") + 16, struct.pack("<Q", 2**40))


def duplicate_key(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"small.int16", b"small.int32"))


def claim_unknown_value_type(path: Path) -> None:
    replace_bytes(path, after(path, "small.bool"), struct.pack("<I", 77))


def claim_long_array(path: Path) -> None:
    replace_bytes(path, after(path, "small.scores") + 8, struct.pack("<Q", 2**60))


def claim_long_string_array(path: Path) -> None:
    replace_bytes(path, after(path, "small.tokens") + 8, struct.pack("<Q", 2**60))


def claim_long_string_in_array(path: Path) -> None:
    replace_bytes(path, after(path, "small.tokens") + 16, struct.pack("<Q", 2**62))


def break_utf8(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace("naïve".encode(), b"na\xff\xffve"))


def claim_odd_alignment(path: Path) -> None:
    write_small_gguf(path, alignment=64)
    replace_bytes(path, after(path, "general.alignment") + 4, struct.pack("<I", 33))


def claim_text_alignment(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("general.alignment", "wide")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


CORRUPTIONS: list[tuple[Callable[[Path], object], type[PacelineError], str]] = [
    (lambda path: path.write_bytes(b""), CheckpointError, "has 0 bytes, too few"),
    (lambda path: path.write_bytes(b"GGUF"), CheckpointError, "has 4 bytes, too few"),
    (lambda path: replace_bytes(path, 0, b"GGML"), CheckpointError, "begins with b'GGML' instead of b'GGUF'"),
    (lambda path: replace_bytes(path, 4, struct.pack("<I", 1)), UnsupportedModelError, "GGUF version 1 is not"),
    (lambda path: replace_bytes(path, 4, struct.pack("<I", 4)), UnsupportedModelError, "GGUF version 4 is not"),
    (lambda path: replace_bytes(path, 4, struct.pack(">I", 3)), UnsupportedModelError, "big-endian version 3 is not"),
    (lambda path: replace_bytes(path, 8, struct.pack("<Q", 2**63)), CheckpointError, "9223372036854775808 tensors"),
    (lambda path: replace_bytes(path, 16, struct.pack("<Q", 2**50)), CheckpointError, "1125899906842624 metadata"),
    (lambda path: replace_bytes(path, 24, struct.pack("<Q", 2**40)), CheckpointError, "65535 is the most"),
    (truncate, CheckpointError, r"'output_norm\.weight' ends at byte \d+, but the file has only \d+; it is truncated"),
    (truncate_in_header, CheckpointError, "would end after the file, which has 150 bytes"),
    (claim_many_dimensions, CheckpointError, r"'output_norm\.weight' has 5 dimensions"),
    (claim_vast_dimension, CheckpointError, r"'output_norm\.weight' ends at byte \d+, but the file has only"),
    (claim_no_elements, CheckpointError, r"has shape \(0,\), which F32 cannot store"),
    (claim_ragged_row, CheckpointError, r"has shape \(4, 63\), which Q8_0 cannot store"),
    (claim_unknown_type, UnsupportedModelError, r"'output_norm\.weight' has the unknown type 99"),
    (misalign, CheckpointError, "has offset 33, not a multiple of the alignment 32"),
    (move_beyond_end, CheckpointError, "but the file has only"),
    (duplicate_key, CheckpointError, r"'small\.int32' appears twice"),
    (claim_unknown_value_type, CheckpointError, r"'small\.bool' has the unknown value type 77"),
    (claim_long_array, CheckpointError, r"numbers of 'small\.scores'"),
    (claim_long_string_array, CheckpointError, r"strings of 'small\.tokens'"),
    (claim_long_string_in_array, CheckpointError, r"a string of 'small\.tokens' at byte \d+ reaches beyond"),
    (break_utf8, CheckpointError, r"a string of 'small\.tokens' at byte \d+ is not UTF-8"),
    (claim_odd_alignment, CheckpointError, "alignment 33 is not a power of two"),
    (claim_text_alignment, CheckpointError, r"'general\.alignment' is 'wide', not an integer"),
]


@pytest.mark.parametrize(("corrupt", "error", "message"), CORRUPTIONS)
def test_malformed_file_is_refused_with_its_reason(
    small_path: Path, corrupt: Callable[[Path], object], error: type[PacelineError], message: str
):
    corrupt(small_path)
    with pytest.raises(error, match=message) as caught:
        GgufFile.open(small_path)
    assert type(caught.value) is error
    assert str(small_path) in str(caught.value)


def test_a_tensor_name_that_appears_twice_is_refused(tmp_path: Path):
    path = tmp_path / "twice.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for name in ("blk.0.one.weight", "blk.0.two.weight"):
        writer.add_tensor(name, np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.write_bytes(path.read_bytes().replace(b".two.", b".one."))
    with pytest.raises(CheckpointError, match=r"tensor 'blk\.0\.one\.weight' appears twice"):
        GgufFile.open(path)


def test_arrays_nested_too_deep_are_refused(tmp_path: Path):
    path = tmp_path / "nested.gguf"
    key = b"general.deep"
    nested = struct.pack("<IQ", 9, 1) * 5000
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key + struct.pack("<I", 9)
    path.write_bytes(header + nested)
    with pytest.raises(CheckpointError, match=r"'general\.deep' nests arrays deeper than 4"):
        GgufFile.open(path)


def test_missing_file_and_directory(tmp_path: Path):
    with pytest.raises(ModelNotFoundError, match="there is no such file"):
        GgufFile.open(tmp_path / "absent.gguf")
    with pytest.raises(CheckpointError, match="cannot be read"):
        GgufFile.open(tmp_path)
