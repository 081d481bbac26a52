// The left side of a GEMM: rows of activations rounded to integers of one or two planes of int8.
#pragma once

#include <cstdint>

namespace paceline {

constexpr int64_t kActivationPlane = 256;  // values of a plane: one super-block
constexpr int64_t kActivationTile = 32;    // kernels may read whole tiles of rows

enum class ActivationRounding {
  kEightBits,    // and up to 15 for outliers
  kFifteenBits,
};

// Sums of a row's rounded activations over one super-block: what zero points and minima multiply.
struct ActivationSums {
  int16_t sixteens[2][16];  // [low, high] of 16 inputs each
  int16_t groups[2][8];     // [low, high] of 32 inputs each
  int32_t totals[8];        // of the integers, 32 inputs each
};

// Rounded rows: x is about scale * integer, by the rule in native/quant/layouts.hpp. Everything is ordered by super-block
// first, so that a pass over many rows reads one super-block's part of all of them at once.
struct QuantizedRows {
  int64_t inputs = 0;
  ActivationRounding rounding = ActivationRounding::kEightBits;
  int64_t row_capacity = 0;  // by activation_row_capacity; rows beyond those written may be read, but never count
  // integer = 128 * high + low: [low, high], each [super-blocks][row_capacity][256], aligned to 64 bytes
  int8_t* planes[2] = {};
  float* scales = nullptr;         // [super-blocks][row_capacity]
  ActivationSums* sums = nullptr;  // [super-blocks][row_capacity]
  uint8_t* has_high = nullptr;     // [super-blocks][row_capacity]: 0 where the high plane is all zero, and need not be read

  int64_t num_super_blocks() const { return (inputs + kActivationPlane - 1) / kActivationPlane; }
};

// A few rows lie close together, so that super-blocks of one spread over the whole first-level cache.
inline int64_t activation_row_capacity(int64_t num_rows) {
  if (num_rows <= kActivationTile / 4) return num_rows;
  if (num_rows <= kActivationTile / 2) return kActivationTile / 2;
  return (num_rows + kActivationTile - 1) / kActivationTile * kActivationTile;
}

// Memory of one thread for one GEMM call.
constexpr int64_t kStripBlocks = 8;              // column blocks that are worked on together for many rows
constexpr int64_t kGemmWeightBytes = 16 * 1024;  // unpacked weights of two super-blocks, 2 bytes each at most

struct GemmScratch {
  uint8_t* weights = nullptr;  // kGemmWeightBytes, aligned to 64 bytes
  float* totals = nullptr;     // [kStripBlocks][row_capacity][16], aligned to 64 bytes
};

inline int64_t gemm_scratch_bytes(int64_t row_capacity) {
  return kGemmWeightBytes + kStripBlocks * row_capacity * 16 * static_cast<int64_t>(sizeof(float));
}
inline GemmScratch gemm_scratch(void* memory) {
  auto* bytes = static_cast<uint8_t*>(memory);
  return {bytes, reinterpret_cast<float*>(bytes + kGemmWeightBytes)};
}

}  // namespace paceline
