// What sampling one sequence needs: its parameters, its noise key, and the token counts for its penalties.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sampling/philox.hpp"

namespace paceline {

struct SamplingRule {
  float temperature = 1.0F;  // 0 is greedy
  std::optional<int64_t> top_k;
  double top_p = 1.0;
  float min_p = 0.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
  std::vector<std::pair<int32_t, float>> logit_bias;
  int64_t min_tokens = 0;
  std::vector<int32_t> banned_token_ids;  // banned until min_tokens were output
};

class RowSampler {
 public:
  RowSampler(SamplingRule rule, std::span<const int32_t> prompt_token_ids, uint64_t seed, uint32_t choice_index);

  // Counts committed output tokens.
  void append(std::span<const int32_t> token_ids);

  const SamplingRule& rule() const { return rule_; }
  NoiseKey noise_key(int64_t position) const { return {seed_, static_cast<uint64_t>(position), choice_index_}; }

  // Returns whether the row for the token at `position` differs from the raw logits.
  bool changes_logits(int64_t position) const;
  // Applies penalties, bias and bans, in this order. `row`: a copy of `raw`, [vocab_size]; `extra_token_ids` follow the
  // committed text on the row's path and count as output. Tokens beyond the row are ignored.
  void change_logits(std::span<const float> raw, int64_t position, std::span<const int32_t> extra_token_ids,
                     std::span<float> row) const;

 private:
  struct TokenCount {
    bool is_in_prompt = false;
    int32_t num_output = 0;
  };

  bool has_penalties() const;
  bool has_bans(int64_t position) const;
  float penalized(float logit, TokenCount count) const;

  SamplingRule rule_;
  int64_t num_prompt_tokens_;
  uint64_t seed_;
  uint32_t choice_index_;
  std::unordered_map<int32_t, TokenCount> counts_;  // kept only where a penalty is set
};

}  // namespace paceline
