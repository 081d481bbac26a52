// The left side of a GEMM: rows of activations, as floats or rounded to int8 with one scale per 256 inputs.
#pragma once

#include <cstdint>

namespace paceline {

// Rounded rows. scale = max|x| / 127 over each super-block of 256 inputs (the last may be shorter), value = round half to even
// of x / scale. `group_sums` are sums of the rounded values over 16 inputs each: what zero points and minima multiply.
struct QuantizedRows {
  int64_t inputs = 0;
  int64_t super_blocks = 0;  // ceil(inputs / 256)
  int8_t* values = nullptr;  // [rows][inputs]
  float* scales = nullptr;   // [rows][super_blocks]
  int16_t* group_sums = nullptr;  // [rows][inputs / 16]

  static int64_t count_super_blocks(int64_t inputs) { return (inputs + 255) / 256; }
};

}  // namespace paceline
