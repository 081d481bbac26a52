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

// Bit i says whether bound <= keys[i] < end, for 16 keys.
inline uint32_t lanes_between(const float* keys, float bound, float end) {
  const __m512 lanes = _mm512_loadu_ps(keys);
  const __mmask16 is_enough = _mm512_cmp_ps_mask(lanes, _mm512_set1_ps(bound), _CMP_GE_OQ);
  return _mm512_mask_cmp_ps_mask(is_enough, lanes, _mm512_set1_ps(end), _CMP_LT_OQ);
}
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

inline uint32_t lanes_between(const float* keys, float bound, float end) {
  uint32_t found = 0;
  for (int i = 0; i < 16; i += 8) {
    const __m256 lanes = _mm256_loadu_ps(keys + i);
    const __m256 is_enough = _mm256_cmp_ps(lanes, _mm256_set1_ps(bound), _CMP_GE_OQ);
    const __m256 is_less = _mm256_cmp_ps(lanes, _mm256_set1_ps(end), _CMP_LT_OQ);
    found |= static_cast<uint32_t>(_mm256_movemask_ps(_mm256_and_ps(is_enough, is_less))) << i;
  }
  return found;
}
#else
constexpr int kCounters = 1;
using NoiseWord = PhiloxWord;

inline uint32_t lanes_between(const float* keys, float bound, float end) {
  uint32_t found = 0;
  for (int i = 0; i < 16; ++i) found |= static_cast<uint32_t>(keys[i] >= bound && keys[i] < end) << i;
  return found;
}
#endif

inline bool scan(const RowPiece& piece) {
  uint32_t largest_magnitude = 0;  // bits of a float without its sign; the bits of a NaN are above those of infinity
  for (int64_t begin = 0; begin < piece.size; begin += kScanBlock) {
    const float* logits = piece.logits + begin;
    const int64_t count = piece.size - begin < kScanBlock ? piece.size - begin : kScanBlock;
    F32x16 best = broadcast(-__builtin_inff());
    for (int64_t i = 0; i < count; i += kLanes) {
      const int lanes = static_cast<int>(count - i < kLanes ? count - i : kLanes);
      const F32x16 some = keep_first(load_partial(logits + i, lanes), lanes, -__builtin_inff());
      best = maximum(some, best);
    }
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits;
      std::memcpy(&bits, logits + i, sizeof(bits));
      bits &= 0x7FFFFFFFU;
      largest_magnitude = bits > largest_magnitude ? bits : largest_magnitude;
    }
    piece.block_maxima[begin / kScanBlock] = reduce_maximum(best);
  }
  return largest_magnitude > 0x7F800000U;
}

// Computes the weights of one block, adds them to `sums` and returns the largest.
inline float weigh_block(const float* logits, int64_t count, F32x16 shift, F32x16 factor, float* weights, double* sums) {
  F32x16 best = zero();
  for (int64_t i = 0; i < kScanBlock; i += kLanes) {
    const int64_t left = count - i < 0 ? 0 : count - i;
    const int lanes = static_cast<int>(left < kLanes ? left : kLanes);
    const F32x16 x = multiply(subtract(load_partial(logits + i, lanes), shift), factor);
    const F32x16 some = keep_first(exponential(x), lanes, 0.0F);
    store(weights + i, some);
    best = maximum(some, best);
  }
  for (int64_t i = 0; i < kScanBlock; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += grid_weight(weights[i + lane]);
  }
  return reduce_maximum(best);
}

inline double sum_lanes(const double (&sums)[kLanes]) {
  double sum = 0.0;
  for (const double lane : sums) sum += lane;
  return sum;
}

inline double weigh(const RowPiece& piece, float maximum_logit, float inverse_temperature, float* weights,
                    float* weight_maxima) {
  constexpr float kNegligible = -27.0F;  // e^-27 < 2^-38
  const F32x16 shift = broadcast(maximum_logit);
  const F32x16 factor = broadcast(inverse_temperature);
  double sums[kLanes] = {};
  for (int64_t begin = 0; begin < piece.size; begin += kScanBlock) {
    const int64_t block = begin / kScanBlock;
    const int64_t count = piece.size - begin;
    float* target = weights + begin;
    if ((piece.block_maxima[block] - maximum_logit) * inverse_temperature < kNegligible) {
      std::memset(target, 0, kScanBlock * sizeof(float));
      weight_maxima[block] = 0.0F;
    } else if (count >= kScanBlock) {
      weight_maxima[block] = weigh_block(piece.logits + begin, kScanBlock, shift, factor, target, sums);
    } else {
      weight_maxima[block] = weigh_block(piece.logits + begin, count, shift, factor, target, sums);
    }
  }
  return sum_lanes(sums);
}

inline double sum_from(const float* weights, const float* weight_maxima, int64_t num_blocks, float bound) {
  double sums[kLanes] = {};
  for (int64_t block = 0; block < num_blocks; ++block) {
    if (weight_maxima[block] < bound) continue;
    const float* some = weights + block * kScanBlock;
    for (int64_t i = 0; i < kScanBlock; i += kLanes) {
      const F32x16 lanes = load(some + i);
      float kept[kLanes];
      store(kept, select_less(lanes, broadcast(bound), zero(), lanes));
      for (int lane = 0; lane < kLanes; ++lane) sums[lane] += grid_weight(kept[lane]);
    }
  }
  return sum_lanes(sums);
}

inline uint64_t keys_between(const float* keys, float bound, float end) {
  uint64_t found = 0;
  for (int i = 0; i < kScanBlock; i += kLanes) {
    found |= static_cast<uint64_t>(lanes_between(keys + i, bound, end)) << i;
  }
  return found;
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
  // The noise -ln(1 - u) is at least u. Here u is rounded down and the limit is rounded up, so that no winner is
  // missed.
  const float limit = best * 1.0001F;
  uint32_t found = 0;
  for (int i = 0; i < kScanBlock; ++i) {
    const float uniform = static_cast<float>(static_cast<int32_t>(bits[i] >> 8)) * 0x1p-24F;
    found |= static_cast<uint32_t>(uniform <= limit * weights[i]);
  }
  return found != 0;
}

const RowScans& row_scans() {
  static constexpr RowScans kScans{scan, weigh, sum_from, keys_between, draw_block};
  return kScans;
}

}  // namespace paceline::PACELINE_ISA
