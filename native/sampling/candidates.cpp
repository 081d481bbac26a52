#include "sampling/candidates.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include "sampling/row_scans.hpp"

namespace paceline {

void collect_candidates(const KeyedRow& row, float bound, std::vector<Candidate>& out) {
  out.clear();
  const int64_t size = static_cast<int64_t>(row.keys.size());
  for (size_t block = 0; block < row.block_maxima.size(); ++block) {
    if (row.block_maxima[block] < bound) continue;
    const int64_t begin = static_cast<int64_t>(block) * kScanBlock;
    const int64_t end = std::min(begin + kScanBlock, size);
    Candidate found[kScanBlock];  // filled without a branch that is hard to predict
    int64_t count = 0;
    for (int64_t id = begin; id < end; ++id) {
      found[count] = {row.keys[id], static_cast<int32_t>(id)};
      count += row.keys[id] >= bound ? 1 : 0;
    }
    out.insert(out.end(), found, found + count);
  }
}

void collect_top(const KeyedRow& row, int64_t count, std::vector<Candidate>& out) {
  // The count-th largest block maximum bounds the count-th largest key from below.
  float bound = -std::numeric_limits<float>::infinity();
  if (count <= static_cast<int64_t>(row.block_maxima.size())) {
    std::vector<float> maxima(row.block_maxima.begin(), row.block_maxima.end());
    std::nth_element(maxima.begin(), maxima.begin() + (count - 1), maxima.end(), std::greater<>());
    bound = maxima[count - 1];
  }
  collect_candidates(row, bound, out);
  const int64_t kept = std::min(count, static_cast<int64_t>(out.size()));
  std::nth_element(out.begin(), out.begin() + (kept - 1), out.end(), comes_before);
  out.resize(kept);
}

namespace {

// Weights in [0, 1] by their sign, exponent and seven bits of mantissa, the largest first.
constexpr size_t kNumBuckets = (0x3F800000U >> 16) + 1;

size_t bucket_of(float weight) { return (0x3F800000U - std::bit_cast<uint32_t>(weight)) >> 16; }

// Narrows `candidates` to those that share a bucket with the last token of the mass; returns the mass before them.
double narrow_to_bucket(std::span<Candidate>& candidates, double mass) {
  std::vector<double> bucket_mass(kNumBuckets, 0.0);
  for (const Candidate& candidate : candidates) bucket_mass[bucket_of(candidate.key)] += grid_weight(candidate.key);
  double mass_before = 0.0;
  size_t bucket = 0;
  while (bucket + 1 < kNumBuckets && mass_before + bucket_mass[bucket] < mass) mass_before += bucket_mass[bucket++];
  const auto end = std::partition(candidates.begin(), candidates.end(),
                                  [&](const Candidate& candidate) { return bucket_of(candidate.key) == bucket; });
  candidates = candidates.first(static_cast<size_t>(end - candidates.begin()));
  return mass_before;
}

}  // namespace

Candidate last_of_mass(std::span<Candidate> candidates, double mass) {
  constexpr size_t kMany = 1024;  // from here on buckets beat halving
  constexpr size_t kFew = 32;
  double mass_before = candidates.size() < kMany ? 0.0 : narrow_to_bucket(candidates, mass);
  while (candidates.size() > kFew) {
    const size_t half = candidates.size() / 2;
    std::nth_element(candidates.begin(), candidates.begin() + half, candidates.end(), comes_before);
    double half_mass = 0.0;
    for (const Candidate& candidate : candidates.first(half)) half_mass += grid_weight(candidate.key);
    if (mass_before + half_mass >= mass) {
      candidates = candidates.first(half);
    } else {
      mass_before += half_mass;
      candidates = candidates.subspan(half);
    }
  }
  std::sort(candidates.begin(), candidates.end(), comes_before);
  for (const Candidate& candidate : candidates) {
    mass_before += grid_weight(candidate.key);
    if (mass_before >= mass) return candidate;
  }
  return candidates.back();
}

}  // namespace paceline
