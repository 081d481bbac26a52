// The left side of a GEMM: rows of activations, rounded to integers that one or two planes of int8 hold.
#pragma once

#include <cstdint>

namespace paceline {

constexpr int64_t kActivationPlane = 256;  // values of a plane: one super-block
constexpr int64_t kActivationTile = 32;    // kernels may read whole tiles of rows

enum class ActivationRounding {
  kEightBits,          // and up to 15 bits for outliers
  kEightBitsOfNormed,  // the same for rows that come from a norm; more values count as outliers
  kFifteenBits,
};

// Sums of a row's rounded activations over one super-block; zero points and minima are multiplied by them.
struct ActivationSums {
  int16_t sixteens[2][16];     // [low, high] of 16 inputs each
  int16_t groups[2][8];        // [low, high] of 32 inputs each
  int32_t totals[8];           // of the integers, 32 inputs each
  int32_t centred_starts[16];  // centred_start of 16 low integers each, in the form of the instruction set
};

// Flags of a row's super-block.
constexpr uint8_t kHasHigh = 1;      // without it, the high plane is all zero and need not be read
constexpr uint8_t kIsHeavy = 2;      // without it, magnitudes of 16 inputs of the low plane sum to at most kLightSum
constexpr uint8_t kHasManyHigh = 4;  // more than kFewQuads quads of the high plane are not zero
constexpr int kLightSum = 1023;      // 32 times this fits 16 bits
constexpr int kFewQuads = 8;

// Rounded rows: x is about scale * integer, by the rule in native/quant/layouts.hpp. Everything is ordered by
// super-block first, so that a loop over many rows reads one super-block's part of all rows at once.
struct QuantizedRows {
  int64_t inputs = 0;
  ActivationRounding rounding = ActivationRounding::kEightBits;
  int64_t row_capacity = 0;  // by activation_row_capacity; kernels may read rows that were not written, but ignore them
  // integer = 128 * high + low: [low, high], each [super-blocks][row_capacity][256], aligned to 64 bytes
  int8_t* planes[2] = {};
  float* scales = nullptr;         // [super-blocks][row_capacity]
  ActivationSums* sums = nullptr;  // [super-blocks][row_capacity]
  uint8_t* flags = nullptr;        // [super-blocks][row_capacity]: kHasHigh, kIsHeavy, kHasManyHigh
  uint64_t* high_quads = nullptr;  // [super-blocks][row_capacity]: bit q is set unless high integers 4q to 4q + 3 are all zero

  int64_t num_super_blocks() const { return (inputs + kActivationPlane - 1) / kActivationPlane; }
};

// Returns for how many rows there is memory. A few rows get no padding, so that the super-blocks of one row spread over
// the whole first-level cache.
inline int64_t activation_row_capacity(int64_t num_rows) {
  if (num_rows <= kActivationTile / 4) return num_rows;
  if (num_rows <= kActivationTile / 2) return kActivationTile / 2;
  return (num_rows + kActivationTile - 1) / kActivationTile * kActivationTile;
}

// Memory of one thread for one GEMM call by tiles (AMX).
constexpr int64_t kStripBlocks = 8;              // column blocks that are computed together
constexpr int64_t kGemmWeightBytes = 16 * 1024;  // unpacked weights of two super-blocks, 2 bytes each

// All aligned to 64 bytes.
struct GemmScratch {
  uint8_t* weights = nullptr;     // kGemmWeightBytes
  float* totals = nullptr;        // [kStripBlocks][row_capacity][16]
  int8_t* high_values = nullptr;  // [row_capacity][256]: the high planes that are not zero, one after the other
  int32_t* high_sums = nullptr;   // [2][row_capacity][16]
  int32_t* high_rows = nullptr;   // [2][row_capacity]: the rows that they belong to
};

inline int64_t gemm_scratch_bytes(int64_t row_capacity) {
  return kGemmWeightBytes + row_capacity * (kStripBlocks * 64 + kActivationPlane + 2 * (64 + 4));
}
inline GemmScratch gemm_scratch(void* memory, int64_t row_capacity) {
  auto* bytes = static_cast<uint8_t*>(memory);
  GemmScratch scratch;
  scratch.weights = bytes;
  scratch.totals = reinterpret_cast<float*>(bytes + kGemmWeightBytes);
  scratch.high_values = reinterpret_cast<int8_t*>(scratch.totals + kStripBlocks * row_capacity * 16);
  scratch.high_sums = reinterpret_cast<int32_t*>(scratch.high_values + row_capacity * kActivationPlane);
  scratch.high_rows = scratch.high_sums + 2 * row_capacity * 16;
  return scratch;
}

}  // namespace paceline
