// A weight matrix repacked for skinny GEMM: 16 output columns interleaved, groups of 32 (or 16) along the input.
//
// native/quant/layouts.hpp describes the layouts, their bytes and the arithmetic that every kernel must follow.
#pragma once

#include <cstdint>
#include <span>

#include "paceline/aligned_buffer.hpp"
#include "paceline/ggml_type.hpp"

namespace paceline {

struct KernelTable;  // native/include/paceline/kernel_table.hpp

class WeightArena;

constexpr int64_t kColumnBlock = 16;   // output columns that a tile holds
constexpr int64_t kSuperBlock = 256;   // inputs of a contiguous piece of a column block; the last piece may be shorter
constexpr int64_t kGroup = 32;         // inputs are a multiple of this for quantized weights

struct PackedMatrix {
  GgmlType type = GgmlType::kF32;
  int64_t outputs = 0;        // rows of the file's tensor = columns of the result
  int64_t inputs = 0;         // length of an activation row
  int64_t column_blocks = 0;  // ceil(outputs / 16); missing columns are zero weights
  int64_t block_bytes = 0;    // bytes of one column block over all inputs
  AlignedBuffer data;         // [column_blocks][block_bytes]

  // Activations are rounded to integers for quantized weights and used as floats for float weights.
  bool is_quantized() const {
    return type != GgmlType::kF32 && type != GgmlType::kF16 && type != GgmlType::kBF16;
  }
  int64_t size_bytes() const { return column_blocks * block_bytes; }
  const uint8_t* block(int64_t index) const { return data.as<uint8_t>() + index * block_bytes; }
};

// Rows of a file's tensor, which are stored one after another: all of them, or those that `selected` names.
struct WeightRows {
  GgmlType type = GgmlType::kF32;
  const uint8_t* data = nullptr;
  std::span<const int32_t> selected = {};
};

// Repacks column blocks [block_begin, block_end) of `target` from `source`. If `target` has another type, it must be
// Q4_0, and the weights are rounded to it. Different threads may pack different ranges.
void pack_blocks(PackedMatrix& target, const WeightRows& source, const KernelTable& kernels, int64_t block_begin,
                 int64_t block_end);

// Returns an empty packed matrix in the arena's memory, or in its own if `arena` is null; throws std::invalid_argument
// for a type or size that has no layout.
PackedMatrix make_packed_matrix(GgmlType type, int64_t outputs, int64_t inputs, WeightArena* arena = nullptr);

}  // namespace paceline
