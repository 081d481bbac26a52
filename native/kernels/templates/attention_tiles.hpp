// The inner loops of attention: a few queries against the keys or values of up to 64 positions, as floats.
//
// A score is a sum over head_dim, with positions as lanes. An output is a sum over the visible positions, with head_dim
// as lanes. How many queries and lanes a loop holds in registers does not change the order of any sum.
#pragma once

#include <algorithm>

#include "decoder/attention_task.hpp"
#include "vector.hpp"

namespace paceline::PACELINE_ISA {

#if defined(__AVX512F__)
constexpr int kRegisterTiles = 4;  // groups of sixteen lanes for each of kQueryTile queries
#else
constexpr int kRegisterTiles = 1;
#endif

// Visible positions [first, last] of a query, counted from the beginning of a chunk or step. If last < first, there are
// none.
struct Visible {
  int first;
  int last;

  bool is_empty() const { return last < first; }
  bool has(int at) const { return first <= at && at <= last; }
  Visible within(int begin, int size) const { return {std::max(first - begin, 0), std::min(last - begin, size - 1)}; }
};

// 2^x for x <= 0 by a polynomial of degree 5 around the nearest integer (relative error below 2^-22); 0 below -125.
inline F32x16 exponential2(F32x16 x) {
  const F32x16 low = broadcast(-125.0F);
  const F32x16 clamped = maximum(x, low);
  const I32x16 exponent = round_to_int(clamped);
  const F32x16 r = subtract(clamped, to_float(exponent));
  F32x16 y = broadcast(0.00132647261F);
  y = fma(y, r, broadcast(0.00967151299F));
  y = fma(y, r, broadcast(0.0555073358F));
  y = fma(y, r, broadcast(0.240222424F));
  y = fma(y, r, broadcast(0.693147004F));
  y = fma(y, r, broadcast(1.0F));
  return select_less(x, low, zero(), scale_by_power_of_two(y, exponent));
}

// scores[query][position] = query . key for `num_tiles` groups of 16 positions.
// `keys`: [head_dim][kStep], `queries`: [head_dim][kQueryTile], `scores`: rows of kChunk.
template <int Queries, int Tiles>
inline void score_tiles(const float* keys, const float* queries, int64_t head_dim, float* scores) {
  F32x16 sums[Queries][Tiles];
  for (auto& row : sums) {
    for (F32x16& sum : row) sum = zero();
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    F32x16 key[Tiles];
    for (int tile = 0; tile < Tiles; ++tile) key[tile] = load(keys + d * kStep + tile * kLanes);
    for (int query = 0; query < Queries; ++query) {
      const F32x16 x = broadcast(queries[d * kQueryTile + query]);
      for (int tile = 0; tile < Tiles; ++tile) sums[query][tile] = fma(x, key[tile], sums[query][tile]);
    }
  }
  for (int query = 0; query < Queries; ++query) {
    for (int tile = 0; tile < Tiles; ++tile) store(scores + query * kChunk + tile * kLanes, sums[query][tile]);
  }
}

template <int Queries>
inline void score_step(const float* keys, const float* queries, int64_t head_dim, float* scores) {
  for (int64_t at = 0; at < kStep; at += kRegisterTiles * kLanes) {
    score_tiles<Queries, kRegisterTiles>(keys + at, queries, head_dim, scores + at);
  }
}

// Turns the visible scores of a chunk into weights 2^(score - maximum); returns the maximum and writes the weights' sum.
inline float softmax_chunk(float* scores, Visible visible, float& sum) {
  const int begin = visible.first / kLanes * kLanes;
  const int end = (visible.last / kLanes + 1) * kLanes;
  std::fill(scores + begin, scores + visible.first, -__builtin_inff());
  std::fill(scores + visible.last + 1, scores + end, -__builtin_inff());
  F32x16 best = load(scores + begin);
  for (int at = begin + kLanes; at < end; at += kLanes) best = maximum(load(scores + at), best);
  const float highest = reduce_maximum(best);
  const F32x16 shift = broadcast(highest);
  F32x16 total = zero();
  for (int at = begin; at < end; at += kLanes) {
    const F32x16 weights = exponential2(subtract(load(scores + at), shift));
    store(scores + at, weights);
    total = add(total, weights);
  }
  sum = reduce_add(total);
  return highest;
}

// out[query] += weight * value over the visible positions, for `Tiles` groups of 16 values.
// `values`: [kStep][head_dim], `weights`: rows of kChunk, `out`: rows of `out_stride`.
template <int Queries, int Tiles>
inline void add_values(const float* values, int64_t head_dim, const float* weights, const Visible* visible, float* out,
                       int64_t out_stride) {
  Visible any = visible[0];
  Visible all = visible[0];
  for (int query = 1; query < Queries; ++query) {
    if (any.is_empty()) any = visible[query];
    if (!visible[query].is_empty()) {
      any = {std::min(any.first, visible[query].first), std::max(any.last, visible[query].last)};
    }
    all = {std::max(all.first, visible[query].first), std::min(all.last, visible[query].last)};
  }
  F32x16 sums[Queries][Tiles];
  for (int query = 0; query < Queries; ++query) {
    for (int tile = 0; tile < Tiles; ++tile) sums[query][tile] = load(out + query * out_stride + tile * kLanes);
  }
  const auto add_position = [&](int at, auto sees) {
    F32x16 value[Tiles];
    for (int tile = 0; tile < Tiles; ++tile) value[tile] = load(values + at * head_dim + tile * kLanes);
    for (int query = 0; query < Queries; ++query) {
      if (!sees(query)) continue;
      const F32x16 weight = broadcast(weights[query * kChunk + at]);
      for (int tile = 0; tile < Tiles; ++tile) sums[query][tile] = fma(weight, value[tile], sums[query][tile]);
    }
  };
  int at = any.first;
  const auto sees_here = [&](int query) { return visible[query].has(at); };
  const int border = all.is_empty() ? any.last + 1 : all.first;
  for (; at < border; ++at) add_position(at, sees_here);
  for (; at <= all.last; ++at) add_position(at, [](int) { return true; });
  for (; at <= any.last; ++at) add_position(at, sees_here);
  for (int query = 0; query < Queries; ++query) {
    for (int tile = 0; tile < Tiles; ++tile) store(out + query * out_stride + tile * kLanes, sums[query][tile]);
  }
}

template <int Queries>
inline void add_values_step(const float* values, int64_t head_dim, const float* weights, const Visible* visible, float* out,
                            int64_t out_stride) {
  int64_t d = 0;
  for (; d + kRegisterTiles * kLanes <= head_dim; d += kRegisterTiles * kLanes) {
    add_values<Queries, kRegisterTiles>(values + d, head_dim, weights, visible, out + d, out_stride);
  }
  for (; d < head_dim; d += kLanes) {
    add_values<Queries, 1>(values + d, head_dim, weights, visible, out + d, out_stride);
  }
}

// Calls function.template operator()<Queries>() for 1 to kQueryTile queries.
template <class Function>
inline void with_queries(int queries, Function function) {
  static_assert(kQueryTile == 6);
  switch (queries) {
    case 1: return function.template operator()<1>();
    case 2: return function.template operator()<2>();
    case 3: return function.template operator()<3>();
    case 4: return function.template operator()<4>();
    case 5: return function.template operator()<5>();
    default: return function.template operator()<6>();
  }
}

}  // namespace paceline::PACELINE_ISA
