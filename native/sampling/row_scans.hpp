// Passes over a vocabulary row that sampling needs besides the kernels, in one table for each instruction set.
//
// Each pass is exact (integers, comparisons, or sums on a grid that doubles hold without rounding) or works element by
// element. So the tables give equal bits, in whatever order and pieces they work.
#pragma once

#include <cstdint>

#include "paceline/kernel_table.hpp"
#include "sampling/philox.hpp"

namespace paceline {

constexpr int64_t kScanBlock = 64;            // tokens that a block maximum covers
constexpr int64_t kMaxVocabulary = 1 << 20;   // bound of the exact sums

// A piece of a row that begins at a whole block; the last block may be shorter.
struct RowPiece {
  const float* logits;
  int64_t size;
  float* block_maxima;  // largest logit of each block
};

struct RowScans {
  // Fills the piece's block maxima; returns whether a NaN is among the logits, which leaves the maxima undefined.
  bool (*scan)(const RowPiece& piece);
  // Fills `weights` (rounded up to whole blocks, zero beyond the piece) with e^((logit - maximum) * inverse_temperature) and
  // `weight_maxima` with their block maxima. Blocks whose weights are all below 2^-38 may be filled with zero: such a token
  // can never be drawn and counts nothing in a sum. Returns the sum of the weights, each rounded to a multiple of 2^-33,
  // which is exact for up to 2^20 of them.
  double (*weigh)(const RowPiece& piece, float maximum, float inverse_temperature, float* weights, float* weight_maxima);
  // Sum of the weights of at least `bound`, counted as `weigh` does.
  double (*sum_from)(const float* weights, const float* weight_maxima, int64_t num_blocks, float bound);
  // Bit i says whether bound <= keys[i] < end, for 64 keys.
  uint64_t (*keys_between)(const float* keys, float bound, float end);
  // Draws the noise bits of tokens 64 b .. 64 b + 63 and says whether any of them may have noise / weight <= best; `weights`
  // are the block's. bits[t] belongs to token 64 b + t.
  bool (*draw_block)(const NoiseKey& key, int64_t block, const float* weights, float best, uint32_t* bits);
};

// Returns the weight rounded as the sums count it.
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
