// Attention of one row and one KV head over its visible positions, chunk by chunk on an absolute grid.
//
// Each chunk gives a maximum, a sum and a weighted value that depend on its visible positions alone; chunks are merged in
// the order of positions. Scores are chains over head_dim with positions as lanes, values are chains over positions with
// head_dim as lanes: no result depends on where K and V lie or on what else is in the step.
#pragma once

#include <algorithm>

#include "decoder/attention_row.hpp"
#include "vector.hpp"

namespace paceline::PACELINE_ISA {

constexpr int kTiles = kChunk / kLanes;
static_assert(kBlockSlots == kLanes);

inline void store_kv(const KvView& kv, int64_t slot, const float* key, const float* value) {
  const int64_t block = slot / kBlockSlots;
  const int64_t offset = slot % kBlockSlots;
  uint16_t rounded[kLanes];
  for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
    uint16_t* keys = kv.keys(block, head) + offset;
    uint16_t* values = kv.values(block, head) + offset * kv.head_dim;
    for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
      store_half(rounded, load(key + head * kv.head_dim + d));
      for (int64_t i = 0; i < kLanes; ++i) keys[(d + i) * kBlockSlots] = rounded[i];
      store_half(values + d, load(value + head * kv.head_dim + d));
    }
  }
}

// Where a chunk's tiles of 16 positions are read from. `first` and `last` bound the visible positions within the chunk.
struct Chunk {
  const uint16_t* keys[kTiles];    // [head_dim][16]
  const uint16_t* values[kTiles];  // [16][head_dim]
  int first;
  int last;
};

// Copies the visible slots of one tile that the row's path takes part in, so that it reads like a block.
inline void gather_tile(const KvView& kv, const AttentionRow& row, int64_t kv_head, int64_t tile_begin,
                        uint16_t* keys, uint16_t* values) {
  const int64_t end = std::min(tile_begin + kLanes, row.position + 1);
  for (int64_t at = std::max(tile_begin, row.begin); at < end; ++at) {
    const int64_t slot = row.slot(at);
    const uint16_t* source = kv.keys(slot / kBlockSlots, kv_head) + slot % kBlockSlots;
    for (int64_t d = 0; d < kv.head_dim; ++d) keys[d * kLanes + at - tile_begin] = source[d * kBlockSlots];
    const uint16_t* source_values = kv.values(slot / kBlockSlots, kv_head) + slot % kBlockSlots * kv.head_dim;
    std::memcpy(values + (at - tile_begin) * kv.head_dim, source_values, kv.head_dim * sizeof(uint16_t));
  }
}

inline Chunk find_chunk(const KvView& kv, const AttentionRow& row, int64_t kv_head, int64_t chunk_begin,
                        uint16_t* gathered) {
  Chunk chunk;
  chunk.first = static_cast<int>(std::max(row.begin - chunk_begin, int64_t{0}));
  chunk.last = static_cast<int>(std::min(row.position - chunk_begin, kChunk - 1));
  for (int tile = 0; tile < kTiles; ++tile) {
    const int64_t begin = chunk_begin + tile * kLanes;
    const bool is_visible = tile * kLanes <= chunk.last && (tile + 1) * kLanes > chunk.first;
    if (is_visible && std::min(begin + kLanes - 1, row.position) < row.base) {
      const int64_t block = row.block_table[begin / kBlockSlots];
      chunk.keys[tile] = kv.keys(block, kv_head);
      chunk.values[tile] = kv.values(block, kv_head);
    } else {
      uint16_t* keys = gathered + tile * 2 * kv.head_size();
      if (is_visible) gather_tile(kv, row, kv_head, begin, keys, keys + kv.head_size());
      chunk.keys[tile] = keys;
      chunk.values[tile] = keys + kv.head_size();
    }
  }
  return chunk;
}

// scores[query][position] = query . key * scale over a chunk; positions that are not visible become -infinity.
template <int Queries>
inline void chunk_scores(const Chunk& chunk, const float* queries, int64_t head_dim, float scale, float* scores) {
  F32x16 sums[Queries][kTiles];
  for (auto& row : sums) {
    for (F32x16& sum : row) sum = zero();
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    F32x16 keys[kTiles];
    for (int tile = 0; tile < kTiles; ++tile) keys[tile] = load_half(chunk.keys[tile] + d * kLanes);
    for (int query = 0; query < Queries; ++query) {
      const F32x16 x = broadcast(queries[query * head_dim + d]);
      for (int tile = 0; tile < kTiles; ++tile) sums[query][tile] = fma(x, keys[tile], sums[query][tile]);
    }
  }
  const F32x16 factor = broadcast(scale);
  for (int query = 0; query < Queries; ++query) {
    float* row = scores + query * kChunk;
    for (int tile = 0; tile < kTiles; ++tile) store(row + tile * kLanes, multiply(sums[query][tile], factor));
    for (int i = 0; i < chunk.first; ++i) row[i] = -__builtin_inff();
    for (int i = chunk.last + 1; i < kChunk; ++i) row[i] = -__builtin_inff();
  }
}

// Turns a chunk's scores into weights e^(score - maximum); returns the maximum and writes the weights' sum.
inline float chunk_softmax(float* scores, float& sum) {
  F32x16 best = load(scores);
  for (int tile = 1; tile < kTiles; ++tile) best = maximum(load(scores + tile * kLanes), best);
  const float highest = reduce_maximum(best);
  F32x16 total = zero();
  for (int tile = 0; tile < kTiles; ++tile) {
    const F32x16 weights = exponential(subtract(load(scores + tile * kLanes), broadcast(highest)));
    store(scores + tile * kLanes, weights);
    total = add(total, weights);
  }
  sum = reduce_add(total);
  return highest;
}

// out[query][d] = sum over the chunk's visible positions of weight * value.
template <int Queries>
inline void chunk_values(const Chunk& chunk, const float* weights, int64_t head_dim, float* out) {
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    F32x16 sums[Queries];
    for (F32x16& sum : sums) sum = zero();
    for (int at = chunk.first; at <= chunk.last; ++at) {
      const F32x16 value = load_half(chunk.values[at / kLanes] + at % kLanes * head_dim + d);
      for (int query = 0; query < Queries; ++query) {
        sums[query] = fma(broadcast(weights[query * kChunk + at]), value, sums[query]);
      }
    }
    for (int query = 0; query < Queries; ++query) store(out + query * head_dim + d, sums[query]);
  }
}

struct Running {
  float maximum;
  float sum;
};

inline float exponential_of(float x) {
  float lanes[kLanes];
  store(lanes, exponential(broadcast(x)));
  return lanes[0];
}

// Merges a chunk's (maximum, sum, values) into what the chunks before it gave.
inline void merge_chunk(Running& running, float* out, float chunk_maximum, float chunk_sum, const float* values,
                        int64_t head_dim) {
  const float highest = running.maximum > chunk_maximum ? running.maximum : chunk_maximum;
  const float old_factor = exponential_of(running.maximum - highest);
  const float new_factor = exponential_of(chunk_maximum - highest);
  running.maximum = highest;
  running.sum = __builtin_fmaf(running.sum, old_factor, chunk_sum * new_factor);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const F32x16 added = multiply(load(values + d), broadcast(new_factor));
    store(out + d, fma(load(out + d), broadcast(old_factor), added));
  }
}

template <int Queries>
inline void attend_queries(const KvView& kv, const AttentionRow& row, int64_t kv_head, const float* queries,
                           float* scratch, float* out) {
  float* scores = scratch;                             // [Queries][64]
  float* values = scores + Queries * kChunk;           // [Queries][head_dim]
  auto* gathered = reinterpret_cast<uint16_t*>(values + Queries * kv.head_dim);  // [4 tiles][keys, values]
  Running running[Queries] = {};
  const int64_t first_chunk = row.begin / kChunk * kChunk;
  for (int64_t begin = first_chunk; begin <= row.position; begin += kChunk) {
    const Chunk chunk = find_chunk(kv, row, kv_head, begin, gathered);
    chunk_scores<Queries>(chunk, queries, kv.head_dim, row.scale, scores);
    float maxima[Queries];
    float sums[Queries];
    for (int i = 0; i < Queries; ++i) maxima[i] = chunk_softmax(scores + i * kChunk, sums[i]);
    if (begin == first_chunk) {
      chunk_values<Queries>(chunk, scores, kv.head_dim, out);
      for (int i = 0; i < Queries; ++i) running[i] = {maxima[i], sums[i]};
      continue;
    }
    chunk_values<Queries>(chunk, scores, kv.head_dim, values);
    for (int i = 0; i < Queries; ++i) {
      merge_chunk(running[i], out + i * kv.head_dim, maxima[i], sums[i], values + i * kv.head_dim, kv.head_dim);
    }
  }
  for (int i = 0; i < Queries; ++i) {
    const F32x16 total = broadcast(running[i].sum);
    float* target = out + i * kv.head_dim;
    for (int64_t d = 0; d < kv.head_dim; d += kLanes) store(target + d, divide(load(target + d), total));
  }
}

// `queries`, `out`: [num_queries][head_dim]; `scratch`: attention_scratch(head_dim) floats.
inline void attend(const KvView& kv, const AttentionRow& row, int64_t kv_head, int64_t num_queries,
                   const float* queries, float* scratch, float* out) {
  while (num_queries > 0) {
    const int64_t tile = std::min(num_queries, kQueryTile);
    if (tile == 4) attend_queries<4>(kv, row, kv_head, queries, scratch, out);
    if (tile == 3) attend_queries<3>(kv, row, kv_head, queries, scratch, out);
    if (tile == 2) attend_queries<2>(kv, row, kv_head, queries, scratch, out);
    if (tile == 1) attend_queries<1>(kv, row, kv_head, queries, scratch, out);
    queries += tile * kv.head_dim;
    out += tile * kv.head_dim;
    num_queries -= tile;
  }
}

}  // namespace paceline::PACELINE_ISA
