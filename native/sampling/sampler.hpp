// The acceptance rule's pure function: the target's token at a position from its logits row, its parameters, its history and
// its keyed noise, `argmin E / p` (docs/architecture.md, the acceptance rule).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "paceline/kernel_table.hpp"
#include "sampling/candidates.hpp"
#include "sampling/row_sampler.hpp"
#include "sampling/row_scans.hpp"

namespace paceline {

struct SampleQuery {
  std::span<const float> row;  // raw logits, [vocab_size]
  const RowSampler* sampler;
  int64_t position;                          // absolute index in the sequence of the sampled token
  std::span<const int32_t> extra_token_ids;  // tokens between the committed text and this position
  std::optional<int64_t> num_logprobs;       // log-probability of the token and of this many most likely ones
};

struct SampledToken {
  int32_t token_id = 0;
  float logprob = 0.0F;                               // of the raw distribution; set where num_logprobs is
  std::vector<std::pair<int32_t, float>> top_logprobs;  // most likely first
};

// Samples row after row; holds the scratch memory, so one thread uses one Sampler.
class Sampler {
 public:
  explicit Sampler(const KernelTable& kernels);

  // Throws std::domain_error for a row with a NaN or without a finite maximum, before or after processing.
  SampledToken sample(const SampleQuery& query);

 private:
  struct Peak {
    float logit;
    int64_t id;
  };

  Peak find_peak(std::span<const float> row) const;
  std::span<const float> processed_row(const SampleQuery& query);
  void weigh(std::span<const float> row, float maximum, float temperature);
  Candidate last_kept(const SamplingRule& rule);
  void collect_nucleus(double mass, double total);
  int32_t draw(const NoiseKey& key, const Candidate& last, int64_t first_block) const;
  void add_logprobs(const SampleQuery& query, float maximum, SampledToken& sampled);

  const KernelTable& kernels_;
  const RowScans& scans_;
  std::vector<float> processed_;    // [vocab_size]
  std::vector<float> weights_;      // [vocab_size rounded up to 64], zero beyond vocab_size; 1 at the most likely token
  std::vector<float> maxima_;       // [blocks of 64]
  std::vector<Candidate> candidates_;
};

// Exponential noise of 32 random bits: -ln(1 - u) with u = (bits + 1/2) / 2^32.
double exponential_noise(uint32_t bits);

// A 64-bit fingerprint of the row's bits.
uint64_t hash_row(std::span<const float> row);

}  // namespace paceline
