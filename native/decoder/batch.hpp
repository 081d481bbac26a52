// The rows of one forward pass; see paceline.core.Batch for what each array means.
#pragma once

#include <cstdint>
#include <span>

namespace paceline {

struct Batch {
  std::span<const int32_t> token_ids;
  std::span<const int32_t> positions;
  std::span<const int32_t> slots;
  std::span<const int32_t> sequence_indices;
  std::span<const int32_t> block_tables;  // [num_sequences][max_blocks]
  int64_t num_sequences = 0;
  int64_t max_blocks = 0;
  std::span<const int32_t> path_slots;
  std::span<const int32_t> path_offsets;  // [num_rows + 1]
  std::span<const int32_t> logit_rows;

  int64_t num_rows() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t path_length(int64_t row) const { return path_offsets[row + 1] - path_offsets[row]; }
};

}  // namespace paceline
