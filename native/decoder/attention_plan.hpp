// Turns the rows of a batch into attention tasks that keep all threads busy, and runs them.
//
// Consecutive rows of one sequence form a group, for which K and V are read once. A group that is a large part of the
// whole work is cut at chunk borders. The chunks' results are merged in the order of positions, which gives the same
// bits.
#pragma once

#include <vector>

#include "decoder/attention_task.hpp"
#include "decoder/batch.hpp"
#include "paceline/thread_pool.hpp"
#include "paceline/aligned_buffer.hpp"
#include "paceline/kernel_table.hpp"

namespace paceline {

struct AttentionShape {
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0F;

  int64_t group_heads() const { return num_heads / num_kv_heads; }
  int64_t row_size() const { return num_heads * head_dim; }
};

class AttentionPlan {
 public:
  explicit AttentionPlan(AttentionShape shape) : shape_(shape) {}

  // `queries`, `out`: [rows][num_heads][head_dim]; `window` is LayerOptions::sliding_window.
  void run(const Batch& batch, const KvView& view, int64_t window, const float* queries, float* out,
           const KernelTable& kernels, ThreadPool& pool);

 private:
  // Rows [begin, end) of the batch.
  struct Group {
    int64_t begin;
    int64_t end;
    int64_t work;  // rows times visible positions
  };
  struct RowMerge {
    AttentionTask task;
    int64_t row;
  };

  void make_groups(const Batch& batch, int64_t window);
  void make_tasks(const Batch& batch, const float* queries, float* out, int num_threads);
  void add_tasks(const AttentionTask& whole, bool is_cut, float*& partials);

  AttentionShape shape_;
  std::vector<AttentionRow> rows_;
  std::vector<Group> groups_;
  std::vector<AttentionTask> tasks_;
  std::vector<RowMerge> merges_;
  AlignedBuffer partials_;
};

}  // namespace paceline
