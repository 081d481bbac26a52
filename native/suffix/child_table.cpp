#include "suffix/child_table.hpp"

#include <utility>

namespace paceline {

namespace {

constexpr size_t kFirstCapacity = 16;

}  // namespace

ChildTable::ChildTable() : edges_(kFirstCapacity) {}

size_t ChildTable::home(uint32_t parent, int32_t token_id) const {
  uint64_t key = (static_cast<uint64_t>(parent) << 32) | static_cast<uint32_t>(token_id);
  key = (key ^ (key >> 31)) * 0x9E3779B97F4A7C15U;
  return static_cast<size_t>(key ^ (key >> 32)) & (edges_.size() - 1);
}

size_t ChildTable::place(uint32_t parent, int32_t token_id) const {
  const size_t mask = edges_.size() - 1;
  size_t at = home(parent, token_id);
  while (edges_[at].child != kNone && (edges_[at].parent != parent || edges_[at].token_id != token_id)) {
    at = (at + 1) & mask;
  }
  return at;
}

uint32_t ChildTable::find(uint32_t parent, int32_t token_id) const { return edges_[place(parent, token_id)].child; }

void ChildTable::set(uint32_t parent, int32_t token_id, uint32_t child) {
  size_t at = place(parent, token_id);
  if (edges_[at].child == kNone && 4 * (num_edges_ + 1) > 3 * edges_.size()) {
    grow();
    at = place(parent, token_id);
  }
  num_edges_ += edges_[at].child == kNone ? 1 : 0;
  edges_[at] = {parent, token_id, child};
}

void ChildTable::erase(uint32_t parent, int32_t token_id) {
  const size_t mask = edges_.size() - 1;
  size_t hole = place(parent, token_id);
  for (size_t next = (hole + 1) & mask; edges_[next].child != kNone; next = (next + 1) & mask) {
    // An edge may fill the hole unless the edge's home lies after the hole.
    const size_t distance = (next - home(edges_[next].parent, edges_[next].token_id)) & mask;
    if (distance >= ((next - hole) & mask)) {
      edges_[hole] = edges_[next];
      hole = next;
    }
  }
  edges_[hole] = {};
  num_edges_ -= 1;
}

void ChildTable::grow() {
  std::vector<Edge> old(2 * edges_.size());
  std::swap(old, edges_);
  for (const Edge& edge : old) {
    if (edge.child != kNone) edges_[place(edge.parent, edge.token_id)] = edge;
  }
}

}  // namespace paceline
