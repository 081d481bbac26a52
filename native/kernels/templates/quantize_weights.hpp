// Rounds float weights to blocks of Q4_0: 32 integers in -8..7 and a half-precision scale. Lanes are rows, so a block
// needs no reduction across lanes.
#pragma once

#include "vector.hpp"

namespace paceline::PACELINE_ISA {

inline F32x16 to_four_bits(F32x16 weights, F32x16 inverses) {
  const F32x16 scaled = multiply(weights, inverses);
  return minimum(maximum(scaled, broadcast(-8.0F)), broadcast(7.0F));
}

inline F32x16 inverse_or_zero(F32x16 x) {
  const F32x16 inverse = divide(broadcast(1.0F), x);
  return select_less(absolute(x), broadcast(1e-30F), zero(), inverse);
}

// Returns the scales of least squared error among a few candidates. Each candidate maps the weight of largest magnitude
// to one of a few values and rounds all weights. The best scale for the resulting integers is dot / squares, which
// lowers the squared error by dot^2 / squares.
inline F32x16 best_scales(const float* weights) {
  constexpr float kExtremes[] = {-6.5F, -7.0F, -7.5F, -8.0F, -8.5F, -9.0F};
  F32x16 largest = zero();
  F32x16 extreme = zero();  // the weight of largest magnitude
  for (int i = 0; i < 32; ++i) {
    const F32x16 x = load(weights + i * kLanes);
    extreme = select_less(largest, absolute(x), x, extreme);
    largest = maximum(absolute(x), largest);
  }
  const F32x16 unit = inverse_or_zero(extreme);
  F32x16 best_gain = zero();
  F32x16 best = zero();
  for (const float value : kExtremes) {
    const F32x16 inverses = multiply(unit, broadcast(value));
    F32x16 dot = zero();
    F32x16 squares = zero();
    for (int i = 0; i < 32; ++i) {
      const F32x16 x = load(weights + i * kLanes);
      const F32x16 integers = to_float(round_to_int(to_four_bits(x, inverses)));
      dot = fma(x, integers, dot);
      squares = fma(integers, integers, squares);
    }
    const F32x16 scales = divide(dot, maximum(squares, broadcast(1.0F)));
    const F32x16 gain = multiply(dot, scales);
    best = select_less(best_gain, gain, scales, best);
    best_gain = maximum(gain, best_gain);
  }
  return best;
}

// `weights`: [inputs][16 rows]; row r's blocks go to target + r * stride.
inline void quantize_q4_0(const float* weights, int64_t inputs, uint8_t* target, int64_t stride) {
  constexpr int kBlockBytes = 18;
  for (int64_t first = 0; first < inputs; first += 32, target += kBlockBytes, weights += 32 * kLanes) {
    uint16_t scales[kLanes];
    store_half(scales, best_scales(weights));
    const F32x16 inverses = inverse_or_zero(load_half(scales));
    int8_t integers[32][kLanes];
    for (int i = 0; i < 32; ++i) {
      store_as_int8(integers[i], round_to_int(to_four_bits(load(weights + i * kLanes), inverses)));
    }
    for (int row = 0; row < kLanes; ++row) {
      uint8_t* block = target + row * stride;
      std::memcpy(block, scales + row, sizeof(uint16_t));
      for (int i = 0; i < 16; ++i) {
        block[2 + i] = static_cast<uint8_t>((integers[i][row] + 8) | (integers[i + 16][row] + 8) << 4);
      }
    }
  }
}

}  // namespace paceline::PACELINE_ISA
