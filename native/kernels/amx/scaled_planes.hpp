// Multiplies the weights of a super-block by their integer scales, and splits them into two planes of bytes for tiles.
//
// weight integer * integer scale = (high << kShift) + low, exactly. Unsigned types split the scale into two digits of
// three bits, so that each product fits an unsigned byte (31 * 7). Types with a zero point split the product, which has
// up to 14 bits, into a signed upper byte and an unsigned lower byte. While tiles are multiplied, vector instructions
// issue at half their rate, so this code must take few instructions.
#pragma once

#include "kernels/templates/gemm_tile.hpp"

namespace paceline::PACELINE_ISA {

constexpr int64_t kPlaneBytes = 4096;  // 256 inputs of 16 columns: [64 inputs / 4][16 columns][4 inputs] bytes, four times

template <GgmlType type>
struct ScaledPlanes {
  static constexpr bool kIsSigned = Layout<type>::kZeroPoint != 0;  // of the high plane; the low one never is signed
  static constexpr int kShift = kIsSigned ? 8 : 3;
};

// Returns the scales of sixteen columns in a register of weights. Bit j of `kPattern` says whether byte j of each
// column's four bytes gets the scale; other bytes are zero.
template <int kPattern>
inline __m512i spread_scales(const uint8_t* scales) {
  const auto index_of = [](int column) {
    uint32_t index = 0;
    for (int byte = 0; byte < 4; ++byte) index |= static_cast<uint32_t>(kPattern >> byte & 1 ? column : 0x80) << 8 * byte;
    return static_cast<int>(index);
  };
  const __m512i indices = _mm512_setr_epi32(index_of(0), index_of(1), index_of(2), index_of(3), index_of(4), index_of(5),
                                            index_of(6), index_of(7), index_of(8), index_of(9), index_of(10), index_of(11),
                                            index_of(12), index_of(13), index_of(14), index_of(15));
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), indices);
}
constexpr int kEvenBytes = 0b0101;
constexpr int kOddBytes = 0b1010;

// How many bits of its byte a scale takes; any bits above belong to a minimum.
template <GgmlType type>
constexpr int kScaleBits = Layout<type>::kScales == ScaleKind::kNibbleWithMinimum ? 4 : 6;

// Splits a run of inputs that share a scale; `target` is where the run's high plane begins.
template <int kBits, int kRegisters>
inline __attribute__((always_inline)) void split_unsigned(const U8x64* weights, const uint8_t* scales, uint8_t* target) {
  const __m512i pairs = _mm512_and_si512(spread_scales<kEvenBytes>(scales), _mm512_set1_epi16((1 << kBits) - 1));
  const __m512i low_factors = _mm512_and_si512(pairs, _mm512_set1_epi16(7));
  const __m512i high_factors = _mm512_srli_epi16(pairs, 3);
  PACELINE_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    // Each product multiplies two bytes at once; the lower byte cannot carry into the upper one.
    store_bytes(target + i * kRegisterBytes, {_mm512_mullo_epi16(weights[i].value, high_factors)});
    store_bytes(target + kPlaneBytes + i * kRegisterBytes, {_mm512_mullo_epi16(weights[i].value, low_factors)});
  }
}

template <int kZeroPoint, int kRegisters>
inline __attribute__((always_inline)) void split_signed(const U8x64* weights, const uint8_t* scales, uint8_t* target) {
  constexpr __mmask64 kUpperBytes = 0xaaaaaaaaaaaaaaaaU;
  const __m512i even_factors = spread_scales<kEvenBytes>(scales);
  const __m512i odd_factors = spread_scales<kOddBytes>(scales);
  const __m512i centre = _mm512_maddubs_epi16(_mm512_set1_epi8(kZeroPoint), even_factors);
  PACELINE_UNROLL
  for (int i = 0; i < kRegisters; ++i) {
    const __m512i even = _mm512_sub_epi16(_mm512_maddubs_epi16(weights[i].value, even_factors), centre);
    const __m512i odd = _mm512_sub_epi16(_mm512_maddubs_epi16(weights[i].value, odd_factors), centre);
    const __m512i upper = _mm512_mask_blend_epi8(kUpperBytes, _mm512_srli_epi16(even, 8), odd);
    const __m512i lower = _mm512_mask_blend_epi8(kUpperBytes, even, _mm512_slli_epi16(odd, 8));
    store_bytes(target + i * kRegisterBytes, {upper});
    store_bytes(target + kPlaneBytes + i * kRegisterBytes, {lower});
  }
}

// Writes groups [first, last) of both planes of the super-block at `block`: the high plane, then the low one,
// kPlaneBytes each.
template <GgmlType type>
inline void split_groups(const uint8_t* block, const uint8_t* scales, int first, int last, uint8_t* planes) {
  constexpr int kRuns = LayoutTraits<type>::kRunsPerGroup;
  constexpr int kRegisters = kGroupRegisters / kRuns;
  const PackedGroups<type> source{block};
  for (int group = first; group < last; ++group) {
    const GroupWeights weights = source(group);
    PACELINE_UNROLL
    for (int run = 0; run < kRuns; ++run) {
      const uint8_t* scale = scales + kColumnBlock * (kRuns * group + run);
      const U8x64* registers = weights.registers + run * kRegisters;
      uint8_t* target = planes + (group * kGroupRegisters + run * kRegisters) * kRegisterBytes;
      if constexpr (ScaledPlanes<type>::kIsSigned) {
        split_signed<Layout<type>::kZeroPoint, kRegisters>(registers, scale, target);
      } else {
        split_unsigned<kScaleBits<type>, kRegisters>(registers, scale, target);
      }
    }
  }
}

}  // namespace paceline::PACELINE_ISA
