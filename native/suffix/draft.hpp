// Drafts of the suffix drafter: the nodes that are the most likely to be accepted, as a chain or a tree.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "suffix/suffix_tree.hpp"

namespace paceline {

struct DraftLimits {
  int64_t window = 0;         // most nodes
  double stop_below = 0.0;    // least survival of a node: its confidence times those of the nodes above it
  bool has_branches = false;  // whether a node may have siblings
};

struct DraftNode {
  int32_t token_id = 0;
  std::optional<int64_t> parent;  // index of an earlier node; none: a child of the root
  double confidence = 0.0;        // that it is accepted if its parent is
};

// What may follow the text of `own`, its last one, and the tokens `ahead` of it, which the tree does not hold, by its own
// contexts and those of `store` (may be null). The nodes come in the order of their survival, so the first n are the best
// draft of n nodes. O(window * max_depth).
std::vector<DraftNode> propose_draft(const SuffixTree& own, const SuffixTree* store, std::span<const int32_t> ahead,
                                     const DraftLimits& limits);

}  // namespace paceline
