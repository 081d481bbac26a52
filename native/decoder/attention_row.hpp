// What one row attends to: logical positions, found through the block table and then through the row's own path.
#pragma once

#include <cstdint>

#include "decoder/kv_store.hpp"

namespace paceline {

constexpr int64_t kChunk = 64;  // positions of an attention chunk; chunks lie on an absolute grid of positions

struct AttentionRow {
  const int32_t* block_table = nullptr;
  const int32_t* path = nullptr;  // slots of positions [base, position]
  int64_t base = 0;               // positions below are found through the block table
  int64_t begin = 0;              // first visible position
  int64_t position = 0;           // last visible position, the row's own
  float scale = 1.0F;

  int64_t slot(int64_t at) const {
    if (at >= base) return path[at - base];
    return block_table[at / kBlockSlots] * kBlockSlots + at % kBlockSlots;
  }
};

constexpr int64_t kQueryTile = 4;  // queries of a KV head that are handled at once

// Floats of scratch memory that `attend` needs: scores and values of a query tile, and a chunk's gathered keys and values.
constexpr int64_t attention_scratch(int64_t head_dim) {
  return kQueryTile * (kChunk + head_dim) + kChunk * head_dim;
}

}  // namespace paceline
