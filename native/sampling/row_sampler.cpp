#include "sampling/row_sampler.hpp"

#include <algorithm>
#include <limits>

namespace paceline {

RowSampler::RowSampler(SamplingRule rule, std::span<const int32_t> prompt_token_ids, uint64_t seed,
                       uint32_t choice_index)
    : rule_(std::move(rule)),
      num_prompt_tokens_(static_cast<int64_t>(prompt_token_ids.size())),
      seed_(seed),
      choice_index_(choice_index) {
  if (!has_penalties()) return;
  for (const int32_t id : prompt_token_ids) counts_[id].is_in_prompt = true;
}

void RowSampler::append(std::span<const int32_t> token_ids) {
  if (!has_penalties()) return;
  for (const int32_t id : token_ids) counts_[id].num_output += 1;
}

bool RowSampler::has_penalties() const {
  return rule_.presence_penalty != 0.0F || rule_.frequency_penalty != 0.0F || rule_.repetition_penalty != 1.0F;
}

bool RowSampler::has_bans(int64_t position) const {
  return position - num_prompt_tokens_ < rule_.min_tokens && !rule_.banned_token_ids.empty();
}

bool RowSampler::changes_logits(int64_t position) const {
  return has_penalties() || !rule_.logit_bias.empty() || has_bans(position);
}

// The repetition penalty counts prompt and output; the other two count output only (OpenAI's and vLLM's definitions).
float RowSampler::penalized(float logit, TokenCount count) const {
  logit = logit > 0.0F ? logit / rule_.repetition_penalty : logit * rule_.repetition_penalty;
  if (count.num_output == 0) return logit;
  logit -= rule_.frequency_penalty * static_cast<float>(count.num_output);
  return logit - rule_.presence_penalty;
}

void RowSampler::change_logits(std::span<const float> raw, int64_t position,
                               std::span<const int32_t> extra_token_ids, std::span<float> row) const {
  const auto in_row = [&](int32_t id) { return static_cast<size_t>(id) < row.size(); };
  if (has_penalties()) {
    for (const auto& [id, count] : counts_) {
      if (in_row(id)) row[id] = penalized(raw[id], count);
    }
    for (const int32_t id : extra_token_ids) {
      if (!in_row(id)) continue;
      const auto known = counts_.find(id);
      TokenCount count = known == counts_.end() ? TokenCount{} : known->second;
      count.num_output += static_cast<int32_t>(std::count(extra_token_ids.begin(), extra_token_ids.end(), id));
      row[id] = penalized(raw[id], count);
    }
  }
  for (const auto& [id, bias] : rule_.logit_bias) {
    if (in_row(id)) row[id] += bias;
  }
  if (!has_bans(position)) return;
  for (const int32_t id : rule_.banned_token_ids) {
    if (in_row(id)) row[id] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace paceline
