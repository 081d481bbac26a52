#include "decoder/kept_rows.hpp"

#include <algorithm>
#include <span>

#include "decoder/kv_store.hpp"

namespace paceline {
namespace {

constexpr int64_t kMostRows = 1024;  // enough for the drafts of one step, which ends with a whole pass

std::span<const int32_t> block_table(const Batch& batch, int64_t row) {
  return batch.block_tables.subspan(batch.sequence_indices[row] * batch.max_blocks, batch.max_blocks);
}

int32_t slot_at(std::span<const int32_t> table, int64_t position) {
  return static_cast<int32_t>(table[position / kBlockSlots] * kBlockSlots + position % kBlockSlots);
}

// Returns the blocks of the positions before `position`.
std::span<const int32_t> blocks_before(std::span<const int32_t> table, int64_t position) {
  return table.first((position + kBlockSlots - 1) / kBlockSlots);
}

}  // namespace

void BatchPart::add(const Batch& batch, int64_t row) {
  token_ids_.push_back(batch.token_ids[row]);
  positions_.push_back(batch.positions[row]);
  slots_.push_back(batch.slots[row]);
  sequence_indices_.push_back(batch.sequence_indices[row]);
  const auto path = batch.path_slots.subspan(batch.path_offsets[row], batch.path_length(row));
  path_slots_.insert(path_slots_.end(), path.begin(), path.end());
  path_offsets_.push_back(static_cast<int32_t>(path_slots_.size()));
}

Batch BatchPart::of(const Batch& batch) const {
  Batch part = batch;
  part.token_ids = token_ids_;
  part.positions = positions_;
  part.slots = slots_;
  part.sequence_indices = sequence_indices_;
  part.path_slots = path_slots_;
  part.path_offsets = path_offsets_;
  part.logit_rows = {};
  return part;
}

void KeptRows::forget() {
  rows_.clear();
  states_.clear();
}

void KeptRows::keep(const Batch& batch, int64_t num_layers, const float* hidden, int64_t size) {
  const int64_t num_rows = batch.num_rows();
  const auto num_kept = static_cast<int64_t>(states_.size()) / size;
  if (num_layers != num_layers_ || size != size_ || num_kept + num_rows > kMostRows) forget();
  if (!batch.path_slots.empty() || num_rows > kMostRows) return forget();
  num_layers_ = num_layers;
  size_ = size;
  for (int64_t index = 0; index < num_rows; ++index) {
    const int32_t position = batch.positions[index];
    const auto table = block_table(batch, index);
    Row row{batch.token_ids[index], position, ++last_number_, 0, {}, static_cast<int64_t>(states_.size()) / size};
    const auto parent = position > 0 ? rows_.find(slot_at(table, position - 1)) : rows_.end();
    if (parent != rows_.end() && parent->second.position == position - 1) {
      row.parent_number = parent->second.number;
    } else {
      const auto blocks = blocks_before(table, position);
      row.blocks.assign(blocks.begin(), blocks.end());
    }
    states_.insert(states_.end(), hidden + index * size, hidden + (index + 1) * size);
    rows_.insert_or_assign(batch.slots[index], std::move(row));
  }
}

// Returns whether the row at the position before is still the kept row's parent. It must be the row before in the batch
// too.
bool KeptRows::is_child(const Row& row, const Batch& batch, int64_t index) const {
  const auto parent = rows_.find(batch.slots[index - 1]);
  return parent != rows_.end() && row.parent_number == parent->second.number &&
         batch.positions[index - 1] == row.position - 1 &&
         slot_at(block_table(batch, index), row.position - 1) == batch.slots[index - 1];
}

// Returns whether the text before the kept row lies in the same blocks, and no row was written into it since.
bool KeptRows::follows_text(const Row& row, const Batch& batch, int64_t index) const {
  const auto table = block_table(batch, index);
  const auto blocks = blocks_before(table, row.position);
  if (row.parent_number != 0 || !std::equal(blocks.begin(), blocks.end(), row.blocks.begin(), row.blocks.end())) {
    return false;
  }
  return std::none_of(rows_.begin(), rows_.end(), [&](const auto& entry) {
    const auto& [slot, other] = entry;
    return other.number > row.number && other.position < row.position && slot_at(table, other.position) == slot;
  });
}

std::vector<const float*> KeptRows::find(const Batch& batch) const {
  std::vector<const float*> found(batch.num_rows(), nullptr);
  if (rows_.empty()) return found;
  std::vector<bool> is_begun(batch.num_sequences, false);
  for (int64_t index = 0; index < batch.num_rows(); ++index) {
    const int32_t sequence = batch.sequence_indices[index];
    const bool is_first = !is_begun[sequence];
    is_begun[sequence] = true;
    const auto entry = rows_.find(batch.slots[index]);
    if (entry == rows_.end() || batch.path_length(index) > 0) continue;
    const Row& row = entry->second;
    if (row.token_id != batch.token_ids[index] || row.position != batch.positions[index]) continue;
    const bool continues = index > 0 && batch.sequence_indices[index - 1] == sequence && found[index - 1] != nullptr;
    if (is_first ? follows_text(row, batch, index) : continues && is_child(row, batch, index)) {
      found[index] = states_.data() + row.state * size_;
    }
  }
  return found;
}

}  // namespace paceline
