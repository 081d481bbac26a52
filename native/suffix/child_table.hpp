// The edges of a suffix tree in one open-addressing hash table: (parent, first token of the edge) to child.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace paceline {

// The table uses linear probing and is at most three quarters full. Erasing shifts edges back, so there are no
// tombstones.
class ChildTable {
 public:
  static constexpr uint32_t kNone = 0;  // the root's id, since the root is never a child

  ChildTable();

  // Returns the child, or kNone.
  uint32_t find(uint32_t parent, int32_t token_id) const;
  // Adds or replaces an edge; `child` is not kNone.
  void set(uint32_t parent, int32_t token_id, uint32_t child);
  // Removes an edge that is there.
  void erase(uint32_t parent, int32_t token_id);

  size_t size_bytes() const { return edges_.capacity() * sizeof(Edge); }

 private:
  struct Edge {
    uint32_t parent = 0;
    int32_t token_id = 0;
    uint32_t child = kNone;  // kNone: the place is empty
  };

  size_t home(uint32_t parent, int32_t token_id) const;
  // Returns where the edge is, or the empty place where it would be.
  size_t place(uint32_t parent, int32_t token_id) const;
  void grow();

  std::vector<Edge> edges_;  // the size is a power of two
  size_t num_edges_ = 0;
};

}  // namespace paceline
