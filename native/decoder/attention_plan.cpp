#include "decoder/attention_plan.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace paceline {
namespace {

// A task is cut if it is larger than a thread's even share of the work divided by this.
constexpr int64_t kTasksPerThread = 4;

}  // namespace

void AttentionPlan::make_groups(const Batch& batch, int64_t window) {
  const int64_t max_rows = std::max(kMaxTaskQueries / shape_.group_heads(), int64_t{1});
  rows_.resize(batch.num_rows());
  groups_.clear();
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    const int64_t position = batch.positions[row];
    const int64_t begin = window > 0 ? std::max(position + 1 - window, int64_t{0}) : 0;
    rows_[row] = {batch.path_slots.data() + batch.path_offsets[row], position + 1 - batch.path_length(row), begin, position};
    const bool continues = !groups_.empty() && row - groups_.back().begin < max_rows &&
                           batch.sequence_indices[row] == batch.sequence_indices[row - 1];
    if (!continues) groups_.push_back({row, row, 0});
    groups_.back().end = row + 1;
    groups_.back().work += position + 1 - begin;
  }
}

void AttentionPlan::add_tasks(const AttentionTask& whole, bool is_cut, float*& partials) {
  if (!is_cut) {
    tasks_.push_back(whole);
    return;
  }
  const int64_t chunk_size = whole.num_queries() * partial_size(shape_.head_dim);
  AttentionTask part = whole;
  part.partials = partials;
  for (int64_t row = 0; row < part.num_rows; ++row) merges_.push_back({part, row});
  for (int64_t chunk = whole.first_chunk; chunk < whole.end_chunk; ++chunk) {
    part.first_chunk = chunk;
    part.end_chunk = chunk + 1;
    part.partials = partials;
    tasks_.push_back(part);
    partials += chunk_size;
  }
}

void AttentionPlan::make_tasks(const Batch& batch, const float* queries, float* out, int num_threads) {
  int64_t total = 0;
  for (const Group& group : groups_) total += group.work;
  const auto chunks = [&](const Group& group) {
    int64_t first = rows_[group.begin].first_chunk();
    int64_t end = 0;
    for (int64_t row = group.begin; row < group.end; ++row) {
      first = std::min(first, rows_[row].first_chunk());
      end = std::max(end, rows_[row].last_chunk() + 1);
    }
    return std::pair(first, end);
  };
  const auto is_cut = [&](const Group& group) {
    const auto [first, end] = chunks(group);
    return num_threads > 1 && end - first > 1 && group.work * num_threads * kTasksPerThread > total * shape_.num_kv_heads;
  };
  int64_t num_partials = 0;
  for (const Group& group : groups_) {
    const auto [first, end] = chunks(group);
    if (is_cut(group)) num_partials += (group.end - group.begin) * shape_.num_heads * (end - first);
  }
  partials_.reserve(num_partials * partial_size(shape_.head_dim) * sizeof(float));
  auto* partials = partials_.as<float>();
  tasks_.clear();
  merges_.clear();
  for (const Group& group : groups_) {
    AttentionTask task;
    task.block_table = batch.block_tables.data() + batch.sequence_indices[group.begin] * batch.max_blocks;
    task.rows = rows_.data() + group.begin;
    task.num_rows = group.end - group.begin;
    task.num_heads = shape_.group_heads();
    task.scale = shape_.scale;
    std::tie(task.first_chunk, task.end_chunk) = chunks(group);
    task.row_stride = shape_.row_size();
    for (task.kv_head = 0; task.kv_head < shape_.num_kv_heads; ++task.kv_head) {
      const int64_t offset = group.begin * shape_.row_size() + task.kv_head * task.num_heads * shape_.head_dim;
      task.queries = queries + offset;
      task.out = out + offset;
      add_tasks(task, is_cut(group), partials);
    }
  }
}

void AttentionPlan::run(const Batch& batch, const KvView& view, int64_t window, const float* queries, float* out,
                        const KernelTable& kernels, ThreadPool& pool) {
  make_groups(batch, window);
  make_tasks(batch, queries, out, pool.num_threads());
  pool.parallel_for(static_cast<int64_t>(tasks_.size()), 1, [&](int64_t begin, int64_t end) {
    thread_local AlignedBuffer scratch;
    for (int64_t i = begin; i < end; ++i) {
      scratch.reserve(attention_scratch(tasks_[i].num_queries(), shape_.head_dim) * sizeof(float));
      kernels.attend(view, tasks_[i], scratch.as<float>());
    }
  });
  pool.parallel_for(static_cast<int64_t>(merges_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kernels.merge_partials(merges_[i].task, merges_[i].row, shape_.head_dim);
  });
}

}  // namespace paceline
