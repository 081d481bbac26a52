// The left side of a GEMM: rows of activations rounded to 15 bits, in two planes of int8.
#pragma once

#include <cstdint>

namespace paceline {

constexpr int64_t kActivationPlane = 256;                      // values of a plane: one super-block
constexpr int64_t kActivationSegment = 2 * kActivationPlane;   // bytes of a row in a super-block
constexpr int64_t kActivationTile = 16;                        // kernels may read whole tiles of rows

// Sums of a row's rounded activations over one super-block: what zero points and minima multiply.
struct ActivationSums {
  int16_t sixteens[2][16];  // [plane] of 16 inputs each
  int16_t groups[2][8];     // [plane] of 32 inputs each
  int32_t totals[8];        // 128 * high + low, of 32 inputs each
};

// Rounded rows: x is about scale * (128 * high + low), by the rule in native/quant/layouts.hpp. Everything is ordered by
// super-block first, so that a pass over many rows reads one super-block's part of all of them at once.
struct QuantizedRows {
  int64_t inputs = 0;
  int64_t row_capacity = 0;        // a multiple of kActivationTile; rows beyond those written may be read, but never count
  int8_t* planes = nullptr;        // [super-blocks][row_capacity][high, low][256], aligned to 64 bytes
  float* scales = nullptr;         // [super-blocks][row_capacity]
  ActivationSums* sums = nullptr;  // [super-blocks][row_capacity]

  int64_t num_super_blocks() const { return (inputs + kActivationPlane - 1) / kActivationPlane; }
};

inline int64_t activation_row_capacity(int64_t num_rows) {
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
