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
  double stop_below = 0.0;    // least survival of a node: its confidence times the confidences of the nodes above it
  bool has_branches = false;  // whether a node may have siblings
};

struct DraftNode {
  int32_t token_id = 0;
  std::optional<int64_t> parent;  // index of an earlier node; none: a child of the root
  double confidence = 0.0;        // estimate that it is accepted if its parent is
};

// Returns a draft that continues the last text of `own`, followed by the tokens `ahead`, which the tree does not hold.
// The draft is guessed from the contexts of `own` and of `store` (may be null). The nodes come in order of falling
// survival, so the first n nodes are the best draft of n nodes. O(window * max_depth).
std::vector<DraftNode> propose_draft(const SuffixTree& own, const SuffixTree* store, std::span<const int32_t> ahead,
                                     const DraftLimits& limits);

}  // namespace paceline
