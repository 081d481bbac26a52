// The AVX-512 definition of the sixteen lanes: one register.
#pragma once

#include "vector_bytes.hpp"

namespace paceline::PACELINE_ISA {

struct F32x16 {
  __m512 value;
};
struct I32x16 {
  __m512i value;
};
// Sixteen groups of four unsigned bytes: the weights of 16 columns at 4 consecutive inputs.
struct U8x64 {
  __m512i value;
};

inline __mmask16 first_lanes(int count) { return static_cast<__mmask16>((1U << count) - 1U); }

inline F32x16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline F32x16 zero() { return {_mm512_setzero_ps()}; }
inline F32x16 load(const float* source) { return {_mm512_loadu_ps(source)}; }
inline F32x16 load_partial(const float* source, int count) {
  return {_mm512_maskz_loadu_ps(first_lanes(count), source)};
}
inline void store(float* target, F32x16 x) { _mm512_storeu_ps(target, x.value); }
inline void store_partial(float* target, F32x16 x, int count) {
  _mm512_mask_storeu_ps(target, first_lanes(count), x.value);
}
inline F32x16 load_half(const uint16_t* source) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)))};
}
inline F32x16 load_bfloat16(const uint16_t* source) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline void store_half(uint16_t* target, F32x16 x) {
  const __m256i bits = _mm512_cvtps_ph(x.value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), bits);
}

inline F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.value, b.value)}; }
inline F32x16 subtract(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.value, b.value)}; }
inline F32x16 multiply(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.value, b.value)}; }
inline F32x16 divide(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.value, b.value)}; }
inline F32x16 maximum(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.value, b.value)}; }
inline F32x16 minimum(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.value, b.value)}; }
inline F32x16 absolute(F32x16 a) { return {_mm512_abs_ps(a.value)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.value, b.value, c.value)}; }
inline F32x16 negated_fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fnmadd_ps(a.value, b.value, c.value)}; }
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 if_less, F32x16 otherwise) {
  const __mmask16 less = _mm512_cmp_ps_mask(a.value, b.value, _CMP_LT_OQ);
  return {_mm512_mask_blend_ps(less, otherwise.value, if_less.value)};
}
inline F32x16 keep_first(F32x16 x, int count, float fill) {
  return {_mm512_mask_blend_ps(first_lanes(count), _mm512_set1_ps(fill), x.value)};
}

inline float reduce_add(F32x16 x) {
  const __m256 low = _mm512_castps512_ps256(x.value);
  const __m256 high = _mm512_extractf32x8_ps(x.value, 1);
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float reduce_maximum(F32x16 x) { return _mm512_reduce_max_ps(x.value); }

inline I32x16 zero_int() { return {_mm512_setzero_si512()}; }
inline I32x16 broadcast_int(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I32x16 round_to_int(F32x16 x) { return {_mm512_cvtps_epi32(x.value)}; }
inline F32x16 to_float(I32x16 x) { return {_mm512_cvtepi32_ps(x.value)}; }
inline void store_as_int8(int8_t* target, I32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target), _mm512_cvtepi32_epi8(x.value));
}
inline int32_t reduce_add_int(I32x16 x) { return _mm512_reduce_add_epi32(x.value); }
inline int largest_sixteen(const int8_t* values) {
  __m512i largest = _mm512_setzero_si512();
  for (int i = 0; i < 256; i += 64) {
    const __m512i magnitudes = _mm512_abs_epi8(_mm512_loadu_si512(values + i));
    const __m512i eights = _mm512_sad_epu8(magnitudes, _mm512_setzero_si512());
    largest = _mm512_max_epi32(largest, _mm512_add_epi32(eights, _mm512_shuffle_epi32(eights, _MM_PERM_BADC)));
  }
  return _mm512_reduce_max_epi32(largest);
}
inline uint64_t nonzero_quads(const int8_t* values) {
  uint64_t quads = 0;
  for (int i = 0; i < 4; ++i) {
    const __m512i sixteen = _mm512_loadu_si512(values + 64 * i);
    quads |= static_cast<uint64_t>(_mm512_test_epi32_mask(sixteen, sixteen)) << 16 * i;
  }
  return quads;
}
template <int kLimit>
inline I32x16 keep_beyond(I32x16 x, I32x16 by) {
  const __mmask16 is_beyond = _mm512_cmpgt_epi32_mask(_mm512_abs_epi32(by.value), _mm512_set1_epi32(kLimit));
  return {_mm512_maskz_mov_epi32(is_beyond, x.value)};
}
inline I32x16 add_int(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.value, b.value)}; }
inline I32x16 subtract_int(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.value, b.value)}; }
template <int kShift>
inline I32x16 shift_left(I32x16 x) {
  return {_mm512_slli_epi32(x.value, kShift)};
}
template <int kShift>
inline I32x16 shift_right(I32x16 x) {
  return {_mm512_srai_epi32(x.value, kShift)};
}
inline F32x16 scale_by_power_of_two(F32x16 x, I32x16 n) {
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.value), _mm512_slli_epi32(n.value, 23)))};
}

// Bytes and exact integer dot products, for GEMM; vector_scalar.hpp says what each means
// -------------------------------
constexpr bool kCentersEightBits = false;

inline U8x64 load_bytes(const uint8_t* source) { return {_mm512_loadu_si512(source)}; }
inline void store_bytes(uint8_t* target, U8x64 x) { _mm512_storeu_si512(target, x.value); }
template <int kShift>
inline __m512i shift_words(__m512i x) {
  return kShift >= 0 ? _mm512_srli_epi16(x, kShift >= 0 ? kShift : 0) : _mm512_slli_epi16(x, kShift < 0 ? -kShift : 0);
}
template <int kShift, int kMask>
inline U8x64 extract_bits(U8x64 x) {
  return {_mm512_and_si512(shift_words<kShift>(x.value), _mm512_set1_epi8(static_cast<char>(kMask)))};
}
template <int kShift, int kMask>
inline U8x64 insert_bits(U8x64 base, U8x64 x) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const __m512i mask = _mm512_set1_epi8(static_cast<char>(kMask));
  return {_mm512_ternarylogic_epi32(shift_words<kShift>(x.value), mask, base.value, kAndOr)};
}
inline U8x64 lookup(const uint8_t (&table)[16], U8x64 index) {
  const __m512i entries = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm512_shuffle_epi8(entries, index.value)};
}
// Written as assembly, because compilers split it into a broadcast and a multiplication, which is one instruction more.
inline __m512i dot_broadcast_bytes(__m512i sum, __m512i weights, const int8_t* activations) {
  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(sum)
          : "v"(weights), "m"(*reinterpret_cast<const int8_t(*)[4]>(activations)));
  return sum;
}
using Dots = I32x16;
template <int kBits>
constexpr int kDotRegisters = 8;
inline Dots begin_dots(int32_t start) { return broadcast_int(start); }
template <int kCount>
inline int32_t centred_start(const int8_t*, int32_t sum) {
  return -32 * sum;
}
template <bool kIsSigned>
inline I32x16 widen_bytes(U8x16 x) {
  return {kIsSigned ? _mm512_cvtepi8_epi32(x.value) : _mm512_cvtepu8_epi32(x.value)};
}
template <int kBits>
inline Dots add_dots(Dots dots, U8x64 weights, const int8_t* activations) {
  return {dot_broadcast_bytes(dots.value, weights.value, activations)};
}
template <int kBits>
inline Dots first_dots(U8x64 weights, const int8_t* activations) {
  return add_dots<kBits>(zero_int(), weights, activations);
}
inline I32x16 finish_dots(I32x16 sum, Dots dots) { return add_int(sum, dots); }
using Factors = I32x16;
template <bool kIsSigned>
inline Factors make_factors(U8x16 scales) {
  return widen_bytes<kIsSigned>(scales);
}
inline I32x16 finish_dots(I32x16 sum, Dots dots, Factors factors) {
  return add_int(sum, {_mm512_mullo_epi32(dots.value, factors.value)});
}
constexpr bool kHasWordDots = true;
// The upper half of the factors is zero, so that the upper half of the dots, which repeats their sign, does not count.
template <bool kIsSigned>
inline Factors make_word_factors(U8x16 scales) {
  return {_mm512_and_si512(widen_bytes<kIsSigned>(scales).value, _mm512_set1_epi32(0xffff))};
}
inline I32x16 finish_word_dots(I32x16 sum, Dots dots, Factors factors) {
  return {_mm512_dpwssd_epi32(sum.value, dots.value, factors.value)};
}
template <bool kIsSigned>
inline I32x16 make_pairs(U8x16 first, U8x16 second) {
  const __m512i upper = _mm512_slli_epi32(widen_bytes<kIsSigned>(second).value, 16);
  return {_mm512_mask_blend_epi16(0xaaaaaaaaU, widen_bytes<kIsSigned>(first).value, upper)};
}
inline I32x16 pair_dot(I32x16 sum, I32x16 pairs, const int16_t* values) {
  __asm__("vpdpwssd %2%{1to16%}, %1, %0"
          : "+v"(sum.value)
          : "v"(pairs.value), "m"(*reinterpret_cast<const int16_t(*)[2]>(values)));
  return sum;
}

}  // namespace paceline::PACELINE_ISA
