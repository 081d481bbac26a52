// Row functions. They work on one row at a time, with sixteen lanes along the row, and reduce over a fixed tree.
#pragma once

#include <cmath>

#include "vector.hpp"

namespace paceline::PACELINE_ISA {

// Calls function(i, count) for each step of up to sixteen values; count is 16 except in the last step.
template <class Function>
inline void for_each_lanes(int64_t n, Function function) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) function(i, kLanes);
  if (i < n) function(i, static_cast<int>(n - i));
}

inline void rms_norm(const float* source, const float* weight, int64_t n, float epsilon, float* target) {
  F32x16 squares = zero();
  for_each_lanes(n, [&](int64_t i, int count) {
    const F32x16 x = load_partial(source + i, count);
    squares = fma(x, x, squares);
  });
  const float mean = reduce_add(squares) / static_cast<float>(n);
  const F32x16 factor = broadcast(1.0F / std::sqrt(mean + epsilon));
  for_each_lanes(n, [&](int64_t i, int count) {
    const F32x16 x = multiply(load_partial(source + i, count), factor);
    store_partial(target + i, multiply(x, load_partial(weight + i, count)), count);
  });
}

inline void add_row(float* target, const float* source, int64_t n) {
  for_each_lanes(n, [&](int64_t i, int count) {
    store_partial(target + i, add(load_partial(target + i, count), load_partial(source + i, count)), count);
  });
}

inline void scale_row(float* target, float factor, int64_t n) {
  const F32x16 factors = broadcast(factor);
  for_each_lanes(n, [&](int64_t i, int count) {
    store_partial(target + i, multiply(load_partial(target + i, count), factors), count);
  });
}

inline void silu_multiply(float* gate, const float* up, int64_t n) {
  for_each_lanes(n, [&](int64_t i, int count) {
    const F32x16 activated = silu(load_partial(gate + i, count));
    store_partial(gate + i, multiply(activated, load_partial(up + i, count)), count);
  });
}

inline void gelu_multiply(float* gate, const float* up, int64_t n) {
  for_each_lanes(n, [&](int64_t i, int count) {
    const F32x16 activated = gelu(load_partial(gate + i, count));
    store_partial(gate + i, multiply(activated, load_partial(up + i, count)), count);
  });
}

// Rotates pairs (2i, 2i + 1).
inline void rope_normal(float* head, const float* cosine, const float* sine, int64_t head_dim) {
  for (int64_t i = 0; i < head_dim / 2; ++i) {
    const float x = head[2 * i];
    const float y = head[2 * i + 1];
    head[2 * i] = std::fma(x, cosine[i], -(y * sine[i]));
    head[2 * i + 1] = std::fma(x, sine[i], y * cosine[i]);
  }
}

// Rotates pairs (i, i + head_dim / 2).
inline void rope_neox(float* head, const float* cosine, const float* sine, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  for_each_lanes(half, [&](int64_t i, int count) {
    const F32x16 x = load_partial(head + i, count);
    const F32x16 y = load_partial(head + half + i, count);
    const F32x16 c = load_partial(cosine + i, count);
    const F32x16 s = load_partial(sine + i, count);
    store_partial(head + i, fma(x, c, subtract(zero(), multiply(y, s))), count);
    store_partial(head + half + i, fma(x, s, multiply(y, c)), count);
  });
}

inline float sum_exponentials(const float* row, int64_t n, float maximum_value) {
  const F32x16 shift = broadcast(maximum_value);
  F32x16 sum = zero();
  for_each_lanes(n, [&](int64_t i, int count) {
    const F32x16 e = exponential(subtract(load_partial(row + i, count), shift));
    sum = add(sum, keep_first(e, count, 0.0F));
  });
  return reduce_add(sum);
}

}  // namespace paceline::PACELINE_ISA
