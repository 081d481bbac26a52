#include "paceline/packed_matrix.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "paceline/kernel_table.hpp"
#include "paceline/weight_arena.hpp"
#include "quant/file_blocks.hpp"
#include "quant/layouts.hpp"

namespace paceline {
namespace {

constexpr int64_t kRegisterBytes = 64;  // 16 columns of 4 inputs

void put_word(uint8_t* target, uint32_t word) { std::memcpy(target, &word, sizeof(word)); }

// Gathers kWidth bits, from bit kShift on, of each of 4 * kCount consecutive integers. The bits of register i are put
// at bit kWidth * i of their byte.
template <int kCount, int kWidth, int kShift>
uint32_t gather_bits(const uint8_t* integers) {
  constexpr uint32_t kMask = ((1U << kWidth) - 1U) * 0x01010101U;
  uint32_t word = 0;
  for (int i = 0; i < kCount; ++i) word |= (load_u32(integers + 4 * i) >> kShift & kMask) << (kWidth * i);
  return word;
}

void put_nibbles(const uint8_t* integers, uint8_t* plane) {
  for (int r = 0; r < 4; ++r) {
    const uint32_t low = load_u32(integers + 4 * r) & 0x0f0f0f0fU;
    const uint32_t high = load_u32(integers + 4 * r + 16) & 0x0f0f0f0fU;
    put_word(plane + r * kRegisterBytes, low | high << 4);
  }
}

// Writes 32 integers of one column into the planes of their group; `group` points at the column's bytes of register 0.
template <int kStoredBits>
void put_integers(const uint8_t* integers, uint8_t* group) {
  if constexpr (kStoredBits == 8) {
    for (int r = 0; r < 8; ++r) put_word(group + r * kRegisterBytes, load_u32(integers + 4 * r));
  } else if constexpr (kStoredBits <= 3) {
    put_word(group, gather_bits<4, 2, 0>(integers));
    put_word(group + kRegisterBytes, gather_bits<4, 2, 0>(integers + 16));
    if constexpr (kStoredBits == 3) put_word(group + 2 * kRegisterBytes, gather_bits<8, 1, 2>(integers));
  } else {
    put_nibbles(integers, group);
    if constexpr (kStoredBits == 5) put_word(group + 4 * kRegisterBytes, gather_bits<8, 1, 4>(integers));
    if constexpr (kStoredBits == 6) {
      put_word(group + 4 * kRegisterBytes, gather_bits<4, 2, 4>(integers));
      put_word(group + 5 * kRegisterBytes, gather_bits<4, 2, 4>(integers + 16));
    }
  }
}

void put_half(uint8_t* halves, int64_t index, uint16_t half) { std::memcpy(halves + 2 * index, &half, sizeof(half)); }

// Writes the scales of group `group` for a type with blocks of 32. `scales` is [groups][16], followed by minima of the
// same form if the type has them.
template <GgmlType type>
void put_group_scales(const ExpandedBlock& block, int column, int group, int groups, uint8_t* scales) {
  put_half(scales, group * kColumnBlock + column, block.scale);
  if constexpr (Layout<type>::kScales == ScaleKind::kHalfWithMinimum) {
    put_half(scales, (groups + group) * kColumnBlock + column, block.minimum);
  }
}

// Writes the scales of a type with blocks of 256.
template <GgmlType type>
void put_block_scales(const ExpandedBlock& block, int column, uint8_t* scales) {
  using Numbers = Layout<type>;
  constexpr int kCount = 256 / Numbers::kScaleInputs;
  uint8_t* halves = scales + kCount * kColumnBlock;
  for (int i = 0; i < kCount; ++i) {
    uint8_t scale = block.scales[i];
    if constexpr (Numbers::kScales == ScaleKind::kNibbleWithMinimum) scale |= static_cast<uint8_t>(block.minima[i] << 4);
    scales[i * kColumnBlock + column] = scale;
  }
  if constexpr (Numbers::kScales == ScaleKind::kByteWithMinimum) {
    for (int i = 0; i < kCount; ++i) halves[i * kColumnBlock + column] = block.minima[i];
    halves += kCount * kColumnBlock;
  }
  put_half(halves, column, block.scale);
  if constexpr (Numbers::kScales != ScaleKind::kSignedByte) put_half(halves, kColumnBlock + column, block.minimum);
}

// Repacks one column's part of a super-block with `groups` groups of 32.
template <GgmlType type>
void pack_column(const uint8_t* source, int column, int groups, uint8_t* target) {
  using Numbers = Layout<type>;
  using Source = FileBlock<type>;
  uint8_t* scales = target + groups * Numbers::kIntegerBytes;
  ExpandedBlock block;
  for (int first = 0; first < groups; first += Source::kValues / kGroup, source += Source::kBytes) {
    Source::expand(source, block);
    for (int group = 0; group < Source::kValues / kGroup; ++group) {
      uint8_t* integers = target + (first + group) * Numbers::kIntegerBytes + 4 * column;
      put_integers<Numbers::kStoredBits>(block.integers + group * kGroup, integers);
    }
    if constexpr (Source::kValues == kGroup) {
      put_group_scales<type>(block, column, first, groups, scales);
    } else {
      put_block_scales<type>(block, column, scales);
    }
  }
}

// `source`: the first of up to 16 rows of the file's tensor; `columns` of them exist.
template <GgmlType type>
void pack_block(const uint8_t* source, int64_t stride, int columns, int64_t inputs, uint8_t* target) {
  for (int64_t first = 0; first < inputs; first += kSuperBlock) {
    const int groups = static_cast<int>(std::min(kSuperBlock, inputs - first) / kGroup);
    const uint8_t* blocks = source + first / FileBlock<type>::kValues * FileBlock<type>::kBytes;
    for (int column = 0; column < columns; ++column) {
      pack_column<type>(blocks + column * stride, column, groups, target);
    }
    target += groups * Layout<type>::kGroupBytes;
  }
}

// Transposes rows of floats or halves to [inputs][16], a strip of inputs at a time so that both sides stay in cache.
template <class Element>
void transpose_block(const uint8_t* source, int64_t stride, int columns, int64_t inputs, uint8_t* target) {
  constexpr int64_t kStrip = 64;
  for (int64_t first = 0; first < inputs; first += kStrip) {
    const int64_t last = std::min(inputs, first + kStrip);
    for (int column = 0; column < columns; ++column) {
      for (int64_t i = first; i < last; ++i) {
        std::memcpy(target + (i * kColumnBlock + column) * static_cast<int64_t>(sizeof(Element)),
                    source + column * stride + i * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
      }
    }
  }
}

// `rows`: the file's bytes of up to 16 rows, of which `columns` exist.
void pack_block(const PackedMatrix& target, const uint8_t* rows, int columns, uint8_t* block) {
  const int64_t stride = row_bytes(target.type, target.inputs);
  const auto pack = [&]<GgmlType type>() { pack_block<type>(rows, stride, columns, target.inputs, block); };
  if (visit_quantized(target.type, pack)) return;
  if (target.type == GgmlType::kF32) {
    transpose_block<float>(rows, stride, columns, target.inputs, block);
  } else {
    transpose_block<uint16_t>(rows, stride, columns, target.inputs, block);
  }
}

// Rounds at most 16 rows to Q4_0, 256 inputs at a time, so that intermediate values fit in the first-level cache.
void round_rows(std::span<const uint8_t* const> rows, GgmlType type, int64_t inputs, const KernelTable& kernels,
                uint8_t* target) {
  const int64_t stride = row_bytes(GgmlType::kQ4_0, inputs);
  float values[kSuperBlock];
  std::vector<float> columns(kSuperBlock * kColumnBlock, 0.0F);  // [inputs][16 rows]
  for (int64_t first = 0; first < inputs; first += kSuperBlock) {
    const int64_t count = std::min(kSuperBlock, inputs - first);
    for (size_t row = 0; row < rows.size(); ++row) {
      dequantize_row(type, rows[row] + (first > 0 ? row_bytes(type, first) : 0), count, values);
      for (int64_t i = 0; i < count; ++i) columns[i * kColumnBlock + row] = values[i];
    }
    kernels.quantize_q4_0(columns.data(), count, target + (first > 0 ? row_bytes(GgmlType::kQ4_0, first) : 0), stride);
  }
}

// Writes rows [first, first + count) of the target to `gathered`, in the target's type.
void gather_rows(const PackedMatrix& target, const WeightRows& source, const KernelTable& kernels, int64_t first, int count,
                 uint8_t* gathered) {
  const int64_t stride = row_bytes(source.type, target.inputs);
  const uint8_t* rows[kColumnBlock];
  for (int i = 0; i < count; ++i) {
    rows[i] = source.data + (source.selected.empty() ? first + i : source.selected[first + i]) * stride;
  }
  if (source.type != target.type) {
    round_rows({rows, static_cast<size_t>(count)}, source.type, target.inputs, kernels, gathered);
    return;
  }
  for (int i = 0; i < count; ++i) std::memcpy(gathered + i * stride, rows[i], static_cast<size_t>(stride));
}

int64_t packed_block_bytes(GgmlType type, int64_t inputs) {
  int64_t bytes = kColumnBlock * inputs * (type == GgmlType::kF32 ? 4 : 2);
  visit_quantized(type, [&]<GgmlType quantized>() { bytes = inputs / kGroup * Layout<quantized>::kGroupBytes; });
  return bytes;
}

}  // namespace

void pack_blocks(PackedMatrix& target, const WeightRows& source, const KernelTable& kernels, int64_t block_begin,
                 int64_t block_end) {
  const bool is_as_stored = source.type == target.type && source.selected.empty();
  if (source.type != target.type && target.type != GgmlType::kQ4_0) {
    throw std::invalid_argument("weights can only be rounded to Q4_0");
  }
  const int64_t stride = row_bytes(target.type, target.inputs);
  std::vector<uint8_t> gathered(is_as_stored ? 0 : kColumnBlock * stride);
  for (int64_t index = block_begin; index < block_end; ++index) {
    const int64_t first = index * kColumnBlock;
    const int count = static_cast<int>(std::min(kColumnBlock, target.outputs - first));
    uint8_t* block = target.data.as<uint8_t>() + index * target.block_bytes;
    if (is_as_stored) {
      pack_block(target, source.data + first * stride, count, block);
    } else {
      gather_rows(target, source, kernels, first, count, gathered.data());
      pack_block(target, gathered.data(), count, block);
    }
  }
}

PackedMatrix make_packed_matrix(GgmlType type, int64_t outputs, int64_t inputs, WeightArena* arena) {
  row_bytes(type, inputs);  // throws if there is no layout
  if (outputs <= 0) throw std::invalid_argument("a weight matrix with " + std::to_string(outputs) + " outputs has no layout");
  PackedMatrix matrix;
  matrix.type = type;
  matrix.outputs = outputs;
  matrix.inputs = inputs;
  matrix.column_blocks = (outputs + kColumnBlock - 1) / kColumnBlock;
  matrix.block_bytes = packed_block_bytes(type, inputs);
  const auto size = static_cast<size_t>(matrix.column_blocks * matrix.block_bytes);
  matrix.data = arena != nullptr ? arena->take(size) : AlignedBuffer(size);
  return matrix;
}

}  // namespace paceline
