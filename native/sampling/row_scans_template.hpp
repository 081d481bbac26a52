// The row scans of one instruction set; a source defines PACELINE_ISA, then includes this and nothing else.
#pragma once

#include "kernels/templates/vector.hpp"
#include "sampling/row_scans.hpp"

namespace paceline::PACELINE_ISA {

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
  uint32_t words[4][16];
  noise_bits(key, static_cast<uint32_t>(block * (kScanBlock / 4)), words);
  for (int i = 0; i < 16; ++i) {
    for (int word = 0; word < 4; ++word) bits[4 * i + word] = words[word][i];
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
