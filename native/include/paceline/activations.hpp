// The left side of a GEMM: rows of activations, as floats or rounded to int8 with one scale for 32 or 256 inputs.
#pragma once

#include <cstdint>

namespace paceline {

// Rounded rows. scale = max|x| / 127 over each run of `scale_inputs` inputs (the last may be shorter), value = round half to
// even of x / scale. `group_sums` are sums of the rounded values over 16 inputs each: what zero points and minima multiply.
struct QuantizedRows {
  int64_t inputs = 0;
  int64_t scale_inputs = 0;  // 32 or 256, as PackedMatrix::activation_scale_inputs asks for
  int8_t* values = nullptr;  // [rows][inputs]
  float* scales = nullptr;   // [rows][num_scales]
  int16_t* group_sums = nullptr;  // [rows][inputs / 16]

  int64_t num_scales() const { return (inputs + scale_inputs - 1) / scale_inputs; }
};

}  // namespace paceline
