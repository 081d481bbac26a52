// Computes the attention of a task's rows, chunk by chunk on an absolute grid of positions.
//
// Within a chunk, K and V of 64 positions at a time are converted to floats once, and then used for all queries that
// see them. Rows whose own path reaches into those positions gather their K and V and are computed separately, with the
// same results.
#pragma once

#include <algorithm>

#include "attention_tiles.hpp"
#include "kv_blocks.hpp"

namespace paceline::PACELINE_ISA {

constexpr int kStepBlocks = kStep / kBlockSlots;
constexpr float kLog2E = 1.44269504F;

// A task in progress: its scratch memory, and what its queries see of the current chunk.
struct TaskState {
  const KvView& kv;
  const AttentionTask& task;
  int64_t tile_queries;             // queries of a tile; the last may have fewer
  float* packed;                    // [tiles][head_dim][kQueryTile], scaled
  float* scores;                    // [queries][kChunk]
  float* running;                   // [queries][partial_size]
  float* current;                   // has the form of `running`
  float* shared;                    // [kStep][head_dim] floats of K or V: [head_dim][kStep] for K
  float* own;                       // the same for a row's own path
  uint8_t* gathered;                // [kStepBlocks][keys or values of a block]
  Visible visible[kMaxTaskQueries];  // of each row, in the current chunk
};

// Returns the block that will be widened one step after the step at `step_begin`, or null. The keys of a chunk are
// followed by its values, and then by the next chunk.
inline const uint8_t* next_block(const TaskState& state, Part part, int64_t step_begin, int block, int64_t end) {
  const int64_t chunk_begin = step_begin / kChunk * kChunk;
  int64_t begin = step_begin + kStep;
  const int64_t chunk_end = std::min(chunk_begin + kChunk, end);
  if (begin >= chunk_end && part == Part::kKeys) {
    part = Part::kValues;
    begin = chunk_begin;
  } else if (begin >= chunk_end) {
    part = Part::kKeys;
  }
  const int64_t at = begin + block * kBlockSlots;
  if (at >= end) return nullptr;
  return part_of(state.kv, part, state.task.block_table[at / kBlockSlots], state.task.kv_head);
}

// Converts positions [begin, end) of the step, found through the block table, to floats.
inline void widen_shared(const TaskState& state, Part part, int64_t step_begin, int64_t begin, int64_t end, int64_t table_end) {
  for (int block = 0; block < kStepBlocks; ++block) {
    const int64_t at = step_begin + block * kBlockSlots;
    if (at + kBlockSlots <= begin || at >= end) continue;
    const uint8_t* source = part_of(state.kv, part, state.task.block_table[at / kBlockSlots], state.task.kv_head);
    const uint8_t* next = next_block(state, part, step_begin, block, table_end);
    widen_block(state.kv, part, source, next == nullptr ? source : next, block, state.shared);
  }
}

// Converts one row's visible positions to floats, after gathering them slot by slot.
inline void widen_own(const TaskState& state, Part part, const AttentionRow& row, int64_t step_begin, Visible visible) {
  const KvView& kv = state.kv;
  const auto gathered = [&](int64_t block) { return state.gathered + block * (part == Part::kKeys ? kv.key_bytes() : kv.value_bytes()); };
  for (int at = visible.first; at <= visible.last; ++at) {
    const int64_t slot = state.task.slot(row, step_begin + at);
    const uint8_t* source = part_of(kv, part, slot / kBlockSlots, state.task.kv_head);
    uint8_t* target = gathered(at / kBlockSlots);
    if (part == Part::kKeys) {
      kv.copy_key(source, slot % kBlockSlots, target, at % kBlockSlots);
    } else {
      kv.copy_value(source, slot % kBlockSlots, target, at % kBlockSlots);
    }
  }
  for (int64_t block = visible.first / kBlockSlots; block <= visible.last / kBlockSlots; ++block) {
    widen_block(kv, part, gathered(block), gathered(block), block, state.own);
  }
}

// Applies the keys or values of one step to queries [begin, end).
inline void meet_queries(TaskState& state, Part part, const float* floats, int64_t step, int64_t begin, int64_t end) {
  const int64_t head_dim = state.kv.head_dim;
  while (begin < end) {
    const int64_t tile = begin / state.tile_queries;
    const int64_t tile_begin = tile * state.tile_queries;
    const int64_t tile_end = std::min(tile_begin + state.tile_queries, end);
    const auto count = static_cast<int>(tile_end - begin);
    Visible visible[kQueryTile];
    bool is_needed = false;
    for (int i = 0; i < count; ++i) {
      const Visible& row = state.visible[(begin + i) / state.task.num_heads];
      visible[i] = row.within(static_cast<int>(step * kStep), static_cast<int>(kStep));
      is_needed |= !visible[i].is_empty();
    }
    float* scores = state.scores + begin * kChunk + step * kStep;
    float* out = state.current + begin * partial_size(head_dim) + kPartialHeader;
    const float* queries = state.packed + tile * kQueryTile * head_dim + (begin - tile_begin);
    if (is_needed) {
      with_queries(count, [&]<int Queries>() {
        if (part == Part::kKeys) {
          score_step<Queries>(floats, queries, head_dim, scores);
        } else {
          add_values_step<Queries>(floats, head_dim, scores, visible, out, partial_size(head_dim));
        }
      });
    }
    begin = tile_end;
  }
}

// Computes one step of a chunk for all rows. Consecutive rows that follow the block table share the floats; the others
// are computed one by one.
inline void step_rows(TaskState& state, Part part, int64_t chunk, int64_t step, int64_t table_end) {
  const AttentionTask& task = state.task;
  const int64_t step_begin = chunk * kChunk + step * kStep;
  const auto seen = [&](int64_t row) {
    return state.visible[row].within(static_cast<int>(step * kStep), static_cast<int>(kStep));
  };
  const auto has_own = [&](int64_t row) { return step_begin + seen(row).last >= task.rows[row].base; };
  Visible any = {static_cast<int>(kStep), -1};
  for (int64_t row = 0; row < task.num_rows; ++row) {
    if (seen(row).is_empty() || has_own(row)) continue;
    any = {std::min(any.first, seen(row).first), std::max(any.last, seen(row).last)};
  }
  if (!any.is_empty()) {
    widen_shared(state, part, step_begin, step_begin + any.first, step_begin + any.last + 1, table_end);
  }
  for (int64_t row = 0; row < task.num_rows;) {
    if (seen(row).is_empty()) {
      ++row;
    } else if (has_own(row)) {
      widen_own(state, part, task.rows[row], step_begin, seen(row));
      meet_queries(state, part, state.own, step, row * task.num_heads, (row + 1) * task.num_heads);
      ++row;
    } else {
      int64_t end = row + 1;
      while (end < task.num_rows && !seen(end).is_empty() && !has_own(end)) ++end;
      meet_queries(state, part, state.shared, step, row * task.num_heads, end * task.num_heads);
      row = end;
    }
  }
}

// Writes to `state.current` the chunk's result for every query that sees the chunk.
inline void attend_chunk(TaskState& state, int64_t chunk, int64_t table_end) {
  const AttentionTask& task = state.task;
  const int64_t size = partial_size(state.kv.head_dim);
  for (int64_t row = 0; row < task.num_rows; ++row) {
    const AttentionRow& visible = task.rows[row];
    const int64_t first = visible.begin - chunk * kChunk;
    const int64_t last = visible.position - chunk * kChunk;
    state.visible[row] = {static_cast<int>(std::clamp(first, int64_t{0}, kChunk)),
                          static_cast<int>(std::clamp(last, int64_t{-1}, kChunk - 1))};
  }
  for (int64_t step = 0; step < kChunk / kStep; ++step) step_rows(state, Part::kKeys, chunk, step, table_end);
  for (int64_t query = 0; query < task.num_queries(); ++query) {
    const Visible visible = state.visible[query / task.num_heads];
    float* result = state.current + query * size;
    if (visible.is_empty()) continue;
    result[0] = softmax_chunk(state.scores + query * kChunk, visible, result[1]);
    std::fill(result + kPartialHeader, result + size, 0.0F);
  }
  for (int64_t step = 0; step < kChunk / kStep; ++step) step_rows(state, Part::kValues, chunk, step, table_end);
}

inline float exponential2_of(float x) {
  float lanes[kLanes];
  store(lanes, exponential2(broadcast(x)));
  return lanes[0];
}

// Merges a chunk's result into the result of the chunks before it.
inline void merge_result(float* running, const float* result, int64_t head_dim) {
  const float highest = running[0] > result[0] ? running[0] : result[0];
  const float old_factor = exponential2_of(running[0] - highest);
  const float new_factor = exponential2_of(result[0] - highest);
  running[0] = highest;
  running[1] = __builtin_fmaf(running[1], old_factor, result[1] * new_factor);
  for (int64_t d = kPartialHeader; d < partial_size(head_dim); d += kLanes) {
    const F32x16 added = multiply(load(result + d), broadcast(new_factor));
    store(running + d, fma(load(running + d), broadcast(old_factor), added));
  }
}

// Divides a query's values by the sum of its weights.
inline void finish_result(const float* running, int64_t head_dim, float* out) {
  const F32x16 total = broadcast(running[1]);
  for (int64_t d = 0; d < head_dim; d += kLanes) store(out + d, divide(load(running + kPartialHeader + d), total));
}

inline void pack_queries(const TaskState& state) {
  const AttentionTask& task = state.task;
  const float scale = task.scale * kLog2E;
  const int64_t head_dim = state.kv.head_dim;
  for (int64_t query = 0; query < task.num_queries(); ++query) {
    const float* source = task.queries + query / task.num_heads * task.row_stride + query % task.num_heads * head_dim;
    float* target = state.packed + query / state.tile_queries * kQueryTile * head_dim + query % state.tile_queries;
    for (int64_t d = 0; d < head_dim; ++d) target[d * kQueryTile] = source[d] * scale;
  }
}

inline TaskState start_task(const KvView& kv, const AttentionTask& task, float* scratch) {
  const int64_t queries = task.num_queries();
  const int64_t tiles = (queries + kQueryTile - 1) / kQueryTile;
  TaskState state{kv, task, (queries + tiles - 1) / tiles, scratch, {}, {}, {}, {}, {}, {}, {}};
  state.shared = state.packed + tiles * kQueryTile * kv.head_dim;
  state.own = state.shared + kStep * kv.head_dim;
  state.gathered = reinterpret_cast<uint8_t*>(state.own + kStep * kv.head_dim);
  state.scores = state.own + kStep * kv.head_dim * 3 / 2;
  state.running = state.scores + queries * kChunk;
  state.current = state.running + queries * partial_size(kv.head_dim);
  pack_queries(state);
  return state;
}

// `scratch`: attention_scratch(num_queries, head_dim) floats, aligned to 64 bytes. Writes the results of chunks to
// `task.partials` if that is given, and otherwise finished values to `task.out`.
inline void attend(const KvView& kv, const AttentionTask& task, float* scratch) {
  TaskState state = start_task(kv, task, scratch);
  const int64_t size = partial_size(kv.head_dim);
  int64_t table_end = 0;
  for (int64_t row = 0; row < task.num_rows; ++row) {
    table_end = std::max(table_end, std::min(task.rows[row].base, task.rows[row].position + 1));
  }
  for (int64_t chunk = task.first_chunk; chunk < task.end_chunk; ++chunk) {
    if (task.partials != nullptr) state.current = task.partials + (chunk - task.first_chunk) * task.num_queries() * size;
    attend_chunk(state, chunk, std::min(table_end, task.end_chunk * kChunk));
    for (int64_t query = 0; task.partials == nullptr && query < task.num_queries(); ++query) {
      const AttentionRow& row = task.rows[query / task.num_heads];
      float* running = state.running + query * size;
      const float* result = state.current + query * size;
      if (chunk == row.first_chunk()) std::copy(result, result + size, running);
      if (chunk > row.first_chunk() && chunk <= row.last_chunk()) merge_result(running, result, kv.head_dim);
    }
  }
  for (int64_t query = 0; task.partials == nullptr && query < task.num_queries(); ++query) {
    const int64_t offset = query / task.num_heads * task.row_stride + query % task.num_heads * kv.head_dim;
    finish_result(state.running + query * size, kv.head_dim, task.out + offset);
  }
}

// Merges, for one row, the results that tasks left in `task.partials`; the first of them belongs to chunk
// `task.first_chunk`.
inline void merge_partials(const AttentionTask& task, int64_t row, int64_t head_dim) {
  const int64_t size = partial_size(head_dim);
  const AttentionRow& visible = task.rows[row];
  for (int64_t head = 0; head < task.num_heads; ++head) {
    const auto partial = [&](int64_t chunk) {
      return task.partials + ((chunk - task.first_chunk) * task.num_queries() + row * task.num_heads + head) * size;
    };
    float* running = partial(visible.first_chunk());
    for (int64_t chunk = visible.first_chunk() + 1; chunk <= visible.last_chunk(); ++chunk) {
      merge_result(running, partial(chunk), head_dim);
    }
    finish_result(running, head_dim, task.out + row * task.row_stride + head * head_dim);
  }
}

}  // namespace paceline::PACELINE_ISA
