// The row loop of GEMM: a super-block of 16 columns times a tile of rows. All rows of a tile share unpacked weights.
//
// native/quant/layouts.hpp fixes the arithmetic; tiles of any size give a row the same bits.
#pragma once

#include "gemm_unpack.hpp"
#include "paceline/activations.hpp"

// Full unrolling keeps the accumulators of a tile in registers; scalar code is faster with loops.
#if defined(__AVX2__)
#define PACELINE_UNROLL _Pragma("GCC unroll 16")
#else
#define PACELINE_UNROLL
#endif

namespace paceline::PACELINE_ISA {

// How far ahead of the unpacked group weights are prefetched into the second-level cache.
constexpr int64_t kPrefetchBytes = 8192;

// Consecutive rows of activations at one super-block.
struct TileRows {
  const int8_t* planes[2];  // [low, high], each [rows][256]
  const float* scales;
  const ActivationSums* sums;
  const uint8_t* flags;
  const uint64_t* high_quads;

  TileRows(const QuantizedRows& rows, int64_t super_block, int64_t first_row) {
    const int64_t index = super_block * rows.row_capacity + first_row;
    planes[0] = rows.planes[0] + index * kActivationPlane;
    planes[1] = rows.planes[1] + index * kActivationPlane;
    scales = rows.scales + index;
    sums = rows.sums + index;
    flags = rows.flags + index;
    high_quads = rows.high_quads + index;
  }

  // Returns the flags that any of the first `count` rows has.
  inline int all_flags(int count) const {
    int all = 0;
    for (int row = 0; row < count; ++row) all |= flags[row];
    return all;
  }

  // Returns the quads in which the high plane of any of the first `count` rows is not zero.
  inline uint64_t all_high_quads(int count) const {
    uint64_t all = 0;
    for (int row = 0; row < count; ++row) all |= high_quads[row];
    return all;
  }
};

// A super-block of packed weights, unpacked a group or a quad (four inputs) at a time.
template <GgmlType type>
struct PackedGroups {
  const uint8_t* block;
  inline __attribute__((always_inline)) GroupWeights operator()(int group) const {
    using Numbers = Layout<type>;
    for (int line = 0; line < Numbers::kGroupBytes; line += kRegisterBytes) {
      __builtin_prefetch(block + group * Numbers::kGroupBytes + line + kPrefetchBytes, 0, 2);
    }
    return unpack_group<type>(block + group * Numbers::kIntegerBytes);
  }
  inline U8x64 quad(int index) const {
    const uint8_t* group = block + index / kGroupRegisters * Layout<type>::kIntegerBytes;
    return unpack_register<type>(group, index % kGroupRegisters);
  }
};

// Computes dot products of kRegisters registers of weights with kChains runs of activations, values(chain). Chains are
// interleaved, because a single one would be bound by the instruction's latency. The registers are divided into pieces
// that Dots can sum: begin(chain, weights, values) multiplies the first register of a piece, and finish(chain, dots)
// ends it.
template <int kBits, int kRegisters, int kChains, class Values, class Begin, class Finish>
inline __attribute__((always_inline)) void multiply_registers(const U8x64* weights, Values values, Begin begin,
                                                              Finish finish) {
  constexpr int kPiece = kDotRegisters<kBits> < kRegisters ? kDotRegisters<kBits> : kRegisters;
  PACELINE_UNROLL
  for (int piece = 0; piece < kRegisters; piece += kPiece) {
    Dots dots[kChains];
    PACELINE_UNROLL
    for (int chain = 0; chain < kChains; ++chain) dots[chain] = begin(chain, weights[piece], values(chain) + 4 * piece);
    PACELINE_UNROLL
    for (int i = piece + 1; i < piece + kPiece; ++i) {
      PACELINE_UNROLL
      for (int chain = 0; chain < kChains; ++chain) {
        dots[chain] = add_dots<kBits>(dots[chain], weights[i], values(chain) + 4 * i);
      }
    }
    PACELINE_UNROLL
    for (int chain = 0; chain < kChains; ++chain) finish(chain, dots[chain]);
  }
}

// Scales of 256 inputs -----------------------------------------------------------------------------------------------------

// Holds one integer for each run and each of 16 columns, in pairs of runs. times_sums() returns the exact sum over runs
// of this integer times the sum of a row's activations over the run.
template <GgmlType type>
struct RunPairs {
  static constexpr int kCount = 4 * LayoutTraits<type>::kRunsPerGroup;  // pairs of runs in a super-block
  I32x16 pairs[kCount];

  template <class Integers>
  explicit inline __attribute__((always_inline)) RunPairs(Integers integer_of_run) {
    PACELINE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      pairs[i] = make_pairs<LayoutTraits<type>::kIsSigned>(integer_of_run(2 * i), integer_of_run(2 * i + 1));
    }
  }

  inline __attribute__((always_inline)) I32x16 times_sums(const ActivationSums& sums, int plane) const {
    const int16_t* values = LayoutTraits<type>::kRunsPerGroup == 1 ? sums.groups[plane] : sums.sixteens[plane];
    I32x16 sum = zero_int();
    PACELINE_UNROLL
    for (int i = 0; i < kCount; ++i) sum = pair_dot(sum, pairs[i], values + 2 * i);
    return sum;
  }
};

// Whether the zero point is subtracted at the start of dot products.
template <GgmlType type>
constexpr bool kIsCentred = Layout<type>::kZeroPoint == 32;

// Turns the integer sums of a super-block into floats; `is_centred` says whether the zero point is subtracted already.
template <GgmlType type, bool is_centred>
struct BlockFinish {
  using Traits = LayoutTraits<type>;
  using Reader = ScaleReader<Layout<type>::kScales>;
  static constexpr bool kNeedsZeroPoint = !is_centred && Layout<type>::kZeroPoint != 0;
  static constexpr bool kNeedsPairs = Traits::kHasIntegerMinima || kNeedsZeroPoint;

  F32x16 scale;
  F32x16 minimum_scale;
  RunPairs<type> pairs;  // of minima or of scales

  explicit inline __attribute__((always_inline)) BlockFinish(const Reader& reader)
      : scale(reader.block_scale()), minimum_scale(zero()), pairs([&](int run) {
          if constexpr (Traits::kHasIntegerMinima) return reader.integer_minimum(run);
          if constexpr (!Traits::kHasIntegerMinima) return reader.integer_scale(run);
        }) {
    if constexpr (Traits::kHasIntegerMinima) minimum_scale = reader.minimum_scale();
  }

  // total + the super-block's part of the result
  template <int kPlanes>
  inline __attribute__((always_inline)) F32x16 add(F32x16 total, const I32x16 (&sums)[kPlanes],
                                                   const ActivationSums& activations, float activation_scale) const {
    I32x16 products[kPlanes];
    PACELINE_UNROLL
    for (int plane = 0; plane < kPlanes; ++plane) products[plane] = without_zero_point(sums[plane], activations, plane);
    F32x16 partial = to_float(products[0]);
    if constexpr (kPlanes == 2) partial = fma(to_float(products[1]), broadcast(128.0F), partial);
    partial = multiply(partial, scale);
    if constexpr (Traits::kHasIntegerMinima) {
      I32x16 minima = pairs.times_sums(activations, 0);
      if constexpr (kPlanes == 2) minima = add_int(minima, shift_left<7>(pairs.times_sums(activations, 1)));
      partial = negated_fma(to_float(minima), minimum_scale, partial);
    }
    return fma(partial, broadcast(activation_scale), total);
  }

  inline __attribute__((always_inline)) I32x16 without_zero_point(I32x16 sum, const ActivationSums& activations,
                                                                  int plane) const {
    if constexpr (kNeedsZeroPoint) {
      constexpr int kShift = 2;
      static_assert(Layout<type>::kZeroPoint == 1 << kShift);
      return subtract_int(sum, shift_left<kShift>(pairs.times_sums(activations, plane)));
    } else {
      return sum;
    }
  }
};

// Whether dot products of a run can be finished as 16-bit words, which they fit while activations are light
// (kLightSum).
template <GgmlType type>
constexpr bool has_word_dots() {
  constexpr int kLargestWeight = kIsCentred<type> ? Layout<type>::kZeroPoint : (1 << Layout<type>::kWeightBits) - 1;
  return kHasWordDots && kLargestWeight * kLightSum * (Layout<type>::kScaleInputs / 16) <= INT16_MAX;
}

// Computes integer sums of rows over a super-block, for one plane. A sum is, over all runs, the run's scale times its
// sum of weight integer * activation. Rows must have values(row), which is a row's plane, and start(row, run), the
// start value of the run's dot products if they are centred.
template <GgmlType type, bool kIsWord>
struct RunSums {
  static constexpr int kRuns = LayoutTraits<type>::kRunsPerGroup;
  static constexpr int kRegisters = kGroupRegisters / kRuns;
  static constexpr bool kIsSigned = LayoutTraits<type>::kIsSigned;

  // Adds one run, kChains rows at a time, to `totals`.
  template <int kChains, int kRows, int kFirst = 0, class Rows>
  static inline __attribute__((always_inline)) void add_run(const Rows& rows, int run, const U8x64* weights, Factors factors,
                                                            I32x16 (&totals)[kRows]) {
    constexpr int kCount = kRows - kFirst < kChains ? kRows - kFirst : kChains;
    const int offset = run * Layout<type>::kScaleInputs;
    const auto values = [&](int chain) { return rows.values(kFirst + chain) + offset; };
    const auto begin = [&](int chain, U8x64 first, const int8_t* activations) {
      constexpr int kBits = Layout<type>::kWeightBits;
      if constexpr (kIsCentred<type>) return add_dots<kBits>(begin_dots(rows.start(kFirst + chain, run)), first, activations);
      if constexpr (!kIsCentred<type>) return first_dots<kBits>(first, activations);
    };
    const auto finish = [&](int chain, Dots dots) {
      I32x16& total = totals[kFirst + chain];
      if constexpr (kIsWord) total = finish_word_dots(total, dots, factors);
      if constexpr (!kIsWord) total = finish_dots(total, dots, factors);
    };
    multiply_registers<Layout<type>::kWeightBits, kRegisters, kCount>(weights, values, begin, finish);
    if constexpr (kFirst + kChains < kRows) add_run<kChains, kRows, kFirst + kChains>(rows, run, weights, factors, totals);
  }

  template <int kChains, int kRows, class Rows>
  static inline __attribute__((always_inline)) void add_up(const PackedGroups<type>& source,
                                                           const ScaleReader<Layout<type>::kScales>& reader,
                                                           const Rows& rows, I32x16 (&totals)[kRows]) {
    PACELINE_UNROLL
    for (I32x16& total : totals) total = zero_int();
    for (int group = 0; group < 8; ++group) {
      const GroupWeights weights = source(group);
      PACELINE_UNROLL
      for (int i = 0; i < kRuns; ++i) {
        const int run = kRuns * group + i;
        Factors factors;
        if constexpr (kIsWord) factors = make_word_factors<kIsSigned>(reader.integer_scale(run));
        if constexpr (!kIsWord) factors = make_factors<kIsSigned>(reader.integer_scale(run));
        add_run<kChains>(rows, run, weights.registers + i * kRegisters, factors, totals);
      }
    }
  }
};

// The low planes of consecutive rows.
struct LowRows {
  const int8_t* first;
  const ActivationSums* sums;
  inline const int8_t* values(int row) const { return first + row * kActivationPlane; }
  inline int32_t start(int row, int run) const { return sums[row].centred_starts[run]; }
};

// One plane of rows that need not be consecutive.
template <int kRows>
struct ChosenRows {
  const TileRows& tile;
  int plane;
  int rows[kRows];
  inline const int8_t* values(int i) const { return tile.planes[plane] + rows[i] * kActivationPlane; }
  inline int32_t start(int i, int run) const {
    return centred_start<16>(values(i) + 16 * run, tile.sums[rows[i]].sixteens[plane][run]);
  }
};

// Computes the sums of one plane for those of the first `num_rows` rows that have `flag`; others keep their `totals`.
template <GgmlType type, int kChains>
[[gnu::noinline]] void sum_flagged_rows(const TileRows& rows, int num_rows, int flag, int plane,
                                        const PackedGroups<type>& source, const uint8_t* scales, I32x16* totals) {
  const ScaleReader<Layout<type>::kScales> reader(scales, 8);
  ChosenRows<kChains> chosen{rows, plane, {}};
  int count = 0;
  for (int row = 0; row < num_rows; ++row) {
    if ((rows.flags[row] & flag) != 0) chosen.rows[count++] = row;
    if (count == kChains || (count > 0 && row + 1 == num_rows)) {
      for (int i = count; i < kChains; ++i) chosen.rows[i] = chosen.rows[0];
      I32x16 sums[kChains];
      RunSums<type, false>::template add_up<kChains>(source, reader, chosen, sums);
      for (int i = 0; i < count; ++i) totals[chosen.rows[i]] = sums[i];
      count = 0;
    }
  }
}

// Adds the products of high planes to the sums of `num_rows` rows, quad by quad, for the few quads that are not zero.
template <GgmlType type>
[[gnu::noinline]] void add_few_high(const TileRows& rows, int num_rows, const PackedGroups<type>& source, const uint8_t* scales,
                                    I32x16* totals) {
  constexpr int kBits = Layout<type>::kWeightBits;
  const ScaleReader<Layout<type>::kScales> reader(scales, 8);
  for (uint64_t quads = rows.all_high_quads(num_rows); quads != 0; quads &= quads - 1) {
    const int quad = __builtin_ctzll(quads);
    const U8x64 weights = source.quad(quad);
    const int run = 4 * quad / Layout<type>::kScaleInputs;
    const Factors factors = make_factors<LayoutTraits<type>::kIsSigned>(reader.integer_scale(run));
    for (int row = 0; row < num_rows; ++row) {
      if ((rows.high_quads[row] >> quad & 1) == 0) continue;
      const int8_t* values = rows.planes[1] + row * kActivationPlane + 4 * quad;
      Dots dots;
      if constexpr (kIsCentred<type>) {
        const int32_t sum = values[0] + values[1] + values[2] + values[3];
        dots = add_dots<kBits>(begin_dots(centred_start<4>(values, sum)), weights, values);
      }
      if constexpr (!kIsCentred<type>) dots = first_dots<kBits>(weights, values);
      totals[row] = finish_dots(totals[row], dots, factors);
    }
  }
}

// Adds a super-block to `total`, for types with integer scales; `scales` are those of the super-block. Few rows have a
// high plane, and most of these only in one quad, so high planes are multiplied for these rows only.
template <GgmlType type, int kChains, int kRows>
inline __attribute__((always_inline)) void add_whole_block(const TileRows& rows, const PackedGroups<type>& source,
                                                           const uint8_t* scales, F32x16 (&total)[kRows]) {
  constexpr bool kIsWord = has_word_dots<type>();
  constexpr int kFewChains = kChains < 2 ? kChains : 2;
  const ScaleReader<Layout<type>::kScales> reader(scales, 8);
  const int flags = rows.all_flags(kRows);
  I32x16 low[kRows];
  RunSums<type, kIsWord>::template add_up<kChains>(source, reader, LowRows{rows.planes[0], rows.sums}, low);
  if (kIsWord && (flags & kIsHeavy) != 0) {
    I32x16 sums[kRows];  // a copy, because passing `low` itself would keep it in memory all the time
    PACELINE_UNROLL
    for (int row = 0; row < kRows; ++row) sums[row] = low[row];
    sum_flagged_rows<type, kFewChains>(rows, kRows, kIsHeavy, 0, source, scales, sums);
    PACELINE_UNROLL
    for (int row = 0; row < kRows; ++row) low[row] = sums[row];
  }
  const BlockFinish<type, kIsCentred<type>> finish(reader);
  if ((flags & kHasHigh) != 0) {
    I32x16 high[kRows];
    PACELINE_UNROLL
    for (I32x16& sum : high) sum = zero_int();
    if ((flags & kHasManyHigh) != 0) {
      sum_flagged_rows<type, kFewChains>(rows, kRows, kHasHigh, 1, source, scales, high);
    } else {
      add_few_high<type>(rows, kRows, source, scales, high);
    }
    PACELINE_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if ((rows.flags[row] & kHasHigh) != 0) {
        total[row] = finish.add(total[row], {low[row], high[row]}, rows.sums[row], rows.scales[row]);
      } else {
        total[row] = finish.add(total[row], {low[row]}, rows.sums[row], rows.scales[row]);
      }
    }
  } else {
    PACELINE_UNROLL
    for (int row = 0; row < kRows; ++row) total[row] = finish.add(total[row], {low[row]}, rows.sums[row], rows.scales[row]);
  }
}

// Scales of 32 inputs ------------------------------------------------------------------------------------------------------

// Adds group `group` to `partial`.
template <GgmlType type, int kPlanes, int kChains, int kRows, int kFirst = 0>
inline __attribute__((always_inline)) void add_group(const TileRows& rows, const GroupWeights& weights,
                                                     const ScaleReader<Layout<type>::kScales>& reader, int group,
                                                     F32x16 (&partial)[kRows]) {
  constexpr int kBits = Layout<type>::kWeightBits;
  constexpr int kZeroPoint = kBits == 8 && kCentersEightBits ? 0 : Layout<type>::kZeroPoint;
  constexpr int kCount = kRows - kFirst < kChains ? kRows - kFirst : kChains;
  const int64_t offset = kFirst * kActivationPlane + group * kGroup;
  I32x16 sums[kCount][kPlanes];
  PACELINE_UNROLL
  for (auto& of_row : sums) {
    for (I32x16& sum : of_row) sum = zero_int();
  }
  multiply_registers<kBits, kGroupRegisters, kCount * kPlanes>(
      weights.registers,
      [&](int chain) { return rows.planes[chain % kPlanes] + offset + chain / kPlanes * kActivationPlane; },
      [](int, U8x64 first, const int8_t* activations) { return first_dots<kBits>(first, activations); },
      [&](int chain, Dots dots) {
        I32x16& sum = sums[chain / kPlanes][chain % kPlanes];
        sum = finish_dots(sum, dots);
      });
  const F32x16 scale = reader.scale(group);
  PACELINE_UNROLL
  for (int j = 0; j < kCount; ++j) {
    const int32_t activations = rows.sums[kFirst + j].totals[group];
    I32x16 dot = sums[j][0];
    if constexpr (kPlanes == 2) dot = add_int(dot, shift_left<7>(sums[j][1]));
    if constexpr (kZeroPoint != 0) dot = subtract_int(dot, broadcast_int(kZeroPoint * activations));
    F32x16& sum = partial[kFirst + j];
    sum = fma(to_float(dot), scale, sum);
    if constexpr (LayoutTraits<type>::kHasFloatMinima) {
      sum = fma(to_float(broadcast_int(activations)), reader.minimum(group), sum);
    }
  }
  if constexpr (kFirst + kChains < kRows) {
    add_group<type, kPlanes, kChains, kRows, kFirst + kChains>(rows, weights, reader, group, partial);
  }
}

// Adds a super-block of `groups` groups to `total`, for types with a half-precision scale for each group. High planes
// are multiplied only in groups where any row's high plane is not zero.
template <GgmlType type, int kChains, int kRows>
inline __attribute__((always_inline)) void add_ragged_block(const TileRows& rows, const PackedGroups<type>& source,
                                                            const uint8_t* scales, int groups,
                                                            F32x16 (&total)[kRows]) {
  const ScaleReader<Layout<type>::kScales> reader(scales, groups);
  F32x16 partial[kRows];
  PACELINE_UNROLL
  for (int row = 0; row < kRows; ++row) partial[row] = zero();
  uint64_t high_quads = rows.all_high_quads(kRows);
  for (int group = 0; group < groups; ++group, high_quads >>= kGroupRegisters) {
    if (high_quads % (1 << kGroupRegisters) != 0) {
      add_group<type, 2, (kChains > 1 ? kChains / 2 : 1)>(rows, source(group), reader, group, partial);
    } else {
      add_group<type, 1, kChains>(rows, source(group), reader, group, partial);
    }
  }
  PACELINE_UNROLL
  for (int row = 0; row < kRows; ++row) total[row] = fma(partial[row], broadcast(rows.scales[row]), total[row]);
}

// Both ---------------------------------------------------------------------------------------------------------------------

// kChains is how many dot products of one plane are interleaved.
template <GgmlType type, int kChains, int kRows>
inline __attribute__((always_inline)) void add_super_block(const TileRows& rows, const PackedGroups<type>& source,
                                                           const uint8_t* scales, int groups,
                                                           F32x16 (&total)[kRows]) {
  if constexpr (LayoutTraits<type>::kHasIntegerScales) {
    add_whole_block<type, kChains>(rows, source, scales, total);
  } else {
    add_ragged_block<type, kChains>(rows, source, scales, groups, total);
  }
}

// Returns how many groups of 32 inputs a super-block has.
template <GgmlType type>
inline int groups_of(int64_t inputs, int64_t super_block) {
  const int64_t remaining = inputs - super_block * kSuperBlock;
  const bool is_whole = LayoutTraits<type>::kHasIntegerScales || remaining >= kSuperBlock;
  return static_cast<int>((is_whole ? kSuperBlock : remaining) / kGroup);
}

// Computes out[row * stride + column] for `columns` columns of the block at `block` and kRows rows from first_row on.
template <GgmlType type, int kRows, int kChains>
[[gnu::noinline]] void quantized_tile(const uint8_t* block, const QuantizedRows& rows, int64_t first_row, int columns,
                                      float* out, int64_t stride) {
  F32x16 total[kRows];
  PACELINE_UNROLL
  for (int row = 0; row < kRows; ++row) total[row] = zero();
  for (int64_t b = 0; b < rows.num_super_blocks(); ++b) {
    const int groups = groups_of<type>(rows.inputs, b);
    const uint8_t* scales = block + groups * Layout<type>::kIntegerBytes;
    add_super_block<type, kChains>(TileRows(rows, b, first_row), PackedGroups<type>{block}, scales, groups, total);
    block += groups * Layout<type>::kGroupBytes;
  }
  PACELINE_UNROLL
  for (int row = 0; row < kRows; ++row) store_partial(out + row * stride, total[row], columns);
}

// Float weights --------------------------------------------------------------------------------------------------------------

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

// Does the same as quantized_tile for float weights; `rows`: [kRows][inputs].
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
