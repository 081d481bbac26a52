// The row loop of GEMM: one block of 16 columns times a tile of rows, weights unpacked once for all of its rows.
//
// The arithmetic is fixed by native/quant/layouts.hpp; tiles of any size give a row the same bits.
#pragma once

#include "gemm_unpack.hpp"
#include "paceline/activations.hpp"

// Full unrolling keeps the accumulators of a tile in registers; plain scalar code is better off with loops.
#if defined(__AVX2__)
#define PACELINE_UNROLL _Pragma("GCC unroll 16")
#else
#define PACELINE_UNROLL
#endif

namespace paceline::PACELINE_ISA {

// Consecutive rows of rounded activations; each pointer is at the first of them.
struct RowSlice {
  const int8_t* values;
  const float* scales;
  const int16_t* sums;
  int64_t inputs;
  int64_t num_scales;
};

constexpr int64_t kPrefetchBytes = 6144;  // how far ahead of the unpacked group weights are asked for

template <GgmlType type>
struct TileTraits {
  using Numbers = Layout<type>;
  static constexpr int kScalesPerGroup = 32 / Numbers::kScaleInputs;
  static constexpr bool kHasFloatMinima = Numbers::kScales == ScaleKind::kHalfWithMinimum;
  static constexpr bool kHasIntegerMinima =
      Numbers::kScales == ScaleKind::kByteWithMinimum || Numbers::kScales == ScaleKind::kNibbleWithMinimum;
  // One activation scale a group, instead of one a super-block.
  static constexpr bool kHasGroupScales = kHasFloatMinima || Numbers::kScales == ScaleKind::kHalf;
  // Types with blocks of 256 have no ragged super-blocks.
  static constexpr bool kIsWhole = kHasIntegerMinima || Numbers::kScales == ScaleKind::kSignedByte;
  // What dot products must be corrected by: the zero point, unless dot_pair removes it.
  static constexpr int kZeroPoint = Numbers::kWeightBits == 8 && kCentersEightBits ? 0 : Numbers::kZeroPoint;
};

// What depends on the sums of a row's activations alone, for one row and super-block; filled where the type needs it.
template <GgmlType type>
struct RowSums {
  using Traits = TileTraits<type>;
  int32_t starts[Traits::kZeroPoint != 0 ? 8 * Traits::kScalesPerGroup : 1];  // -zero point * sum: where dot products start
  float sums[Traits::kHasFloatMinima ? 8 : 1];                                // of 32 inputs, times their scale
  int16_t small_sums[Traits::kHasIntegerMinima ? 16 : 1];                     // of 16 inputs

  // `scales`: of the groups, where each has its own.
  void read(const int16_t* source, const float* scales, int groups) {
    if constexpr (Traits::kZeroPoint != 0 && Traits::kScalesPerGroup == 1) {
      for (int g = 0; g < groups; ++g) starts[g] = -Traits::kZeroPoint * (source[2 * g] + source[2 * g + 1]);
    } else if constexpr (Traits::kZeroPoint != 0) {
      for (int g = 0; g < 2 * groups; ++g) starts[g] = -Traits::kZeroPoint * source[g];
    }
    if constexpr (!Traits::kHasFloatMinima) static_cast<void>(scales);
    if constexpr (Traits::kHasFloatMinima) {
      for (int g = 0; g < groups; ++g) sums[g] = static_cast<float>(source[2 * g] + source[2 * g + 1]) * scales[g];
    }
    if constexpr (Traits::kHasIntegerMinima) std::memcpy(small_sums, source, sizeof(small_sums));
  }
};

// What the row loop reads of a tile's rows, at one super-block.
template <GgmlType type, int kRows>
struct TileRows {
  const int8_t* values;  // row r is at values + r * inputs
  int64_t inputs;
  const float* scales;  // row r's first scale here is at scales + r * num_scales
  int64_t num_scales;
  RowSums<type> row_sums[kRows];

  inline __attribute__((always_inline)) TileRows(const RowSlice& slice, int64_t super_block, int groups)
      : values(slice.values + super_block * kSuperBlock),
        inputs(slice.inputs),
        scales(slice.scales + super_block * (TileTraits<type>::kHasGroupScales ? kSuperBlock / kGroup : 1)),
        num_scales(slice.num_scales) {
    const int16_t* sums = slice.sums + super_block * (kSuperBlock / 16);
    for (int row = 0; row < kRows; ++row) {
      row_sums[row].read(sums + row * (inputs / 16), scales + row * num_scales, groups);
    }
  }

  F32x16 scale(int row, int index) const { return broadcast(scales[row * num_scales + index]); }
};

// Adds group `group` to rows [kFirst, kRows). kChains rows are interleaved, since one row's chain of dot products is bound by
// the instruction's latency.
template <GgmlType type, int kChains, int kFirst, int kRows, class Scales>
inline __attribute__((always_inline)) void add_group(const TileRows<type, kRows>& rows, const GroupWeights& weights,
                                                     const Scales& reader, int group, F32x16 (&partial)[kRows]) {
  using Traits = TileTraits<type>;
  constexpr int kScalesPerGroup = Traits::kScalesPerGroup;
  constexpr int kRegisters = kGroupRegisters / kScalesPerGroup;
  constexpr int kCount = kRows - kFirst < kChains ? kRows - kFirst : kChains;
  const int8_t* values = rows.values + kFirst * rows.inputs + group * kGroup;
  PACELINE_UNROLL
  for (int s = 0; s < kScalesPerGroup; ++s) {
    const int run = kScalesPerGroup * group + s;
    I32x16 dots[kCount];
    PACELINE_UNROLL
    for (int j = 0; j < kCount; ++j) {
      dots[j] = Traits::kZeroPoint == 0 ? zero_int() : broadcast_int(rows.row_sums[kFirst + j].starts[run]);
    }
    PACELINE_UNROLL
    for (int i = s * kRegisters; i < (s + 1) * kRegisters; i += 2) {
      PACELINE_UNROLL
      for (int j = 0; j < kCount; ++j) {
        dots[j] = dot_pair<Layout<type>::kWeightBits>(dots[j], weights.registers[i], weights.registers[i + 1],
                                                      values + j * rows.inputs + 4 * i);
      }
    }
    const F32x16 scale = reader.scale(run);
    PACELINE_UNROLL
    for (int j = 0; j < kCount; ++j) {
      F32x16& sum = partial[kFirst + j];
      if constexpr (Traits::kHasGroupScales) {
        sum = fma(multiply(to_float(dots[j]), scale), rows.scale(kFirst + j, group), sum);
      } else {
        sum = fma(to_float(dots[j]), scale, sum);
      }
    }
  }
  if constexpr (Traits::kHasFloatMinima) {
    const F32x16 minimum = reader.minimum(group);
    PACELINE_UNROLL
    for (int j = 0; j < kCount; ++j) {
      partial[kFirst + j] = fma(broadcast(rows.row_sums[kFirst + j].sums[group]), minimum, partial[kFirst + j]);
    }
  }
  if constexpr (kFirst + kChains < kRows) {
    add_group<type, kChains, kFirst + kChains>(rows, weights, reader, group, partial);
  }
}

// Subtracts the integer minima of a super-block from rows [kFirst, kRows), one integer dot product a row.
template <GgmlType type, int kChains, int kFirst, int kRows, class Scales>
inline __attribute__((always_inline)) void subtract_minima(const TileRows<type, kRows>& rows, const Scales& reader,
                                                           F32x16 (&partial)[kRows]) {
  constexpr int kCount = kRows - kFirst < kChains ? kRows - kFirst : kChains;
  I32x16 dots[kCount];
  PACELINE_UNROLL
  for (int j = 0; j < kCount; ++j) dots[j] = zero_int();
  PACELINE_UNROLL
  for (int group = 0; group < 8; ++group) {
    const I32x16 pairs = reader.minimum_pairs(group);
    PACELINE_UNROLL
    for (int j = 0; j < kCount; ++j) dots[j] = pair_dot(dots[j], pairs, rows.row_sums[kFirst + j].small_sums + 2 * group);
  }
  const F32x16 scale = reader.minimum_scale();
  PACELINE_UNROLL
  for (int j = 0; j < kCount; ++j) partial[kFirst + j] = negated_fma(to_float(dots[j]), scale, partial[kFirst + j]);
  if constexpr (kFirst + kChains < kRows) subtract_minima<type, kChains, kFirst + kChains>(rows, reader, partial);
}

// Adds to `partial` the super-block of weights at `block`, which has `groups` groups of 32.
template <GgmlType type, int kChains, int kRows>
inline __attribute__((always_inline)) void sum_super_block(const TileRows<type, kRows>& rows, const uint8_t* block,
                                                           int groups, F32x16 (&partial)[kRows]) {
  using Numbers = Layout<type>;
  const ScaleReader<Numbers::kScales> reader(block + groups * Numbers::kIntegerBytes, groups);
  for (int group = 0; group < groups; ++group) {
    for (int line = 0; line < Numbers::kGroupBytes; line += kRegisterBytes) {
      __builtin_prefetch(block + group * Numbers::kGroupBytes + line + kPrefetchBytes);
    }
    const GroupWeights weights = unpack_group<type>(block + group * Numbers::kIntegerBytes);
    add_group<type, kChains, 0>(rows, weights, reader, group, partial);
  }
  if constexpr (TileTraits<type>::kHasIntegerMinima) subtract_minima<type, kChains, 0>(rows, reader, partial);
}

// out[row * stride + column] for `columns` columns of the block at `block` and kRows rows.
template <GgmlType type, int kRows, int kChains>
[[gnu::noinline]] void quantized_tile(const uint8_t* block, const RowSlice& rows, int columns, float* out,
                                      int64_t stride) {
  F32x16 total[kRows];
  PACELINE_UNROLL
  for (int row = 0; row < kRows; ++row) total[row] = zero();
  for (int64_t b = 0; b * kSuperBlock < rows.inputs; ++b) {
    const int64_t remaining = rows.inputs - b * kSuperBlock;
    const bool is_whole = TileTraits<type>::kIsWhole || remaining >= kSuperBlock;
    const int groups = static_cast<int>((is_whole ? kSuperBlock : remaining) / kGroup);
    const TileRows<type, kRows> tile(rows, b, groups);
    if constexpr (TileTraits<type>::kHasGroupScales) {
      sum_super_block<type, kChains>(tile, block, groups, total);
    } else {
      F32x16 partial[kRows];
      PACELINE_UNROLL
      for (int row = 0; row < kRows; ++row) partial[row] = zero();
      sum_super_block<type, kChains>(tile, block, groups, partial);
      PACELINE_UNROLL
      for (int row = 0; row < kRows; ++row) total[row] = fma(partial[row], tile.scale(row, 0), total[row]);
    }
    block += groups * Layout<type>::kGroupBytes;
  }
  PACELINE_UNROLL
  for (int row = 0; row < kRows; ++row) store_partial(out + row * stride, total[row], columns);
}

struct FloatElement {
  static constexpr int kBytes = 4;
  static F32x16 load_weights(const uint8_t* source) { return load(reinterpret_cast<const float*>(source)); }
};
struct HalfElement {
  static constexpr int kBytes = 2;
  static F32x16 load_weights(const uint8_t* source) { return load_half(reinterpret_cast<const uint16_t*>(source)); }
};
struct BFloat16Element {
  static constexpr int kBytes = 2;
  static F32x16 load_weights(const uint8_t* source) { return load_bfloat16(reinterpret_cast<const uint16_t*>(source)); }
};

// As quantized_tile, for float weights; `rows`: [kRows][inputs].
template <class Element, int kRows>
[[gnu::noinline]] void float_tile(const uint8_t* block, const float* rows, int64_t inputs, int columns, float* out,
                                  int64_t stride) {
  F32x16 total[kRows];
  PACELINE_UNROLL
  for (int row = 0; row < kRows; ++row) total[row] = zero();
  for (int64_t i = 0; i < inputs; ++i, block += kColumnBlock * Element::kBytes) {
    __builtin_prefetch(block + kPrefetchBytes);
    const F32x16 weights = Element::load_weights(block);
    PACELINE_UNROLL
    for (int row = 0; row < kRows; ++row) total[row] = fma(weights, broadcast(rows[row * inputs + i]), total[row]);
  }
  PACELINE_UNROLL
  for (int row = 0; row < kRows; ++row) store_partial(out + row * stride, total[row], columns);
}

}  // namespace paceline::PACELINE_ISA
