// The AVX2 definition of the sixteen lanes: two registers, lanes 0..7 and 8..15.
#pragma once

#include "vector_bytes.hpp"

namespace paceline::PACELINE_ISA {

struct F32x16 {
  __m256 low, high;
};
struct I32x16 {
  __m256i low, high;
};
// Sixteen groups of four unsigned bytes: the weights of 16 columns at 4 consecutive inputs.
struct U8x64 {
  __m256i low, high;
};

// Returns eight lanes, with all bits set in the lanes below `count`, which may be any integer.
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
inline int largest_sixteen(const int8_t* values) {
  __m256i largest = _mm256_setzero_si256();
  for (int i = 0; i < 256; i += 32) {
    const __m256i magnitudes = _mm256_abs_epi8(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i)));
    const __m256i eights = _mm256_sad_epu8(magnitudes, _mm256_setzero_si256());
    largest = _mm256_max_epi32(largest, _mm256_add_epi32(eights, _mm256_shuffle_epi32(eights, 0x4e)));
  }
  const __m128i two = _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
  return _mm_cvtsi128_si32(two);
}
inline uint64_t nonzero_quads(const int8_t* values) {
  uint64_t zeros = 0;
  for (int i = 0; i < 8; ++i) {
    const __m256i quads = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values) + i);
    const __m256i is_zero = _mm256_cmpeq_epi32(quads, _mm256_setzero_si256());
    zeros |= static_cast<uint64_t>(_mm256_movemask_ps(_mm256_castsi256_ps(is_zero))) << 8 * i;
  }
  return ~zeros;
}
template <int kLimit>
inline __m256i keep_beyond_half(__m256i x, __m256i by) {
  return _mm256_and_si256(x, _mm256_cmpgt_epi32(_mm256_abs_epi32(by), _mm256_set1_epi32(kLimit)));
}
template <int kLimit>
inline I32x16 keep_beyond(I32x16 x, I32x16 by) {
  return {keep_beyond_half<kLimit>(x.low, by.low), keep_beyond_half<kLimit>(x.high, by.high)};
}
inline I32x16 add_int(I32x16 a, I32x16 b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline I32x16 subtract_int(I32x16 a, I32x16 b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}
template <int kShift>
inline I32x16 shift_left(I32x16 x) {
  return {_mm256_slli_epi32(x.low, kShift), _mm256_slli_epi32(x.high, kShift)};
}
template <int kShift>
inline I32x16 shift_right(I32x16 x) {
  return {_mm256_srai_epi32(x.low, kShift), _mm256_srai_epi32(x.high, kShift)};
}
inline F32x16 scale_by_power_of_two(F32x16 x, I32x16 n) {
  const __m256i low = _mm256_add_epi32(_mm256_castps_si256(x.low), _mm256_slli_epi32(n.low, 23));
  const __m256i high = _mm256_add_epi32(_mm256_castps_si256(x.high), _mm256_slli_epi32(n.high, 23));
  return {_mm256_castsi256_ps(low), _mm256_castsi256_ps(high)};
}

// Bytes and exact integer dot products, for GEMM; vector_scalar.hpp says what each means
// -------------------------------
constexpr bool kCentersEightBits = true;

inline U8x64 load_bytes(const uint8_t* source) {
  const auto* halves = reinterpret_cast<const __m256i*>(source);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
template <int kShift>
inline __m256i shift_words(__m256i x) {
  return kShift >= 0 ? _mm256_srli_epi16(x, kShift >= 0 ? kShift : 0) : _mm256_slli_epi16(x, kShift < 0 ? -kShift : 0);
}
template <int kShift, int kMask>
inline U8x64 extract_bits(U8x64 x) {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(kMask));
  return {_mm256_and_si256(shift_words<kShift>(x.low), mask), _mm256_and_si256(shift_words<kShift>(x.high), mask)};
}
template <int kShift, int kMask>
inline U8x64 insert_bits(U8x64 base, U8x64 x) {
  const U8x64 bits = extract_bits<kShift, kMask>(x);
  return {_mm256_or_si256(base.low, bits.low), _mm256_or_si256(base.high, bits.high)};
}
inline U8x64 lookup(const uint8_t (&table)[16], U8x64 index) {
  const __m256i entries = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(entries, index.low), _mm256_shuffle_epi8(entries, index.high)};
}
inline __m256i broadcast_four_bytes(const void* source) {
  int32_t four;
  std::memcpy(&four, source, sizeof(four));
  return _mm256_set1_epi32(four);
}
// Two 16-bit sums for each column. A register adds two products to a sum, at most 2 * (2^bits - 1) * 127, which limits
// kDotRegisters. Sums of 6-bit weights begin centred: they may wrap on the way, but end within 2 * 32 * 127 a register.
struct Dots {
  __m256i low, high;
};
template <int kBits>
constexpr int kDotRegisters = kBits <= 4 ? 8 : kBits <= 6 ? 4 : 1;
inline Dots begin_dots(int32_t start) { return {_mm256_set1_epi32(start), _mm256_set1_epi32(start)}; }
// Returns the start values of a column's two sums. It needs the activations themselves, because the sum of all
// activations does not say how it divides between the two.
template <int kCount>
inline int32_t centred_start(const int8_t* activations, int32_t) {
  int32_t quads[4] = {};
  std::memcpy(quads, activations, kCount);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(quads));
  const __m128i four = _mm_maddubs_epi16(_mm_set1_epi8(1), bytes);
  const __m128i two = _mm_add_epi16(four, _mm_shuffle_epi32(four, 0x4e));
  const __m128i one = _mm_add_epi16(two, _mm_shuffle_epi32(two, 0xb1));
  return _mm_cvtsi128_si32(_mm_slli_epi16(_mm_sub_epi16(_mm_setzero_si128(), one), 5));
}
// Written as assembly, because compilers compute many products before adding them, and keep most of them on the stack.
inline __m256i add_products(__m256i sum, __m256i weights, __m256i four) {
  __m256i product;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(weights), "x"(four));
  return sum;
}
// Multiplies 8-bit weights minus 128. Their sign moves to the activations, so that maddubs cannot saturate: the largest
// sum is 2 * 128 * 127.
inline __m256i multiply_centred(__m256i weights, __m256i four) {
  const __m256i centred = _mm256_xor_si256(weights, _mm256_set1_epi8(-128));
  return _mm256_maddubs_epi16(_mm256_abs_epi8(centred), _mm256_sign_epi8(four, centred));
}
template <int kBits>
inline Dots first_dots(U8x64 weights, const int8_t* activations) {
  const __m256i four = broadcast_four_bytes(activations);
  if constexpr (kBits == 8) return {multiply_centred(weights.low, four), multiply_centred(weights.high, four)};
  if constexpr (kBits < 8) return {_mm256_maddubs_epi16(weights.low, four), _mm256_maddubs_epi16(weights.high, four)};
}
// Not for 8-bit weights, because Dots hold only one register of these.
template <int kBits>
inline Dots add_dots(Dots dots, U8x64 weights, const int8_t* activations) {
  const __m256i four = broadcast_four_bytes(activations);
  return {add_products(dots.low, weights.low, four), add_products(dots.high, weights.high, four)};
}
// Each scale is there twice, for both sums of a column.
struct Factors {
  __m256i low, high;
};
inline I32x16 finish_dots(I32x16 sum, Dots dots, Factors factors) {
  return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(dots.low, factors.low)),
          _mm256_add_epi32(sum.high, _mm256_madd_epi16(dots.high, factors.high))};
}
inline I32x16 finish_dots(I32x16 sum, Dots dots) {
  const __m256i one = _mm256_set1_epi16(1);
  return finish_dots(sum, dots, {one, one});
}
template <bool kIsSigned>
inline I32x16 widen_bytes(U8x16 x) {
  const __m128i upper = _mm_srli_si128(x.value, 8);
  if constexpr (kIsSigned) return {_mm256_cvtepi8_epi32(x.value), _mm256_cvtepi8_epi32(upper)};
  if constexpr (!kIsSigned) return {_mm256_cvtepu8_epi32(x.value), _mm256_cvtepu8_epi32(upper)};
}
template <bool kIsSigned>
inline I32x16 make_pairs(U8x16 first, U8x16 second) {
  const __m128i low = _mm_unpacklo_epi8(first.value, second.value);
  const __m128i high = _mm_unpackhi_epi8(first.value, second.value);
  if constexpr (kIsSigned) return {_mm256_cvtepi8_epi16(low), _mm256_cvtepi8_epi16(high)};
  if constexpr (!kIsSigned) return {_mm256_cvtepu8_epi16(low), _mm256_cvtepu8_epi16(high)};
}
template <bool kIsSigned>
inline Factors make_factors(U8x16 scales) {
  const I32x16 pairs = make_pairs<kIsSigned>(scales, scales);
  return {pairs.low, pairs.high};
}
constexpr bool kHasWordDots = false;
template <bool kIsSigned>
inline Factors make_word_factors(U8x16 scales) {
  return make_factors<kIsSigned>(scales);
}
inline I32x16 finish_word_dots(I32x16 sum, Dots dots, Factors factors) { return finish_dots(sum, dots, factors); }
inline I32x16 pair_dot(I32x16 sum, I32x16 pairs, const int16_t* values) {
  const __m256i two = broadcast_four_bytes(values);
  return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(pairs.low, two)),
          _mm256_add_epi32(sum.high, _mm256_madd_epi16(pairs.high, two))};
}

}  // namespace paceline::PACELINE_ISA
