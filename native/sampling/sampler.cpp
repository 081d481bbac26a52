#include "sampling/sampler.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "sampling/logarithm.hpp"

namespace paceline {
namespace {

constexpr int64_t kChunk = 64 * kScanBlock;  // logits that a scan takes in one call
constexpr int64_t kChunkGrain = 4;           // chunks that a thread claims at a time

const RowScans& scans_of(const KernelTable& kernels) {
  const std::string_view name = kernels.name;
  if (name == "avx512" || name == "amx") return avx512::row_scans();  // AMX only multiplies matrices
  if (name == "avx2") return avx2::row_scans();
  return scalar::row_scans();
}

int64_t blocks_of(size_t size) { return (static_cast<int64_t>(size) + kScanBlock - 1) / kScanBlock; }
int64_t chunks_of(size_t size) { return (static_cast<int64_t>(size) + kChunk - 1) / kChunk; }

RowPiece chunk_of(std::span<const float> row, std::vector<float>& block_maxima, int64_t chunk) {
  const int64_t begin = chunk * kChunk;
  const int64_t size = std::min(kChunk, static_cast<int64_t>(row.size()) - begin);
  return {row.data() + begin, size, block_maxima.data() + begin / kScanBlock};
}

// Makes tokens impossible that the mask does not allow or that lie beyond its words.
void apply_mask(std::span<const uint32_t> mask, std::span<float> row) {
  constexpr size_t kBits = 32;
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  for (size_t begin = 0; begin < row.size(); begin += kBits) {
    const uint32_t word = begin / kBits < mask.size() ? mask[begin / kBits] : 0;
    if (word == ~uint32_t{0}) continue;
    const size_t end = std::min(row.size(), begin + kBits);
    for (size_t id = begin; id < end; ++id) {
      if ((word >> (id - begin) & 1U) == 0) row[id] = kImpossible;
    }
  }
}

SampledRow sample_row(const SampleQuery& query, const KernelTable& kernels, ThreadPool& threads) {
  const FloatingPointMode mode;
  thread_local SamplerScratch scratch;
  try {
    return {Sampler(kernels, scratch, threads).sample(query), std::nullopt};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

}  // namespace

double exponential_noise(uint32_t bits) {
  const double uniform = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  return -natural_logarithm(1.0 - uniform);  // 1 - u has 33 bits, so it is exact
}

uint64_t hash_row(std::span<const float> row) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ULL;
  uint64_t hash = row.size() * kMultiplier;
  for (const float value : row) {
    hash = (hash ^ std::bit_cast<uint32_t>(value)) * kMultiplier;
    hash ^= hash >> 29;
  }
  return hash;
}

std::vector<SampledRow> sample_rows(std::span<const SampleQuery> queries, const KernelTable& kernels,
                                    ThreadPool& threads) {
  const auto count = static_cast<int64_t>(queries.size());
  std::vector<SampledRow> sampled(queries.size());
  if (count < threads.num_threads()) {
    for (int64_t i = 0; i < count; ++i) sampled[i] = sample_row(queries[i], kernels, threads);
    return sampled;
  }
  ThreadPool alone(1);
  threads.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sampled[i] = sample_row(queries[i], kernels, alone);
  });
  return sampled;
}

Sampler::Sampler(const KernelTable& kernels, SamplerScratch& scratch, ThreadPool& threads)
    : kernels_(kernels), scans_(scans_of(kernels)), scratch_(scratch), threads_(threads) {}

SampledToken Sampler::sample(const SampleQuery& query) {
  const Peak raw_peak = find_peak(query.row, scratch_.raw_maxima);
  const std::span<const float> row = processed_row(query);
  const bool is_raw = row.data() == query.row.data();
  std::vector<float>& logit_maxima = is_raw ? scratch_.raw_maxima : scratch_.logit_maxima;
  const Peak peak = is_raw ? raw_peak : find_peak(row, logit_maxima);
  const SamplingRule& rule = query.sampler->rule();
  SampledToken sampled;
  if (rule.temperature == 0.0F) {
    sampled.token_id = static_cast<int32_t>(peak.id);
  } else {
    const double total = weigh(row, logit_maxima, peak.logit, rule.temperature);
    const Candidate last = last_kept(rule, total);
    sampled.token_id = draw(query.sampler->noise_key(query.position), last, peak.id / kScanBlock);
  }
  if (query.num_logprobs) add_logprobs(query, raw_peak.logit, sampled);
  return sampled;
}

// Returns the largest logit and the first token that has it; fills `block_maxima`.
Sampler::Peak Sampler::find_peak(std::span<const float> row, std::vector<float>& block_maxima) {
  block_maxima.resize(blocks_of(row.size()));
  std::atomic<bool> has_nan{false};
  threads_.parallel_for(chunks_of(row.size()), kChunkGrain, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      if (scans_.scan(chunk_of(row, block_maxima, chunk))) has_nan.store(true, std::memory_order_relaxed);
    }
  });
  if (has_nan.load(std::memory_order_relaxed)) throw std::domain_error("a row of logits contains a NaN");
  const auto best = std::max_element(block_maxima.begin(), block_maxima.end());
  if (!std::isfinite(*best)) throw std::domain_error("a row of logits leaves no token: its maximum is not finite");
  Peak peak{*best, (best - block_maxima.begin()) * kScanBlock};
  while (row[peak.id] != peak.logit) ++peak.id;
  return peak;
}

std::span<const float> Sampler::processed_row(const SampleQuery& query) {
  if (!query.sampler->changes_logits(query.position) && query.mask.empty()) return query.row;
  scratch_.processed.assign(query.row.begin(), query.row.end());
  query.sampler->change_logits(query.row, query.position, query.extra_token_ids, scratch_.processed);
  if (!query.mask.empty()) apply_mask(query.mask, scratch_.processed);
  return scratch_.processed;
}

// Fills the weights, e^((logit - maximum) / temperature), and their block maxima; returns the weights' sum.
double Sampler::weigh(std::span<const float> row, std::vector<float>& block_maxima, float maximum, float temperature) {
  scratch_.weights.resize(blocks_of(row.size()) * kScanBlock);
  scratch_.weight_maxima.resize(blocks_of(row.size()));
  scratch_.sums.resize(chunks_of(row.size()));
  const float inverse = std::min(1.0F / temperature, std::numeric_limits<float>::max());
  threads_.parallel_for(chunks_of(row.size()), kChunkGrain, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      float* weights = scratch_.weights.data() + chunk * kChunk;
      float* maxima = scratch_.weight_maxima.data() + chunk * (kChunk / kScanBlock);
      scratch_.sums[chunk] = scans_.weigh(chunk_of(row, block_maxima, chunk), maximum, inverse, weights, maxima);
    }
  });
  double total = 0.0;
  for (const double sum : scratch_.sums) total += sum;
  return total;
}

// Returns the last token that top-k, top-p and min-p leave, applied in this order; `total` is the sum of all weights.
Candidate Sampler::last_kept(const SamplingRule& rule, double total) {
  Candidate last = kKeepAll;
  if (rule.top_k) {
    std::vector<Candidate>& candidates = scratch_.candidates;
    collect_top({scratch_.weights, scratch_.weight_maxima, scans_}, *rule.top_k, candidates);
    last = candidates.back();
    if (rule.top_p < 1.0) {
      total = 0.0;
      for (const Candidate& candidate : candidates) total += grid_weight(candidate.key);
      last = last_of_mass(candidates, 0.0, rule.top_p * total);
    }
  } else if (rule.top_p < 1.0) {
    last = last_of_nucleus(rule.top_p * total);
  }
  const Candidate least_likely{rule.min_p, std::numeric_limits<int32_t>::max()};
  return rule.min_p > 0.0F && comes_before(least_likely, last) ? least_likely : last;
}

// Returns the last token of the shortest prefix with at least `mass`. Narrows down the weight of this token from both
// sides, until few tokens are left between the two bounds.
Candidate Sampler::last_of_nucleus(double mass) {
  constexpr double kFew = 2048;
  constexpr float kNarrow = 1.01F;  // no bound can separate equal weights
  const auto num_blocks = static_cast<int64_t>(scratch_.weight_maxima.size());
  const auto mass_from = [&](float bound) {
    return scans_.sum_from(scratch_.weights.data(), scratch_.weight_maxima.data(), num_blocks, bound);
  };
  float end = 2.0F;  // all tokens of at least this weight together have less than `mass`
  float bound = 0x1p-7F;
  double mass_before = 0.0;
  double mass_up_to_bound = mass_from(bound);
  while (mass_up_to_bound < mass && bound > 0.0F) {
    end = bound;
    mass_before = mass_up_to_bound;
    bound = bound > 0x1p-34F ? bound * 0x1p-5F : 0.0F;  // smaller weights count as zero
    mass_up_to_bound = mass_from(bound);
  }
  while (mass_up_to_bound - mass_before > kFew * static_cast<double>(bound) && end > kNarrow * bound && bound > 0.0F) {
    const float middle = std::sqrt(bound * end);
    const double mass_up_to_middle = mass_from(middle);
    if (mass_up_to_middle >= mass) {
      bound = middle;
      mass_up_to_bound = mass_up_to_middle;
    } else {
      end = middle;
      mass_before = mass_up_to_middle;
    }
  }
  collect_candidates({scratch_.weights, scratch_.weight_maxima, scans_}, bound, end, scratch_.candidates);
  return last_of_mass(scratch_.candidates, mass_before, mass);
}

// Returns the argmin of noise / weight over the tokens up to `last`; ties go to the lower id. Blocks can come in any
// order. The block of the most likely token comes first, because a small minimum makes noise and logarithms of other
// blocks unnecessary.
int32_t Sampler::draw(const NoiseKey& key, const Candidate& last, int64_t first_block) const {
  constexpr float kLeastUniform = 0x1p-33F;
  double best = std::numeric_limits<double>::infinity();
  int32_t best_id = 0;
  uint32_t bits[kScanBlock];
  const auto visit = [&](int64_t block) {
    const float* weights = scratch_.weights.data() + block * kScanBlock;
    const float limit = static_cast<float>(best);
    if (scratch_.weight_maxima[block] < last.key || kLeastUniform > limit * scratch_.weight_maxima[block] * 1.0001F) return;
    if (!scans_.draw_block(key, block, weights, limit, bits)) return;
    for (int64_t i = 0; i < kScanBlock; ++i) {
      const Candidate token{weights[i], static_cast<int32_t>(block * kScanBlock + i)};
      if (!(token.key > 0.0F) || !is_kept(token, last)) continue;
      const double weight = token.key;
      if ((static_cast<double>(bits[i]) + 0.5) * 0x1p-32 / weight > best) continue;
      const double score = exponential_noise(bits[i]) / weight;
      if (score > best || (score == best && token.id > best_id)) continue;
      best = score;
      best_id = token.id;
    }
  };
  visit(first_block);
  for (int64_t block = 0; block < static_cast<int64_t>(scratch_.weight_maxima.size()); ++block) {
    if (block != first_block) visit(block);
  }
  return best_id;
}

void Sampler::add_logprobs(const SampleQuery& query, float maximum, SampledToken& sampled) {
  const int64_t size = static_cast<int64_t>(query.row.size());
  const double log_sum = natural_logarithm(kernels_.sum_exponentials(query.row.data(), size, maximum));
  const auto logprob_of = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(maximum) - log_sum);
  };
  sampled.logprob = logprob_of(query.row[sampled.token_id]);
  if (*query.num_logprobs == 0) return;
  collect_top({query.row, scratch_.raw_maxima, scans_}, *query.num_logprobs, scratch_.candidates);
  std::sort(scratch_.candidates.begin(), scratch_.candidates.end(), comes_before);
  for (const Candidate& candidate : scratch_.candidates) {
    sampled.top_logprobs.emplace_back(candidate.id, logprob_of(candidate.key));
  }
}

}  // namespace paceline
