// What passes over a decoder's first layers leave to the whole pass that follows: each row's hidden state behind those layers, so
// that the whole pass may begin there for the rows that it shares with them.
//
// A hidden state is a function of the row's token, its position and what lies in the slots of the positions before. A row is
// recognized by all of these: by the blocks of the text that was there before, and by the rows since, each of which must be known
// itself. Whoever changes KV other than by passes over the first layers must drop what was kept.
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
  // Takes in a pass over the first `num_layers` layers; `hidden`: [rows][size]. Nothing is kept of a batch with paths.
  void keep(const Batch& batch, int64_t num_layers, const float* hidden, int64_t size);

  // The kept state of each row, null where there is none.
  std::vector<const float*> find(const Batch& batch) const;

  int64_t num_layers() const { return num_layers_; }

 private:
  struct Row {
    int32_t token_id;
    int32_t position;
    int64_t number;               // rows are numbered as they come, from 1
    int64_t parent_number;        // of the row at the position before; 0 where that is text from before
    std::vector<int32_t> blocks;  // of that text
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
