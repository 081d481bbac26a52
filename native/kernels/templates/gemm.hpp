// GEMM entry points: the rounding of activations, and the loops over column blocks and row tiles.
#pragma once

#include <algorithm>
#include <limits>

#include "gemm_tile.hpp"

namespace paceline::PACELINE_ISA {

inline F32x16 largest_magnitude(const float* source, int64_t count) {
  F32x16 largest = zero();
  for (int64_t i = 0; i < count; i += kLanes) largest = maximum(absolute(load(source + i)), largest);
  return largest;
}

// Stores 16 integers of a plane from input `first` of a super-block on, and adds them to the plane's sums; returns their sum.
inline int32_t store_plane(I32x16 integers, int64_t first, int plane, int8_t* target, ActivationSums& sums) {
  store_as_int8(target + first, integers);
  const int32_t sum = reduce_add_int(integers);
  sums.sixteens[plane][first / 16] = static_cast<int16_t>(sum);
  sums.groups[plane][first / 32] = static_cast<int16_t>(sums.groups[plane][first / 32] + sum);
  return sum;
}

// Rounds `count` (a multiple of 16) values of one super-block into its planes [low, high]; the rest of the planes becomes zero.
template <bool has_high>
inline void round_segment(const float* source, int64_t count, float factor, int8_t* (&planes)[2], ActivationSums& sums) {
  sums = ActivationSums{};
  for (int64_t i = 0; i < count; i += kLanes) {
    const I32x16 rounded = round_to_int(multiply(load(source + i), broadcast(factor)));
    if constexpr (has_high) {
      const I32x16 high = keep_beyond<127>(shift_right<7>(add_int(rounded, broadcast_int(64))), rounded);
      const I32x16 low = subtract_int(rounded, shift_left<7>(high));
      sums.totals[i / 32] += 128 * store_plane(high, i, 1, planes[1], sums) + store_plane(low, i, 0, planes[0], sums);
    } else {
      sums.totals[i / 32] += store_plane(rounded, i, 0, planes[0], sums);
    }
  }
  const int64_t num_high = has_high ? count : 0;
  std::memset(planes[0] + count, 0, static_cast<size_t>(kActivationPlane - count));
  for (int i = 0; i < 16; ++i) sums.centred_starts[i] = centred_start<16>(planes[0] + 16 * i, sums.sixteens[0][i]);
  std::memset(planes[1] + num_high, 0, static_cast<size_t>(kActivationPlane - num_high));
}

inline float mean_magnitude(const float* source, int64_t count) {
  F32x16 sum = zero();
  for (int64_t i = 0; i < count; i += kLanes) sum = add(absolute(load(source + i)), sum);
  return reduce_add(sum) / static_cast<float>(count);
}

// The step between two integers is usual / limit.
struct RoundingRange {
  float usual;
  float limit;
  bool has_high;

  RoundingRange(const float* source, int64_t count, ActivationRounding rounding) {
    const float outlier_ratio = rounding == ActivationRounding::kEightBitsOfNormed ? 12.0F : 32.0F;
    const float largest = reduce_maximum(largest_magnitude(source, count));
    has_high = rounding == ActivationRounding::kFifteenBits;
    limit = has_high ? 16256.0F : 127.0F;
    usual = largest;
    if (!has_high) {
      const float bound = outlier_ratio * mean_magnitude(source, count);
      has_high = bound < largest;
      if (has_high) usual = bound;
    }
  }
};

inline uint8_t flags_of(const int8_t* low_plane, uint64_t high_quads) {
  int flags = largest_sixteen(low_plane) > kLightSum ? kIsHeavy : 0;
  if (high_quads != 0) flags |= kHasHigh;
  if (__builtin_popcountll(high_quads) > kFewQuads) flags |= kHasManyHigh;
  return static_cast<uint8_t>(flags);
}

// A super-block with an infinity or a NaN gets NaN as its scale, so that all results of the row are NaN.
inline void quantize_row(const float* source, int64_t row, QuantizedRows& rows) {
  static constexpr float kZeros[kSuperBlock] = {};
  for (int64_t b = 0; b < rows.num_super_blocks(); ++b) {
    const int64_t first = b * kSuperBlock;
    const int64_t count = rows.inputs - first < kSuperBlock ? rows.inputs - first : kSuperBlock;
    const int64_t index = b * rows.row_capacity + row;
    const bool is_usable = is_finite(source + first, count);
    const float* values = is_usable ? source + first : kZeros;
    const RoundingRange range(values, count, rows.rounding);
    const float inverse = range.limit / range.usual;
    const bool is_zero = inverse > std::numeric_limits<float>::max();  // range.usual is zero, or nearly zero
    rows.scales[index] = is_zero ? 0.0F : range.usual / range.limit;
    if (!is_usable) rows.scales[index] = std::numeric_limits<float>::quiet_NaN();
    int8_t* planes[2] = {rows.planes[0] + index * kActivationPlane, rows.planes[1] + index * kActivationPlane};
    const auto round = range.has_high ? round_segment<true> : round_segment<false>;
    round(values, count, is_zero ? 0.0F : inverse, planes, rows.sums[index]);
    rows.high_quads[index] = range.has_high ? nonzero_quads(planes[1]) : 0;
    rows.flags[index] = flags_of(planes[0], rows.high_quads[index]);
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

// Multiplies one tile of rows after another with a strip of column blocks. The tile stays in the first-level cache, and
// the strip in the second-level cache. Each tile unpacks the weights again, into registers.
template <GgmlType type, int kMaxRows, int kChains>
void gemm_strips(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                 int64_t block_end, float* out, int64_t stride) {
  constexpr int64_t kStripBytes = 192 * 1024;
  const int64_t strip = std::max(kStripBytes / weights.block_bytes, int64_t{1});
  for (int64_t first = block_begin; first < block_end; first += strip) {
    const int64_t last = std::min(first + strip, block_end);
    for_each_row_tile<kMaxRows>(num_rows, [&]<int kRows>(int64_t row) {
      for (int64_t index = first; index < last; ++index) {
        quantized_tile<type, kRows, kChains>(weights.block(index), rows, row, columns_of_block(weights, index),
                                             out + row * stride + index * kColumnBlock, stride);
      }
    });
  }
}

// Sums at most kMaxRows rows at once, and interleaves kChains dot products of their planes.
template <int kMaxRows, int kChains>
void gemm_quantized(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                    int64_t block_end, const GemmScratch&, float* out, int64_t stride) {
  visit_quantized(weights.type, [&]<GgmlType type>() {
    gemm_strips<type, kMaxRows, kChains>(weights, rows, num_rows, block_begin, block_end, out, stride);
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
