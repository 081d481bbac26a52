#include "sampling/candidates.hpp"

#include <algorithm>
#include <bit>
#include <functional>

namespace paceline {

void collect_candidates(const KeyedRow& row, float bound, float end_key, std::vector<Candidate>& out) {
  out.clear();
  const auto collect_block = [&](const float* keys, int64_t first, uint64_t mask) {
    for (uint64_t found = row.scans.keys_between(keys, bound, end_key) & mask; found != 0; found &= found - 1) {
      const int i = std::countr_zero(found);
      out.push_back({keys[i], static_cast<int32_t>(first + i)});
    }
  };
  const auto size = static_cast<int64_t>(row.keys.size());
  for (size_t block = 0; block < row.block_maxima.size(); ++block) {
    if (row.block_maxima[block] < bound) continue;
    const int64_t first = static_cast<int64_t>(block) * kScanBlock;
    if (first + kScanBlock <= size) {
      collect_block(row.keys.data() + first, first, ~uint64_t{0});
    } else {
      float keys[kScanBlock] = {};
      std::copy(row.keys.begin() + first, row.keys.end(), keys);
      collect_block(keys, first, (uint64_t{1} << (size - first)) - 1);
    }
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
  collect_candidates(row, bound, std::numeric_limits<float>::infinity(), out);
  const int64_t kept = std::min(count, static_cast<int64_t>(out.size()));
  std::nth_element(out.begin(), out.begin() + (kept - 1), out.end(), comes_before);
  out.resize(kept);
}

namespace {

// Buckets hold weights in [0, 1] with the same sign, exponent and seven bits of mantissa; the largest weights come
// first.
constexpr size_t kNumBuckets = (0x3F800000U >> 16) + 1;

size_t bucket_of(float weight) { return (0x3F800000U - std::bit_cast<uint32_t>(weight)) >> 16; }

// Narrows `candidates` to the bucket that has the last token of the mass; returns the mass before that bucket.
double narrow_to_bucket(std::span<Candidate>& candidates, double mass_before, double mass) {
  std::vector<double> bucket_mass(kNumBuckets, 0.0);
  for (const Candidate& candidate : candidates) bucket_mass[bucket_of(candidate.key)] += grid_weight(candidate.key);
  size_t bucket = 0;
  while (bucket + 1 < kNumBuckets && mass_before + bucket_mass[bucket] < mass) mass_before += bucket_mass[bucket++];
  const auto end = std::partition(candidates.begin(), candidates.end(),
                                  [&](const Candidate& candidate) { return bucket_of(candidate.key) == bucket; });
  candidates = candidates.first(static_cast<size_t>(end - candidates.begin()));
  return mass_before;
}

}  // namespace

Candidate last_of_mass(std::span<Candidate> candidates, double mass_before, double mass) {
  constexpr size_t kMany = 1024;  // from this size on, buckets are faster than halving
  constexpr size_t kFew = 32;
  if (candidates.size() >= kMany) mass_before = narrow_to_bucket(candidates, mass_before, mass);
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
