#include "decoder/output_layer.hpp"

#include <algorithm>
#include <set>

namespace paceline {
namespace {

constexpr int64_t kSpareColumns = 1024;
constexpr int64_t kPackGrain = 64;

}  // namespace

void OutputLayer::load(const WeightRows& rows, int64_t vocab_size, int64_t inputs, GgmlType packed_type,
                       WeightArena& memory, const KernelTable& kernels, ThreadPool& threads) {
  rows_ = rows;
  token_ids_.assign(rows.selected.begin(), rows.selected.end());
  const auto num_selected = static_cast<int64_t>(token_ids_.size());
  matrix_ = make_packed_matrix(packed_type, has_all_tokens() ? vocab_size : num_selected + kSpareColumns, inputs,
                               &memory);
  if (!has_all_tokens()) {
    is_present_.assign(static_cast<size_t>(vocab_size), false);
    for (const int32_t token_id : token_ids_) is_present_[token_id] = true;
    for (num_leading_ = 0; num_leading_ < num_selected && token_ids_[num_leading_] == num_leading_;) ++num_leading_;
    first_spare_ = next_spare_ = num_selected;
    resize(num_selected);
  }
  threads.parallel_for(matrix_.column_blocks, kPackGrain, [&](int64_t begin, int64_t end) {
    const FloatingPointMode mode;
    pack_blocks(matrix_, rows, kernels, begin, end);
  });
}

std::vector<int32_t> OutputLayer::admit(std::span<const int32_t> token_ids, const KernelTable& kernels) {
  std::vector<int32_t> gone;
  if (has_all_tokens()) return gone;
  std::set<int64_t> changed_blocks;
  for (const int32_t token_id : token_ids) {
    if (!is_present_[token_id]) changed_blocks.insert(place(token_id, gone) / kColumnBlock);
  }
  rows_.selected = token_ids_;
  for (const int64_t block : changed_blocks) pack_blocks(matrix_, rows_, kernels, block, block + 1);
  return gone;
}

void OutputLayer::spread(const float* source, float* row) const {
  std::copy_n(source, num_leading_, row);
  for (size_t i = static_cast<size_t>(num_leading_); i < token_ids_.size(); ++i) row[token_ids_[i]] = source[i];
}

// Gives the token a spare column, and returns that column.
int64_t OutputLayer::place(int32_t token_id, std::vector<int32_t>& gone) {
  const int64_t column = next_spare_;
  next_spare_ = column + 1 < first_spare_ + kSpareColumns ? column + 1 : first_spare_;
  if (column == matrix_.outputs) {
    token_ids_.push_back(token_id);
    resize(column + 1);
  } else {
    gone.push_back(token_ids_[column]);
    is_present_[token_ids_[column]] = false;
    token_ids_[column] = token_id;
  }
  is_present_[token_id] = true;
  return column;
}

void OutputLayer::resize(int64_t outputs) {
  matrix_.outputs = outputs;
  matrix_.column_blocks = (outputs + kColumnBlock - 1) / kColumnBlock;
}

}  // namespace paceline
