// Passes over a vocabulary row that sampling needs beside the kernels, one table for each instruction set.
//
// All of them are exact (integers, comparisons, or sums on a grid that doubles hold without rounding), so the tables give
// equal bits in whatever order they work.
#pragma once

#include <cstdint>

#include "paceline/kernel_table.hpp"
#include "sampling/philox.hpp"

namespace paceline {

constexpr int64_t kScanBlock = 64;            // tokens that a block maximum covers
constexpr int64_t kMaxVocabulary = 1 << 20;   // bound of the exact sums

struct RowScans {
  bool (*has_nan)(const float* row, int64_t n);
  // maxima[b] = largest of row[64 b .. 64 b + 63] (the last block may be shorter)
  void (*block_maxima)(const float* row, int64_t n, float* maxima);
  // Sum of weights in [0, 1], each rounded to a multiple of 2^-33; exact for up to 2^20 weights.
  double (*sum_weights)(const float* weights, int64_t n);
  // Draws the noise bits of tokens 64 b .. 64 b + 63 and says whether any of them may have noise / weight <= best; `weights`
  // are the block's. bits[t] belongs to token 64 b + t.
  bool (*draw_block)(const NoiseKey& key, int64_t block, const float* weights, float best, uint32_t* bits);
};

// One weight as `sum_weights` counts it.
[[gnu::always_inline]] inline double grid_weight(float weight) {
  constexpr double kGrid = 1.5 * (1 << 19);  // doubles of this size are 2^-33 apart
  return (static_cast<double>(weight) + kGrid) - kGrid;
}

namespace scalar {
const RowScans& row_scans();
}
namespace avx2 {
const RowScans& row_scans();
}
namespace avx512 {
const RowScans& row_scans();
}

}  // namespace paceline
