#include "suffix/suffix_tree.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace paceline {

SuffixTree::SuffixTree(int64_t max_depth) : max_depth_(max_depth) {
  if (max_depth < 1 || max_depth > (1 << 15)) throw std::invalid_argument("max_depth must be from 1 to 2^15");
  nodes_.emplace_back();
}

void SuffixTree::begin_text(std::span<const int32_t> context) {
  const uint64_t begin = end();
  tokens_.insert(tokens_.end(), context.begin(), context.end());
  texts_.push_back({begin, end()});
}

void SuffixTree::append(std::span<const int32_t> token_ids) {
  if (texts_.empty()) begin_text({});
  for (const int32_t token_id : token_ids) {
    const uint64_t position = end();
    tokens_.push_back(token_id);
    insert(position, context_length(texts_.back(), position));
  }
}

void SuffixTree::evict_text() {
  if (texts_.empty()) return;
  const Text text = texts_.front();
  const uint64_t text_end = texts_.size() > 1 ? texts_[1].begin : end();
  for (uint64_t position = text.first_follower; position < text_end; ++position) {
    remove(position, context_length(text, position));
  }
  texts_.pop_front();
  drop_tokens(text_end);
}

void SuffixTree::find_contexts(std::span<const int32_t> text, std::vector<Context>& contexts) const {
  contexts.clear();
  const int64_t longest = std::min(max_depth_, static_cast<int64_t>(text.size()));
  const auto behind = [&](int64_t depth) { return text[text.size() - 1 - depth]; };
  NodeId node = kRoot;
  for (int64_t depth = 0; depth < longest;) {
    node = children_.find(node, behind(depth));
    if (node == ChildTable::kNone) return;
    const Node& child = nodes_[node];
    const int64_t end_of_edge = std::min<int64_t>(child.depth, longest);
    ++depth;
    while (depth < end_of_edge && behind(depth) == token_at(child.position - 1 - depth)) ++depth;
    contexts.push_back(context_of(child, depth));
    if (depth < child.depth) return;
  }
}

std::span<const int32_t> SuffixTree::last_tokens(int64_t count) const {
  if (texts_.empty()) return {};
  const int64_t length = std::min(count, static_cast<int64_t>(end() - texts_.back().begin));
  return {tokens_.data() + tokens_.size() - length, static_cast<size_t>(length)};
}

size_t SuffixTree::size_bytes() const {
  return tokens_.capacity() * sizeof(int32_t) + texts_.size() * sizeof(Text) + nodes_.capacity() * sizeof(Node) +
         free_nodes_.capacity() * sizeof(NodeId) + recents_.capacity() * sizeof(RecentTokens) +
         free_recents_.capacity() * sizeof(uint32_t) + children_.size_bytes();
}

int64_t SuffixTree::context_length(const Text& text, uint64_t position) const {
  return std::min(max_depth_, static_cast<int64_t>(position - text.begin));
}

// Walks down along the `length` tokens before `position`, counts the occurrence at each node, and adds the nodes that
// are missing at the end of the walk.
void SuffixTree::insert(uint64_t position, int64_t length) {
  NodeId node = kRoot;
  for (int64_t depth = 0; depth < length;) {
    const NodeId child = children_.find(node, token_at(position - 1 - depth));
    if (child == ChildTable::kNone) return add_leaf(node, position, length);
    const uint64_t other = nodes_[child].position;
    const int64_t child_depth = nodes_[child].depth;
    const int64_t end_of_edge = std::min(child_depth, length);
    int64_t common = depth + 1;
    while (common < end_of_edge && token_at(position - 1 - common) == token_at(other - 1 - common)) ++common;
    const bool is_whole_edge = common == child_depth;
    node = is_whole_edge ? child : split(node, child, common);
    count_occurrence(node, position);
    if (!is_whole_edge && common < length) return add_leaf(node, position, length);
    depth = common;
  }
}

// Reverses `insert`. `position` must be the oldest one in the tree, so each node on its path loses its oldest
// occurrence.
void SuffixTree::remove(uint64_t position, int64_t length) {
  NodeId above = kRoot;
  NodeId parent = kRoot;
  NodeId node = kRoot;
  for (int64_t depth = 0; depth < length; depth = nodes_[node].depth) {
    above = parent;
    parent = node;
    node = children_.find(node, token_at(position - 1 - depth));
    forget_occurrence(node);
  }
  if (node == kRoot) return;
  if (nodes_[node].count == 0) {
    children_.erase(parent, token_at(position - 1 - nodes_[parent].depth));
    nodes_[parent].num_children -= 1;
    free_node(node);
    if (can_merge(parent)) merge_with_child(above, parent);
  } else if (can_merge(node)) {
    merge_with_child(parent, node);
  }
}

SuffixTree::NodeId SuffixTree::split(NodeId parent, NodeId child, int64_t depth) {
  Node node = nodes_[child];
  if (node.recent != kNoRecent) node.recent = new_recent(recents_[node.recent]);
  node.depth = static_cast<uint32_t>(depth);
  node.num_children = 1;
  const NodeId middle = new_node(node);
  children_.set(parent, token_at(node.position - 1 - nodes_[parent].depth), middle);
  children_.set(middle, token_at(node.position - 1 - depth), child);
  return middle;
}

void SuffixTree::add_leaf(NodeId parent, uint64_t position, int64_t length) {
  Node leaf;
  leaf.position = position;
  leaf.count = 1;
  leaf.depth = static_cast<uint32_t>(length);
  children_.set(parent, token_at(position - 1 - nodes_[parent].depth), new_node(leaf));
  nodes_[parent].num_children += 1;
}

bool SuffixTree::can_merge(NodeId node) const {
  if (node == kRoot || nodes_[node].num_children != 1) return false;
  // If all occurrences lie below the child, the latest one does too. Otherwise there may be no token before it.
  if (nodes_[node].position - base_ <= nodes_[node].depth) return false;
  const NodeId child = next_on_path(node);
  return child != ChildTable::kNone && nodes_[child].count == nodes_[node].count;
}

// Returns the child below which the latest occurrence lies, or kNone if there is none.
SuffixTree::NodeId SuffixTree::next_on_path(NodeId node) const {
  return children_.find(node, token_at(nodes_[node].position - 1 - nodes_[node].depth));
}

void SuffixTree::merge_with_child(NodeId parent, NodeId node) {
  const uint64_t position = nodes_[node].position;
  const NodeId child = next_on_path(node);
  children_.erase(node, token_at(position - 1 - nodes_[node].depth));
  children_.set(parent, token_at(position - 1 - nodes_[parent].depth), child);
  free_node(node);
}

void SuffixTree::count_occurrence(NodeId id, uint64_t position) {
  Node& node = nodes_[id];
  if (node.recent == kNoRecent) {
    node.recent = new_recent({});
    recents_[node.recent].push(token_at(node.position));
  }
  recents_[node.recent].push(token_at(position));
  node.position = position;
  node.count += 1;
}

void SuffixTree::forget_occurrence(NodeId id) {
  Node& node = nodes_[id];
  node.count -= 1;
  if (node.count == 1) free_recent(node);
}

SuffixTree::NodeId SuffixTree::new_node(Node node) {
  if (free_nodes_.empty()) {
    nodes_.push_back(node);
    return static_cast<NodeId>(nodes_.size() - 1);
  }
  const NodeId id = free_nodes_.back();
  free_nodes_.pop_back();
  nodes_[id] = node;
  return id;
}

void SuffixTree::free_node(NodeId id) {
  free_recent(nodes_[id]);
  free_nodes_.push_back(id);
}

uint32_t SuffixTree::new_recent(RecentTokens recent) {
  if (free_recents_.empty()) {
    recents_.push_back(recent);
    return static_cast<uint32_t>(recents_.size() - 1);
  }
  const uint32_t index = free_recents_.back();
  free_recents_.pop_back();
  recents_[index] = recent;
  return index;
}

void SuffixTree::free_recent(Node& node) {
  if (node.recent == kNoRecent) return;
  free_recents_.push_back(node.recent);
  node.recent = kNoRecent;
}

// Moves the kept tokens to the front once at least as many dropped ones lie before them. So a token is moved at most
// once on average.
void SuffixTree::drop_tokens(uint64_t until) {
  first_ += until - base_;
  base_ = until;
  if (2 * first_ < tokens_.size()) return;
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(first_));
  first_ = 0;
}

Context SuffixTree::context_of(const Node& node, int64_t length) const {
  Context context{length, node.count, {}, std::min<size_t>(node.count, RecentTokens::kCapacity)};
  if (node.recent == kNoRecent) {
    context.followers[0] = token_at(node.position);
    return context;
  }
  for (size_t age = 0; age < context.num_followers; ++age) context.followers[age] = recents_[node.recent].at(age);
  return context;
}

}  // namespace paceline
