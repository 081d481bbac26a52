// KV memory in blocks of 16 slots, stored as half precision; one block holds all layers, so memory grows with use.
//
// Keys of a block lie transposed, [head_dim][16 slots]: scores of 16 positions are then lanes. Values lie [16 slots][head_dim].
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "paceline/aligned_buffer.hpp"

namespace paceline {

constexpr int64_t kBlockSlots = 16;

// One layer's keys and values.
struct KvView {
  uint16_t* base = nullptr;  // the layer's part of block 0
  int64_t block_stride = 0;  // halves from one block to the next
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;

  int64_t head_size() const { return head_dim * kBlockSlots; }
  uint16_t* keys(int64_t block, int64_t head) const { return base + block * block_stride + head * head_size(); }
  uint16_t* values(int64_t block, int64_t head) const { return keys(block, num_kv_heads + head); }
};

class KvStore {
 public:
  KvStore(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim);

  // Replaces the memory by `num_blocks` empty blocks; throws std::bad_alloc.
  void allocate(int64_t num_blocks);
  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_slots() const { return num_blocks_ * kBlockSlots; }
  int64_t block_size_bytes() const { return block_halves_ * static_cast<int64_t>(sizeof(uint16_t)); }
  uint16_t* block(int64_t index) { return data_.as<uint16_t>() + index * block_halves_; }
  KvView layer(int64_t index);

  void move_slot(int64_t source, int64_t destination);

 private:
  int64_t num_layers_;
  int64_t num_kv_heads_;
  int64_t head_dim_;
  int64_t layer_halves_;
  int64_t block_halves_;
  int64_t num_blocks_ = 0;
  AlignedBuffer data_;
};

}  // namespace paceline
