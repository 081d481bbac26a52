// GEMM entry points: rounding of activations, and the walk over column blocks and row tiles.
#pragma once

#include "gemm_tile.hpp"

namespace paceline::PACELINE_ISA {

inline F32x16 largest_magnitude(const float* source, int64_t count) {
  F32x16 largest = zero();
  for (int64_t i = 0; i < count; i += kLanes) largest = maximum(absolute(load(source + i)), largest);
  return largest;
}

// Rounds `count` (a multiple of 16) values of one super-block into both planes; the rest of the planes becomes zero.
inline void round_segment(const float* source, int64_t count, float factor, int8_t* planes, ActivationSums& sums) {
  sums = ActivationSums{};
  for (int64_t i = 0; i < count; i += kLanes) {
    const I32x16 rounded = round_to_int(multiply(load(source + i), broadcast(factor)));
    const I32x16 high = shift_right<7>(add_int(rounded, broadcast_int(64)));
    const I32x16 low = subtract_int(rounded, shift_left<7>(high));
    store_as_int8(planes + i, high);
    store_as_int8(planes + kActivationPlane + i, low);
    const int32_t high_sum = reduce_add_int(high);
    const int32_t low_sum = reduce_add_int(low);
    sums.sixteens[0][i / 16] = static_cast<int16_t>(high_sum);
    sums.sixteens[1][i / 16] = static_cast<int16_t>(low_sum);
    sums.groups[0][i / 32] = static_cast<int16_t>(sums.groups[0][i / 32] + high_sum);
    sums.groups[1][i / 32] = static_cast<int16_t>(sums.groups[1][i / 32] + low_sum);
    sums.totals[i / 32] += 128 * high_sum + low_sum;
  }
  std::memset(planes + count, 0, static_cast<size_t>(kActivationPlane - count));
  std::memset(planes + kActivationPlane + count, 0, static_cast<size_t>(kActivationPlane - count));
}

inline void quantize_row(const float* source, int64_t row, QuantizedRows& rows) {
  for (int64_t b = 0; b < rows.num_super_blocks(); ++b) {
    const int64_t first = b * kSuperBlock;
    const int64_t count = rows.inputs - first < kSuperBlock ? rows.inputs - first : kSuperBlock;
    const int64_t index = b * rows.row_capacity + row;
    const float largest = reduce_maximum(largest_magnitude(source + first, count));
    const float inverse = 16256.0F / largest;
    const bool is_zero = inverse > 3.4e38F;  // the division by zero, or nearly zero, gives infinity
    rows.scales[index] = is_zero ? 0.0F : largest / 16256.0F;
    round_segment(source + first, count, is_zero ? 0.0F : inverse, rows.planes + index * kActivationSegment,
                  rows.sums[index]);
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

// Few rows: a column block after the other, its weights unpacked into registers.
template <GgmlType type, int kMaxRows, int kChains>
void gemm_few_rows(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                   int64_t block_end, float* out, int64_t stride) {
  for (int64_t index = block_begin; index < block_end; ++index) {
    for_each_row_tile<kMaxRows>(num_rows, [&]<int kRows>(int64_t first) {
      quantized_tile<type, kRows, kChains>(weights.block(index), rows, first, columns_of_block(weights, index),
                                           out + first * stride + index * kColumnBlock, stride);
    });
  }
}

// Copies totals of column blocks [first, last), [blocks][row_capacity][16], to where they belong, a row after the other because
// rows of the result lie on different pages.
inline void write_totals(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t first,
                         int64_t last, const float* totals, float* out, int64_t stride) {
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t index = first; index < last; ++index) {
      const float* source = totals + ((index - first) * rows.row_capacity + row) * kColumnBlock;
      store_partial(out + row * stride + index * kColumnBlock, load(source), columns_of_block(weights, index));
    }
  }
}

// Calls add_strip(first, last) for strips of column blocks, whose totals it adds to `totals`, [blocks][row_capacity][16].
template <class AddStrip>
void walk_strips(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                 int64_t block_end, float* totals, float* out, int64_t stride, AddStrip add_strip) {
  for (int64_t first = block_begin; first < block_end; first += kStripBlocks) {
    const int64_t last = block_end - first < kStripBlocks ? block_end : first + kStripBlocks;
    std::memset(totals, 0, static_cast<size_t>((last - first) * rows.row_capacity * kColumnBlock) * sizeof(float));
    add_strip(first, last);
    write_totals(weights, rows, num_rows, first, last, totals, out, stride);
  }
}

// Where super-block `super_block` of a column block begins, and its scales.
template <GgmlType type>
struct SuperBlock {
  const uint8_t* integers;
  int groups;
  const uint8_t* scales;

  SuperBlock(const PackedMatrix& weights, int64_t index, int64_t super_block)
      : integers(weights.block(index) + super_block * (kSuperBlock / kGroup) * Layout<type>::kGroupBytes),
        groups(groups_of<type>(weights.inputs, super_block)),
        scales(integers + groups * Layout<type>::kIntegerBytes) {}
};

// Many rows: super-blocks outermost within a strip, so that the rows' part of one stays in cache for the whole strip.
template <GgmlType type, int kTileRows, int kChains>
void gemm_many_rows(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                    int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride) {
  static_assert(kActivationTile % kTileRows == 0);
  const auto add_block = [&](int64_t index, int64_t b, float* totals) {
    const SuperBlock<type> block(weights, index, b);
    unpack_super_block<type>(block.integers, block.groups, scratch.weights);
    for (int64_t row = 0; row < num_rows; row += kTileRows) {
      unpacked_tile<type, kTileRows, kChains>(scratch.weights, block.scales, block.groups, TileRows(rows, b, row),
                                              totals + row * kColumnBlock);
    }
  };
  walk_strips(weights, rows, num_rows, block_begin, block_end, scratch.totals, out, stride,
              [&](int64_t first, int64_t last) {
                for (int64_t b = 0; b < rows.num_super_blocks(); ++b) {
                  for (int64_t index = first; index < last; ++index) {
                    add_block(index, b, scratch.totals + (index - first) * rows.row_capacity * kColumnBlock);
                  }
                }
              });
}

template <int kMaxRows, int kChains>
void gemm_quantized(const PackedMatrix& weights, const QuantizedRows& rows, int64_t num_rows, int64_t block_begin,
                    int64_t block_end, const GemmScratch& scratch, float* out, int64_t stride) {
  constexpr int64_t kManyRows = 32;
  visit_quantized(weights.type, [&]<GgmlType type>() {
    if (num_rows < kManyRows) {
      gemm_few_rows<type, kMaxRows, kChains>(weights, rows, num_rows, block_begin, block_end, out, stride);
    } else {
      gemm_many_rows<type, kMaxRows, kChains>(weights, rows, num_rows, block_begin, block_end, scratch, out, stride);
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
