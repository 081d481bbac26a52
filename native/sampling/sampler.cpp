#include "sampling/sampler.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string_view>

#include "sampling/logarithm.hpp"

namespace paceline {
namespace {

constexpr int64_t kChunk = 64 * kScanBlock;  // logits that several scans share while they are in the first cache

const RowScans& scans_of(const KernelTable& kernels) {
  const std::string_view name = kernels.name;
  if (name == "avx512") return avx512::row_scans();
  if (name == "avx2") return avx2::row_scans();
  return scalar::row_scans();
}

int64_t blocks_of(size_t size) { return (static_cast<int64_t>(size) + kScanBlock - 1) / kScanBlock; }

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

Sampler::Sampler(const KernelTable& kernels) : kernels_(kernels), scans_(scans_of(kernels)) {}

SampledToken Sampler::sample(const SampleQuery& query) {
  const Peak raw_peak = find_peak(query.row);
  const std::span<const float> row = processed_row(query);
  const Peak peak = row.data() == query.row.data() ? raw_peak : find_peak(row);
  const SamplingRule& rule = query.sampler->rule();
  SampledToken sampled;
  if (rule.temperature == 0.0F) {
    sampled.token_id = static_cast<int32_t>(peak.id);
  } else {
    weigh(row, peak.logit, rule.temperature);
    const Candidate last = last_kept(rule);
    sampled.token_id = draw(query.sampler->noise_key(query.position), last, peak.id / kScanBlock);
  }
  if (query.num_logprobs) add_logprobs(query, raw_peak.logit, sampled);
  return sampled;
}

Sampler::Peak Sampler::find_peak(std::span<const float> row) const {
  Peak peak{-std::numeric_limits<float>::infinity(), 0};
  const int64_t size = static_cast<int64_t>(row.size());
  int64_t best_chunk = 0;
  for (int64_t begin = 0; begin < size; begin += kChunk) {
    const int64_t length = std::min(kChunk, size - begin);
    if (scans_.has_nan(row.data() + begin, length)) throw std::domain_error("a row of logits contains a NaN");
    const float maximum = kernels_.maximum(row.data() + begin, length);
    if (!(maximum > peak.logit)) continue;
    peak.logit = maximum;
    best_chunk = begin;
  }
  if (!std::isfinite(peak.logit)) throw std::domain_error("a row of logits leaves no token: its maximum is not finite");
  for (peak.id = best_chunk; row[peak.id] != peak.logit;) ++peak.id;
  return peak;
}

std::span<const float> Sampler::processed_row(const SampleQuery& query) {
  if (!query.sampler->changes_logits(query.position)) return query.row;
  processed_.assign(query.row.begin(), query.row.end());
  query.sampler->change_logits(query.row, query.position, query.extra_token_ids, processed_);
  return processed_;
}

// Fills weights_ with e^((logit - maximum) / temperature), maxima_ with their block maxima.
void Sampler::weigh(std::span<const float> row, float maximum, float temperature) {
  const int64_t size = static_cast<int64_t>(row.size());
  const int64_t padded = blocks_of(row.size()) * kScanBlock;
  weights_.resize(padded);
  maxima_.resize(blocks_of(row.size()));
  std::fill(weights_.begin() + size, weights_.end(), 0.0F);
  const float inverse = std::min(1.0F / temperature, std::numeric_limits<float>::max());
  for (int64_t begin = 0; begin < padded; begin += kChunk) {
    float* weights = weights_.data() + begin;
    kernels_.exponentials(row.data() + begin, std::min(kChunk, size - begin), maximum, inverse, weights);
    scans_.block_maxima(weights, std::min(kChunk, padded - begin), maxima_.data() + begin / kScanBlock);
  }
}

// The last token that top-k, top-p and min-p leave, in this order.
Candidate Sampler::last_kept(const SamplingRule& rule) {
  Candidate last = kKeepAll;
  const KeyedRow row{weights_, maxima_};
  if (rule.top_k) {
    collect_top(row, *rule.top_k, candidates_);
    last = candidates_.back();
  }
  if (rule.top_p < 1.0) {
    double total = 0.0;
    if (rule.top_k) {
      for (const Candidate& candidate : candidates_) total += grid_weight(candidate.key);
    } else {
      total = scans_.sum_weights(weights_.data(), static_cast<int64_t>(weights_.size()));
      collect_nucleus(rule.top_p * total, total);
    }
    last = last_of_mass(candidates_, rule.top_p * total);
  }
  const Candidate least_likely{rule.min_p, std::numeric_limits<int32_t>::max()};
  return rule.min_p > 0.0F && comes_before(least_likely, last) ? least_likely : last;
}

// Puts at least the tokens of the nucleus into candidates_: all above a bound that is lowered until they have the mass.
void Sampler::collect_nucleus(double mass, double total) {
  const KeyedRow row{weights_, maxima_};
  // Tokens below this have less than total - mass together, so those above it are enough.
  const double enough = (total - mass) / static_cast<double>(weights_.size());
  for (double bound = 0x1p-7; bound > enough; bound *= 0x1p-5) {
    collect_candidates(row, static_cast<float>(bound), candidates_);
    double collected = 0.0;
    for (const Candidate& candidate : candidates_) collected += grid_weight(candidate.key);
    if (collected >= mass) return;
  }
  constexpr double kFarAboveGrid = 1e-8;  // where rounding to the grid of 2^-33 is under the margin of 1 %
  collect_candidates(row, enough > kFarAboveGrid ? static_cast<float>(0.99 * enough) : 0.0F, candidates_);
}

// argmin of noise / weight over the tokens up to `last`, ties to the lower id. Blocks can come in any order; that of the most
// likely token comes first, because a small minimum spares the others their noise and their logarithms.
int32_t Sampler::draw(const NoiseKey& key, const Candidate& last, int64_t first_block) const {
  constexpr float kLeastUniform = 0x1p-33F;
  double best = std::numeric_limits<double>::infinity();
  int32_t best_id = 0;
  uint32_t bits[kScanBlock];
  const auto visit = [&](int64_t block) {
    const float* weights = weights_.data() + block * kScanBlock;
    const float limit = static_cast<float>(best);
    if (maxima_[block] < last.key || kLeastUniform > limit * maxima_[block] * 1.0001F) return;
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
  for (int64_t block = 0; block < static_cast<int64_t>(maxima_.size()); ++block) {
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
  maxima_.resize(blocks_of(query.row.size()));
  scans_.block_maxima(query.row.data(), size, maxima_.data());
  collect_top({query.row, maxima_}, *query.num_logprobs, candidates_);
  std::sort(candidates_.begin(), candidates_.end(), comes_before);
  for (const Candidate& candidate : candidates_) {
    sampled.top_logprobs.emplace_back(candidate.id, logprob_of(candidate.key));
  }
}

}  // namespace paceline
