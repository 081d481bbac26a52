// The matrix that turns hidden states into logits, for all tokens or only for some.
//
// A layer for some tokens has spare columns. Another token gets a spare column when a batch first reads it. If all are
// taken, it replaces the token that has had its spare column longest.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "paceline/kernel_table.hpp"
#include "paceline/packed_matrix.hpp"
#include "paceline/thread_pool.hpp"
#include "paceline/weight_arena.hpp"

namespace paceline {

class OutputLayer {
 public:
  // Packs `rows.selected`, or all rows if that is empty; see pack_blocks for `packed_type`. With selected rows the
  // file's data must stay, because other rows may be needed later.
  void load(const WeightRows& rows, int64_t vocab_size, int64_t inputs, GgmlType packed_type, WeightArena& memory,
            const KernelTable& kernels, ThreadPool& threads);

  bool has_all_tokens() const { return token_ids_.empty(); }
  const PackedMatrix& matrix() const { return matrix_; }
  // Copies a row of the matrix's results to the places of their tokens in a row of the whole vocabulary.
  void spread(const float* source, float* row) const;

  // Gives columns to tokens that have none, and returns the tokens that lost theirs. Does nothing if all tokens have
  // columns.
  std::vector<int32_t> admit(std::span<const int32_t> token_ids, const KernelTable& kernels);

 private:
  void resize(int64_t outputs);
  int64_t place(int32_t token_id, std::vector<int32_t>& gone);

  PackedMatrix matrix_;
  WeightRows rows_;
  std::vector<int32_t> token_ids_;  // [matrix_.outputs]
  std::vector<bool> is_present_;    // [vocab_size]
  int64_t num_leading_ = 0;  // columns that are the tokens 0, 1, ...
  int64_t first_spare_ = 0;
  int64_t next_spare_ = 0;
};

}  // namespace paceline
