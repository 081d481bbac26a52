// The work of one call of an attention kernel: rows of one sequence and one KV head, over chunks of logical positions.
//
// A chunk's result depends only on the row and the chunk, and chunks are merged in the order of positions. So the bits
// do not depend on which rows form a task, or on which chunks a thread takes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "decoder/kv_store.hpp"

namespace paceline {

constexpr int64_t kChunk = 256;          // positions of an attention chunk; chunks lie on an absolute grid of positions
constexpr int64_t kMaxTaskQueries = 96;  // queries that share one reading of K and V, unless one row has more
constexpr int64_t kQueryTile = 6;        // queries that a loop holds in registers
constexpr int64_t kStep = 64;            // positions whose K or V are converted to floats at a time

// The logical positions that one row sees. The first ones are found through the sequence's block table, the last ones
// through the row's own path.
struct AttentionRow {
  const int32_t* path = nullptr;  // slots of positions [base, position]
  int64_t base = 0;               // positions below this one are found through the block table
  int64_t begin = 0;              // first visible position
  int64_t position = 0;           // last visible position, the row's own

  int64_t first_chunk() const { return begin / kChunk; }
  int64_t last_chunk() const { return position / kChunk; }
};

struct AttentionTask {
  const int32_t* block_table = nullptr;
  const AttentionRow* rows = nullptr;
  int64_t num_rows = 0;
  int64_t kv_head = 0;
  int64_t num_heads = 0;  // query heads that share the KV head
  float scale = 1.0F;
  int64_t first_chunk = 0;
  int64_t end_chunk = 0;
  const float* queries = nullptr;  // the first row's; each row has [num_heads][head_dim]
  float* out = nullptr;            // has the form of `queries`
  int64_t row_stride = 0;          // floats from one row's queries to the next row's
  float* partials = nullptr;       // takes the results of chunks for merging: [chunks][queries][partial_size]; or null

  int64_t num_queries() const { return num_rows * num_heads; }
  int64_t slot(const AttentionRow& row, int64_t at) const {
    if (at >= row.base) return row.path[at - row.base];
    return block_table[at / kBlockSlots] * kBlockSlots + at % kBlockSlots;
  }
};

// A query's result over one chunk, or over the chunks merged so far. It has the maximum of the scores (to base 2), the
// sum of the weights, padding, and from kPartialHeader on the weighted sum of values.
constexpr int64_t kPartialHeader = 16;
constexpr int64_t partial_size(int64_t head_dim) { return kPartialHeader + head_dim; }

// Returns how many floats of scratch memory a task needs.
constexpr int64_t attention_scratch(int64_t num_queries, int64_t head_dim) {
  const int64_t packed = (num_queries + kQueryTile - 1) / kQueryTile * kQueryTile * head_dim;
  const int64_t results = num_queries * (kChunk + 2 * partial_size(head_dim));
  return packed + results + kStep * head_dim * 5 / 2;
}

}  // namespace paceline
