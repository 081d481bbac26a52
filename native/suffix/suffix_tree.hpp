// A suffix tree of bounded depth over texts of token ids, read backwards: the path from the root to a node is a context,
// its last token first, and the node says how often that context occurred and what followed it.
//
// Because contexts are read backwards, the whole context of a token is known when the token arrives. So a token adds at
// most one leaf and splits at most one edge (at most two nodes), and needs no suffix links; with depth D it costs O(D).
// Texts are evicted whole, oldest first, and leave no trace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "suffix/child_table.hpp"

namespace paceline {

// The tokens that followed the latest occurrences of a context.
class RecentTokens {
 public:
  static constexpr size_t kCapacity = 8;

  void push(int32_t token_id) { ring_[num_pushed_++ % kCapacity] = token_id; }
  // The `age`-th latest, 0 being the last one.
  int32_t at(size_t age) const { return ring_[(num_pushed_ - 1 - age) % kCapacity]; }

 private:
  std::array<int32_t, kCapacity> ring_{};
  uint32_t num_pushed_ = 0;
};

// A context that the text so far ends with: its length, how often it occurred, and the latest tokens that followed it.
struct Context {
  int64_t length = 0;
  int64_t count = 0;
  std::array<int32_t, RecentTokens::kCapacity> followers{};  // latest first, [num_followers]
  size_t num_followers = 0;                                  // min(count, capacity)
};

class SuffixTree {
 public:
  // Contexts have 1 to `max_depth` tokens. Throws std::invalid_argument for a depth below 1 or above 2^15.
  explicit SuffixTree(int64_t max_depth);

  // Begins a text; the tokens of `context` can be part of contexts, but are not followers themselves.
  void begin_text(std::span<const int32_t> context);
  // Appends to the last text, beginning an empty one where there is none. O(max_depth) a token.
  void append(std::span<const int32_t> token_ids);
  // Forgets the oldest text, which may be the one being appended to; does nothing without texts.
  void evict_text();

  // Replaces `contexts` by contexts of the tree that `text` ends with, shortest first: those at which the tree
  // branches, and the longest one. O(max_depth).
  void find_contexts(std::span<const int32_t> text, std::vector<Context>& contexts) const;
  // Returns the last tokens, at most `count`, of the text being appended to.
  std::span<const int32_t> last_tokens(int64_t count) const;

  int64_t max_depth() const { return max_depth_; }
  size_t num_texts() const { return texts_.size(); }
  // Returns the number of tokens of all texts, including contexts given to begin_text.
  size_t num_tokens() const { return tokens_.size() - first_; }
  size_t num_nodes() const { return nodes_.size() - free_nodes_.size() - 1; }
  size_t size_bytes() const;

 private:
  using NodeId = uint32_t;
  static constexpr NodeId kRoot = 0;
  static constexpr uint32_t kNoRecent = UINT32_MAX;

  struct Node {
    uint64_t position = 0;  // of the token after the latest occurrence; the edge's tokens lie before it
    uint32_t count = 0;     // occurrences
    uint32_t num_children = 0;
    uint32_t recent = kNoRecent;  // index into recents_; a single occurrence needs none
    uint32_t depth = 0;           // length of the context
  };

  struct Text {
    uint64_t begin = 0;           // contexts do not reach further back
    uint64_t first_follower = 0;  // the position after the context given to begin_text
  };

  // Positions count all tokens ever added; `base_` is the position of the first token that is kept.
  int32_t token_at(uint64_t position) const { return tokens_[position - base_ + first_]; }
  uint64_t end() const { return base_ + num_tokens(); }
  int64_t context_length(const Text& text, uint64_t position) const;

  void insert(uint64_t position, int64_t length);
  void remove(uint64_t position, int64_t length);
  // Makes a node at `depth` on the edge from `parent` to `child`, and returns it.
  NodeId split(NodeId parent, NodeId child, int64_t depth);
  void add_leaf(NodeId parent, uint64_t position, int64_t length);
  // Replaces `node` by its only child, below which all of its occurrences lie.
  void merge_with_child(NodeId parent, NodeId node);
  bool can_merge(NodeId node) const;
  NodeId next_on_path(NodeId node) const;
  void count_occurrence(NodeId node, uint64_t position);
  void forget_occurrence(NodeId node);

  NodeId new_node(Node node);
  void free_node(NodeId node);
  uint32_t new_recent(RecentTokens recent);
  void free_recent(Node& node);
  void drop_tokens(uint64_t until);
  Context context_of(const Node& node, int64_t length) const;

  int64_t max_depth_;
  std::vector<int32_t> tokens_;
  size_t first_ = 0;  // index of the first kept token
  uint64_t base_ = 0;
  std::deque<Text> texts_;
  std::vector<Node> nodes_;
  std::vector<NodeId> free_nodes_;
  std::vector<RecentTokens> recents_;
  std::vector<uint32_t> free_recents_;
  ChildTable children_;
};

}  // namespace paceline
