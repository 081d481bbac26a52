// A super-block of weights as two planes of bytes with the integer scales multiplied in, what AMX tiles hold.
//
// weight integer * integer scale = (high << kShift) + low, exactly. Unsigned types split the scale in two digits of three bits,
// so that each product fits an unsigned byte (31 * 7); types with a zero point split the product, which has up to 13 bits, in a
// signed upper and an unsigned lower part of seven.
#pragma once

#include "kernels/templates/gemm_tile.hpp"

namespace paceline::PACELINE_ISA {

constexpr int64_t kPlaneBytes = 4096;  // 256 inputs of 16 columns: [64 inputs / 4][16 columns][4 inputs] bytes, four times

template <GgmlType type>
struct ScaledPlanes {
  static constexpr bool kIsSigned = Layout<type>::kZeroPoint != 0;
  static constexpr int kShift = kIsSigned ? 7 : 3;
};

// Splits the registers of one run of inputs that share a scale; `high` is where the run's high plane begins.
template <int kRegisters>
inline __attribute__((always_inline)) void split_unsigned(const U8x64* weights, I32x16 scales, uint8_t* high) {
  const I32x16 low_digits = extract_bits<0, 7>(scales);
  const I32x16 high_digits = extract_bits<3, 7>(scales);
  const __m512i low_factors = make_pairs(low_digits, low_digits).value;
  const __m512i high_factors = make_pairs(high_digits, high_digits).value;
  PACELINE_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    // Two bytes at once: the lower product cannot carry into the upper.
    store_bytes(high + i * kRegisterBytes, {_mm512_mullo_epi16(weights[i].value, high_factors)});
    store_bytes(high + kPlaneBytes + i * kRegisterBytes, {_mm512_mullo_epi16(weights[i].value, low_factors)});
  }
}

template <int kZeroPoint, int kRegisters>
inline __attribute__((always_inline)) void split_signed(const U8x64* weights, I32x16 scales, uint8_t* high) {
  constexpr __mmask64 kOddBytes = 0xaaaaaaaaaaaaaaaaU;
  const __m512i pairs = make_pairs(scales, scales).value;
  const __m512i even_factors = _mm512_and_si512(pairs, _mm512_set1_epi16(0xff));
  const __m512i odd_factors = _mm512_slli_epi16(pairs, 8);
  const __m512i centre = _mm512_mullo_epi16(pairs, _mm512_set1_epi16(kZeroPoint));
  const __m512i seven_bits = _mm512_set1_epi8(0x7f);
  PACELINE_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    const __m512i even = _mm512_sub_epi16(_mm512_maddubs_epi16(weights[i].value, even_factors), centre);
    const __m512i odd = _mm512_sub_epi16(_mm512_maddubs_epi16(weights[i].value, odd_factors), centre);
    const __m512i upper = _mm512_mask_blend_epi8(kOddBytes, _mm512_srai_epi16(even, 7), _mm512_slli_epi16(odd, 1));
    const __m512i lower = _mm512_mask_blend_epi8(kOddBytes, even, _mm512_slli_epi16(odd, 8));
    store_bytes(high + i * kRegisterBytes, {upper});
    store_bytes(high + kPlaneBytes + i * kRegisterBytes, {_mm512_and_si512(lower, seven_bits)});
  }
}

// Writes groups [first, last) of both planes of the super-block at `block`: high, then low, kPlaneBytes each.
template <GgmlType type>
inline void split_groups(const uint8_t* block, const uint8_t* scales, int first, int last, uint8_t* planes) {
  constexpr int kRuns = LayoutTraits<type>::kRunsPerGroup;
  constexpr int kRegisters = kGroupRegisters / kRuns;
  const ScaleReader<Layout<type>::kScales> reader(scales, 8);
  const PackedGroups<type> source{block};
  for (int group = first; group < last; ++group) {
    const GroupWeights weights = source(group);
    PACELINE_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      const I32x16 scale = reader.integer_scale(kRuns * group + run);
      const U8x64* registers = weights.registers + run * kRegisters;
      uint8_t* target = planes + (group * kGroupRegisters + run * kRegisters) * kRegisterBytes;
      if constexpr (ScaledPlanes<type>::kIsSigned) {
        split_signed<Layout<type>::kZeroPoint, kRegisters>(registers, scale, target);
      } else {
        split_unsigned<kRegisters>(registers, scale, target);
      }
    }
  }
}

}  // namespace paceline::PACELINE_ISA
