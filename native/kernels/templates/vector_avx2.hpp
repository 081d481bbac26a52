// The AVX2 definition of the sixteen lanes: two registers, lanes 0..7 and 8..15.
#pragma once

#include <immintrin.h>

namespace paceline::PACELINE_ISA {

struct F32x16 {
  __m256 low, high;
};
struct I32x16 {
  __m256i low, high;
};
// Sixteen groups of four unsigned bytes: the weights of 16 columns at 4 consecutive k.
struct U8x64 {
  __m256i low, high;
};

// All bits set in lanes below `count` (any integer) of eight.
inline __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

inline F32x16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 load(const float* source) { return {_mm256_loadu_ps(source), _mm256_loadu_ps(source + 8)}; }
inline F32x16 load_partial(const float* source, int count) {
  return {_mm256_maskload_ps(source, first_lanes(count)), _mm256_maskload_ps(source + 8, first_lanes(count - 8))};
}
inline void store(float* target, F32x16 x) {
  _mm256_storeu_ps(target, x.low);
  _mm256_storeu_ps(target + 8, x.high);
}
inline void store_partial(float* target, F32x16 x, int count) {
  _mm256_maskstore_ps(target, first_lanes(count), x.low);
  _mm256_maskstore_ps(target + 8, first_lanes(count - 8), x.high);
}
inline F32x16 load_half(const uint16_t* source) {
  const auto* halves = reinterpret_cast<const __m128i*>(source);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline __m256 widen_bfloat16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline F32x16 load_bfloat16(const uint16_t* source) {
  const auto* bits = reinterpret_cast<const __m128i*>(source);
  return {widen_bfloat16(_mm_loadu_si128(bits)), widen_bfloat16(_mm_loadu_si128(bits + 1))};
}
inline void store_half(uint16_t* target, F32x16 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  auto* halves = reinterpret_cast<__m128i*>(target);
  _mm_storeu_si128(halves, _mm256_cvtps_ph(x.low, kNearest));
  _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(x.high, kNearest));
}

inline F32x16 add(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline F32x16 subtract(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline F32x16 multiply(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline F32x16 divide(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline F32x16 maximum(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
inline F32x16 minimum(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
inline F32x16 absolute(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline F32x16 negated_fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 if_less, F32x16 otherwise) {
  return {_mm256_blendv_ps(otherwise.low, if_less.low, _mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_blendv_ps(otherwise.high, if_less.high, _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline F32x16 keep_first(F32x16 x, int count, float fill) {
  const __m256 other = _mm256_set1_ps(fill);
  return {_mm256_blendv_ps(other, x.low, _mm256_castsi256_ps(first_lanes(count))),
          _mm256_blendv_ps(other, x.high, _mm256_castsi256_ps(first_lanes(count - 8)))};
}

inline float reduce_add(F32x16 x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float reduce_maximum(F32x16 x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline I32x16 zero_int() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I32x16 broadcast_int(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I32x16 round_to_int(F32x16 x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
inline F32x16 to_float(I32x16 x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
inline void store_as_int8(int8_t* target, I32x16 x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.low, x.high), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(target), bytes);
}
inline int32_t reduce_add_int(I32x16 x) {
  const __m256i eight = _mm256_add_epi32(x.low, x.high);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}
inline F32x16 scale_by_power_of_two(F32x16 x, I32x16 n) {
  const __m256i low = _mm256_add_epi32(_mm256_castps_si256(x.low), _mm256_slli_epi32(n.low, 23));
  const __m256i high = _mm256_add_epi32(_mm256_castps_si256(x.high), _mm256_slli_epi32(n.high, 23));
  return {_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}

}  // namespace paceline::PACELINE_ISA
