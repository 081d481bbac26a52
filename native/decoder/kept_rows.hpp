// Keeps the hidden states that passes over a decoder's first layers have computed. The whole pass that follows then
// skips these layers for the rows that it shares with such passes.
//
// A row's hidden state is a function of its token, its position and the contents of the slots before it. A kept row is
// found again only if all of these are the same: the token, the position, the blocks of the text before it, and the
// rows kept since, each of which must be found itself. Code that changes KV in another way than by passes over the
// first layers must drop the kept rows.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "decoder/batch.hpp"

namespace paceline {

// Some rows of a batch as a batch of their own, without logits.
class BatchPart {
 public:
  void add(const Batch& batch, int64_t row);
  // Valid until the next call of `add`.
  Batch of(const Batch& batch) const;

 private:
  std::vector<int32_t> token_ids_, positions_, slots_, sequence_indices_, path_slots_;
  std::vector<int32_t> path_offsets_{0};
};

class KeptRows {
 public:
  // Keeps the states of a pass over the first `num_layers` layers; `hidden`: [rows][size]. After a batch with paths,
  // nothing is kept.
  void keep(const Batch& batch, int64_t num_layers, const float* hidden, int64_t size);

  // Returns the kept state of each row; null where there is none.
  std::vector<const float*> find(const Batch& batch) const;

  int64_t num_layers() const { return num_layers_; }

 private:
  struct Row {
    int32_t token_id;
    int32_t position;
    int64_t number;               // rows are numbered as they come, from 1
    int64_t parent_number;        // of the kept row at the position before; 0 if there is none
    std::vector<int32_t> blocks;  // of the text before the row, if parent_number is 0
    int64_t state;                // index into states_
  };

  bool is_child(const Row& row, const Batch& batch, int64_t index) const;
  bool follows_text(const Row& row, const Batch& batch, int64_t index) const;
  void forget();

  std::unordered_map<int32_t, Row> rows_;  // by slot
  std::vector<float> states_;              // [rows][size]
  int64_t num_layers_ = 0;
  int64_t size_ = 0;
  int64_t last_number_ = 0;
};

}  // namespace paceline
