// The pure function of the acceptance rule (docs/architecture.md). It computes a position's token, `argmin E / p`, from
// the logits row, the sampling parameters, the tokens before and the keyed noise.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "paceline/kernel_table.hpp"
#include "paceline/thread_pool.hpp"
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
  std::span<const uint32_t> mask;            // bit i % 32 of word i / 32 allows token i; empty where all are allowed
};

struct SampledToken {
  int32_t token_id = 0;
  float logprob = 0.0F;                               // of the raw distribution; set where num_logprobs is
  std::vector<std::pair<int32_t, float>> top_logprobs;  // most likely first
};

// A token, or why the row has none.
struct SampledRow {
  SampledToken token;
  std::optional<std::string> failure;
};

// Samples all rows. Threads divide the rows among themselves, or the pieces of a row if there are fewer rows than
// threads. A result depends only on its query. A row that has a NaN or no finite maximum, before or after processing,
// fails without affecting others.
std::vector<SampledRow> sample_rows(std::span<const SampleQuery> queries, const KernelTable& kernels, ThreadPool& threads);

// Memory for sampling one row. It grows to the largest vocabulary, and the next row overwrites it.
struct SamplerScratch {
  std::vector<float> processed;       // [vocab_size]
  std::vector<float> raw_maxima;      // largest of each 64 raw logits
  std::vector<float> logit_maxima;    // largest of each 64 processed logits
  std::vector<float> weights;         // [vocab_size rounded up to 64], zero beyond vocab_size; 1 at the most likely token
  std::vector<float> weight_maxima;   // [blocks of 64]
  std::vector<double> sums;           // [chunks] of weights
  std::vector<Candidate> candidates;
};

class Sampler {
 public:
  // `threads` share the pieces of a row. One thread at a time uses a scratch.
  Sampler(const KernelTable& kernels, SamplerScratch& scratch, ThreadPool& threads);

  // Throws std::domain_error where the row has no token.
  SampledToken sample(const SampleQuery& query);

 private:
  struct Peak {
    float logit;
    int64_t id;
  };

  Peak find_peak(std::span<const float> row, std::vector<float>& block_maxima);
  std::span<const float> processed_row(const SampleQuery& query);
  double weigh(std::span<const float> row, std::vector<float>& block_maxima, float maximum, float temperature);
  Candidate last_kept(const SamplingRule& rule, double total);
  Candidate last_of_nucleus(double mass);
  int32_t draw(const NoiseKey& key, const Candidate& last, int64_t first_block) const;
  void add_logprobs(const SampleQuery& query, float maximum, SampledToken& sampled);

  const KernelTable& kernels_;
  const RowScans& scans_;
  SamplerScratch& scratch_;
  ThreadPool& threads_;
};

// Returns the exponential noise of 32 random bits: -ln(1 - u) with u = (bits + 1/2) / 2^32.
double exponential_noise(uint32_t bits);

// Returns a 64-bit fingerprint of the row's bits.
uint64_t hash_row(std::span<const float> row);

}  // namespace paceline
