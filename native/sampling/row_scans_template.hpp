// The row scans of one instruction set; a source defines PACELINE_ISA, then includes this and nothing else.
#pragma once

#include "kernels/templates/vector.hpp"
#include "sampling/row_scans.hpp"

namespace paceline::PACELINE_ISA {

// The same word of kCounters Philox counters.
#if defined(__AVX512F__)
constexpr int kCounters = 8;
struct NoiseWord {
  __m512i value;

  static NoiseWord broadcast(uint32_t x) { return {_mm512_set1_epi64(x)}; }
  static NoiseWord count_from(uint32_t first) {
    return {_mm512_add_epi64(_mm512_set1_epi64(first), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7))};
  }
  NoiseWord multiply(uint32_t factor) const { return {_mm512_mul_epu32(value, _mm512_set1_epi64(factor))}; }
  NoiseWord high_half() const { return {_mm512_srli_epi64(value, 32)}; }
  NoiseWord exclusive_or(NoiseWord other) const { return {_mm512_xor_si512(value, other.value)}; }
  void store(uint32_t* target) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), _mm512_cvtepi64_epi32(value));
  }
};
#elif defined(__AVX2__)
constexpr int kCounters = 4;
struct NoiseWord {
  __m256i value;

  static NoiseWord broadcast(uint32_t x) { return {_mm256_set1_epi64x(x)}; }
  static NoiseWord count_from(uint32_t first) {
    return {_mm256_add_epi64(_mm256_set1_epi64x(first), _mm256_setr_epi64x(0, 1, 2, 3))};
  }
  NoiseWord multiply(uint32_t factor) const { return {_mm256_mul_epu32(value, _mm256_set1_epi64x(factor))}; }
  NoiseWord high_half() const { return {_mm256_srli_epi64(value, 32)}; }
  NoiseWord exclusive_or(NoiseWord other) const { return {_mm256_xor_si256(value, other.value)}; }
  void store(uint32_t* target) const {
    const __m256i even = _mm256_permutevar8x32_epi32(value, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target), _mm256_castsi256_si128(even));
  }
};
#else
constexpr int kCounters = 1;
using NoiseWord = PhiloxWord;
#endif

inline bool has_nan(const float* row, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, row + i, sizeof(bits));
    found |= static_cast<uint32_t>((bits & 0x7FFFFFFFU) > 0x7F800000U);
  }
  return found != 0;
}

inline void block_maxima(const float* row, int64_t n, float* maxima) {
  const float lowest = -__builtin_inff();
  int64_t begin = 0;
  for (; begin + kScanBlock <= n; begin += kScanBlock) {
    F32x16 best = load(row + begin);
    for (int64_t i = kLanes; i < kScanBlock; i += kLanes) best = maximum(load(row + begin + i), best);
    *maxima++ = reduce_maximum(best);
  }
  if (begin == n) return;
  *maxima = lowest;
  for (; begin < n; ++begin) *maxima = row[begin] > *maxima ? row[begin] : *maxima;
}

inline double sum_weights(const float* weights, int64_t n) {
  double lanes[16] = {};
  int64_t begin = 0;
  for (; begin + 16 <= n; begin += 16) {
    for (int i = 0; i < 16; ++i) lanes[i] += grid_weight(weights[begin + i]);
  }
  double sum = 0.0;
  for (const double lane : lanes) sum += lane;
  for (; begin < n; ++begin) sum += grid_weight(weights[begin]);
  return sum;
}

inline bool draw_block(const NoiseKey& key, int64_t block, const float* weights, float best, uint32_t* bits) {
  constexpr int kGroups = kScanBlock / 4;  // a counter's four words are the bits of four consecutive tokens
  uint32_t words[4][kGroups];
  for (int group = 0; group < kGroups; group += kCounters) {
    NoiseWord counters[4] = {NoiseWord::count_from(static_cast<uint32_t>(block * kGroups + group)),
                             NoiseWord::broadcast(static_cast<uint32_t>(key.position)),
                             NoiseWord::broadcast(static_cast<uint32_t>(key.position >> 32)),
                             NoiseWord::broadcast(key.choice_index)};
    philox(counters, static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32));
    for (int word = 0; word < 4; ++word) counters[word].store(words[word] + group);
  }
  for (int group = 0; group < kGroups; ++group) {
    for (int word = 0; word < 4; ++word) bits[4 * group + word] = words[word][group];
  }
  // Noise is at least its uniform u. The bits are rounded down and the limit up, so that no winner is missed.
  const float limit = best * 1.0001F;
  uint32_t found = 0;
  for (int i = 0; i < kScanBlock; ++i) {
    const float uniform = static_cast<float>(static_cast<int32_t>(bits[i] >> 8)) * 0x1p-24F;
    found |= static_cast<uint32_t>(uniform <= limit * weights[i]);
  }
  return found != 0;
}

const RowScans& row_scans() {
  static constexpr RowScans kScans{has_nan, block_maxima, sum_weights, draw_block};
  return kScans;
}

}  // namespace paceline::PACELINE_ISA
