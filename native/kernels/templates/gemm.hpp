// GEMM entry points: rounding of activations, and the walk over column blocks and row tiles.
#pragma once

#include "gemm_tile.hpp"

namespace paceline::PACELINE_ISA {

inline F32x16 largest_magnitude(const float* source, int64_t count) {
  F32x16 largest = zero();
  for (int64_t i = 0; i < count; i += kLanes) largest = maximum(absolute(load(source + i)), largest);
  return largest;
}

inline void quantize_row(const float* source, int64_t row, QuantizedRows& rows) {
  const int64_t inputs = rows.inputs;
  int8_t* values = rows.values + row * inputs;
  int16_t* sums = rows.group_sums + row * (inputs / 16);
  const int64_t num_scales = rows.num_scales();
  for (int64_t b = 0; b < num_scales; ++b) {
    const int64_t first = b * rows.scale_inputs;
    const int64_t last = inputs - first < rows.scale_inputs ? inputs : first + rows.scale_inputs;
    const float largest = reduce_maximum(largest_magnitude(source + first, last - first));
    const float inverse = 127.0F / largest;
    const bool is_zero = inverse > 3.4e38F;  // the division by zero, or nearly zero, gives infinity
    rows.scales[row * num_scales + b] = is_zero ? 0.0F : largest / 127.0F;
    const F32x16 factor = broadcast(is_zero ? 0.0F : inverse);
    for (int64_t i = first; i < last; i += kLanes) {
      const I32x16 rounded = round_to_int(multiply(load(source + i), factor));
      store_as_int8(values + i, rounded);
      sums[i / 16] = static_cast<int16_t>(reduce_add_int(rounded));
    }
  }
}

// Calls function.operator()<rows>() for 1 <= rows <= kMaxRows.
template <int kMaxRows, class Function>
inline void call_with_rows(int64_t rows, Function function) {
  if constexpr (kMaxRows > 1) {
    if (rows < kMaxRows) return call_with_rows<kMaxRows - 1>(rows, function);
  }
  function.template operator()<kMaxRows>();
}

// Calls function.operator()<rows>(first row) for tiles of at most kMaxRows rows, as equal as they can be.
template <int kMaxRows, class Function>
inline void for_each_row_tile(int64_t num_rows, Function function) {
  const int64_t num_tiles = (num_rows + kMaxRows - 1) / kMaxRows;
  int64_t first = 0;
  for (int64_t i = 0; i < num_tiles; ++i) {
    const int64_t rows = (num_rows - first) / (num_tiles - i);
    call_with_rows<kMaxRows>(rows, [&]<int kRows>() { function.template operator()<kRows>(first); });
    first += rows;
  }
}

inline int columns_of_block(const PackedMatrix& weights, int64_t index) {
  const int64_t remaining = weights.outputs - index * kColumnBlock;
  return static_cast<int>(remaining < kColumnBlock ? remaining : kColumnBlock);
}

template <int kMaxRows, int kChains>
void gemm_quantized(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                    int64_t block_end, float* out, int64_t stride) {
  const int64_t num_scales = rows.num_scales();
  visit_quantized(weights.type, [&]<GgmlType type>() {
    for (int64_t index = block_begin; index < block_end; ++index) {
      for_each_row_tile<kMaxRows>(num_rows, [&]<int kRows>(int64_t first) {
        const RowSlice slice{rows.values + first * rows.inputs, rows.scales + first * num_scales,
                             rows.group_sums + first * (rows.inputs / 16), rows.inputs, num_scales};
        quantized_tile<type, kRows, kChains>(weights.block(index), slice, columns_of_block(weights, index),
                                             out + first * stride + index * kColumnBlock, stride);
      });
    }
  });
}

template <int kMaxRows, class Element>
void gemm_float_elements(const PackedMatrix& weights, const float* rows, int64_t num_rows, int64_t block_begin,
                         int64_t block_end, float* out, int64_t stride) {
  for (int64_t index = block_begin; index < block_end; ++index) {
    for_each_row_tile<kMaxRows>(num_rows, [&]<int kRows>(int64_t first) {
      float_tile<Element, kRows>(weights.block(index), rows + first * weights.inputs, weights.inputs,
                                 columns_of_block(weights, index), out + first * stride + index * kColumnBlock, stride);
    });
  }
}

template <int kMaxRows>
void gemm_float(const PackedMatrix& weights, const float* rows, int64_t num_rows, int64_t block_begin, int64_t block_end,
                float* out, int64_t stride) {
  if (weights.type == GgmlType::kF32) {
    gemm_float_elements<kMaxRows, FloatElement>(weights, rows, num_rows, block_begin, block_end, out, stride);
  } else if (weights.type == GgmlType::kF16) {
    gemm_float_elements<kMaxRows, HalfElement>(weights, rows, num_rows, block_begin, block_end, out, stride);
  } else {
    gemm_float_elements<kMaxRows, BFloat16Element>(weights, rows, num_rows, block_begin, block_end, out, stride);
  }
}

}  // namespace paceline::PACELINE_ISA
