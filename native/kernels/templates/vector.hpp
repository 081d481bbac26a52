// Sixteen lanes of float or int32, the one lane structure of every kernel.
//
// A kernel template is compiled three times, in the namespaces `scalar`, `avx2` and `avx512`, against the three
// definitions below. Each operation is IEEE-exact and lane by lane, or a reduction over a fixed tree, so all three give equal
// bits. CMakeLists.txt defines PACELINE_ISA as one of the namespace names for each of the three builds.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include "vector_avx512.hpp"
#elif defined(__AVX2__)
#include "vector_avx2.hpp"
#else
#include "vector_scalar.hpp"
#endif

namespace paceline::PACELINE_ISA {

constexpr int kLanes = 16;

// Whether all of `count` (a multiple of 16) values are finite: 0 times an infinity or a NaN is a NaN.
inline bool is_finite(const float* source, int64_t count) {
  F32x16 sum = zero();
  for (int64_t i = 0; i < count; i += kLanes) sum = fma(load(source + i), zero(), sum);
  return reduce_add(sum) == 0.0F;
}

// e^x by reduction to [-ln2/2, ln2/2] and a polynomial of degree 6 (relative error below 2^-22); 0 below -87.3, and
// inputs above 88 are taken as 88.
inline F32x16 exponential(F32x16 x) {
  const F32x16 low = broadcast(-87.33654F);
  const F32x16 clamped = minimum(maximum(x, low), broadcast(88.0F));
  const I32x16 exponent = round_to_int(multiply(clamped, broadcast(1.44269504F)));
  const F32x16 n = to_float(exponent);
  F32x16 r = negated_fma(n, broadcast(0.693359375F), clamped);
  r = negated_fma(n, broadcast(-2.12194440e-4F), r);
  F32x16 y = broadcast(1.3981999507e-3F);
  y = fma(y, r, broadcast(8.3334519073e-3F));
  y = fma(y, r, broadcast(4.1665795894e-2F));
  y = fma(y, r, broadcast(1.6666665459e-1F));
  y = fma(y, r, broadcast(5.0000001201e-1F));
  y = add(fma(y, multiply(r, r), r), broadcast(1.0F));
  return select_less(x, low, zero(), scale_by_power_of_two(y, exponent));
}

// x / (1 + e^-x)
inline F32x16 silu(F32x16 x) {
  return divide(x, add(broadcast(1.0F), exponential(subtract(zero(), x))));
}

// The tanh approximation of GELU, with tanh(y) = 1 - 2 / (1 + e^2y).
inline F32x16 gelu(F32x16 x) {
  const F32x16 cube = multiply(multiply(x, x), x);
  const F32x16 inner = multiply(broadcast(0.7978845608F), fma(broadcast(0.044715F), cube, x));
  const F32x16 e = exponential(add(inner, inner));
  const F32x16 tanh = subtract(broadcast(1.0F), divide(broadcast(2.0F), add(broadcast(1.0F), e)));
  return multiply(multiply(broadcast(0.5F), x), add(broadcast(1.0F), tanh));
}

}  // namespace paceline::PACELINE_ISA
