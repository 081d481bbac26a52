// Finds the most likely tokens of a row without sorting it: by rank, by mass or by a bound.
//
// Tokens are always ordered by (larger key, lower id). This is a total order, so each prefix of it is one well-defined
// set, and each of the three truncations keeps a prefix.
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

// As the last token of a prefix, this keeps all tokens.
constexpr Candidate kKeepAll{-std::numeric_limits<float>::infinity(), std::numeric_limits<int32_t>::max()};

inline bool is_kept(const Candidate& token, const Candidate& last) { return !comes_before(last, token); }

// A row of keys, with the largest key of each block of 64.
struct KeyedRow {
  std::span<const float> keys;
  std::span<const float> block_maxima;
  const RowScans& scans;
};

// Puts all tokens whose key is at least `bound` and less than `end_key` into `out`, by id.
void collect_candidates(const KeyedRow& row, float bound, float end_key, std::vector<Candidate>& out);

// Puts the first `count` tokens of the order into `out`. They are not sorted, but the last one in the order comes last.
// `count` is at least 1; if it is larger than the row, all tokens are taken.
void collect_top(const KeyedRow& row, int64_t count, std::vector<Candidate>& out);

// Returns the last token of the shortest prefix of `candidates` for which `mass_before` plus the prefix's weights is at
// least `mass`; the last candidate if all of them have less. Reorders `candidates`, which must not be empty. Weights
// are summed exactly (`grid_weight`).
Candidate last_of_mass(std::span<Candidate> candidates, double mass_before, double mass);

}  // namespace paceline
