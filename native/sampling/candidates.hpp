// The most likely tokens of a row without sorting it: by rank, by mass, by a bound.
//
// Everywhere tokens are ordered by (larger key, lower id), a total order, so a prefix of that order is one well-defined set
// and each of the three truncations keeps a prefix.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sampling/row_scans.hpp"

namespace paceline {

struct Candidate {
  float key;  // a weight or a logit
  int32_t id;
};

inline bool comes_before(const Candidate& a, const Candidate& b) {
  return a.key > b.key || (a.key == b.key && a.id < b.id);
}

// The last token of a prefix of the order.
constexpr Candidate kKeepAll{-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};

inline bool is_kept(const Candidate& token, const Candidate& last) { return !comes_before(last, token); }

// A row of keys with the largest key of each 64.
struct KeyedRow {
  std::span<const float> keys;
  std::span<const float> block_maxima;
  const RowScans& scans;
};

// Puts all tokens whose key is at least `bound` and less than `end_key` into `out`, by id.
void collect_candidates(const KeyedRow& row, float bound, float end_key, std::vector<Candidate>& out);

// Puts the `count` first tokens of the order into `out`, unordered but for the last one, which is last in the order too;
// `count` is at least 1 and is taken as the row's length where it is larger.
void collect_top(const KeyedRow& row, int64_t count, std::vector<Candidate>& out);

// The last token of the shortest prefix of `candidates` whose weights' sum and `mass_before` are at least `mass`; the last
// candidate where even all have less. Reorders `candidates`, which must not be empty. Weights are summed exactly
// (`grid_weight`).
Candidate last_of_mass(std::span<Candidate> candidates, double mass_before, double mass);

}  // namespace paceline
