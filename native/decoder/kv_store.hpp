// KV memory in blocks of 16 slots. A block holds all layers, so memory grows with the number of blocks in use.
//
// Keys of a block are transposed, [head_dim][16 slots], so that scores of 16 positions are lanes. Values are stored
// [16 slots][head_dim]. Both are float16, or int8 followed by float scales: x is about scale * integer, where scale =
// max|x| / 127 and the integer is x * (127 / max|x|), rounded half to even. A value has one scale for its head vector:
// [16 slots]. A key has one scale for each 16 elements, [head_dim / 16][16 slots], because the keys of some models have
// a few large elements. If an x is infinite or NaN, its scale is NaN.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "paceline/aligned_buffer.hpp"

namespace paceline {

constexpr int64_t kBlockSlots = 16;
constexpr int64_t kKeyScaleElements = 16;
constexpr int64_t kScaleBytes = 4;

enum class KvCacheType { kF16, kQ8 };

// One layer's keys and values.
struct KvView {
  uint8_t* base = nullptr;   // the layer's part of block 0
  int64_t block_stride = 0;  // bytes from one block to the next
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  KvCacheType type = KvCacheType::kF16;

  int64_t element_bytes() const { return type == KvCacheType::kF16 ? 2 : 1; }
  // Returns where the scales begin in the keys, or the values, of a head.
  int64_t integer_bytes() const { return head_dim * kBlockSlots; }
  int64_t num_key_scales() const { return type == KvCacheType::kF16 ? 0 : head_dim / kKeyScaleElements; }
  int64_t num_value_scales() const { return type == KvCacheType::kF16 ? 0 : 1; }
  // Keys of a head in one block, and its values.
  int64_t key_bytes() const { return kBlockSlots * (head_dim * element_bytes() + num_key_scales() * kScaleBytes); }
  int64_t value_bytes() const { return kBlockSlots * (head_dim * element_bytes() + num_value_scales() * kScaleBytes); }
  int64_t layer_bytes() const { return num_kv_heads * (key_bytes() + value_bytes()); }
  uint8_t* keys(int64_t block, int64_t head) const { return base + block * block_stride + head * key_bytes(); }
  uint8_t* values(int64_t block, int64_t head) const {
    return base + block * block_stride + num_kv_heads * key_bytes() + head * value_bytes();
  }
  float* scales(uint8_t* part) const { return reinterpret_cast<float*>(part + integer_bytes()); }
  const float* scales(const uint8_t* part) const { return reinterpret_cast<const float*>(part + integer_bytes()); }

  // Copies a slot's key or value between parts of blocks.
  void copy_key(const uint8_t* source, int64_t from, uint8_t* target, int64_t to) const;
  void copy_value(const uint8_t* source, int64_t from, uint8_t* target, int64_t to) const;
};

class KvStore {
 public:
  KvStore(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim, KvCacheType type);

  // Replaces the memory by `num_blocks` empty blocks; throws std::bad_alloc.
  void allocate(int64_t num_blocks);
  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_slots() const { return num_blocks_ * kBlockSlots; }
  int64_t block_size_bytes() const { return layout_.block_stride; }
  const uint8_t* block(int64_t index) const { return data_.as<uint8_t>() + index * block_size_bytes(); }
  uint8_t* block(int64_t index) { return data_.as<uint8_t>() + index * block_size_bytes(); }
  KvView layer(int64_t index);

  void move_slot(int64_t source, int64_t destination);

 private:
  int64_t num_layers_;
  KvView layout_;  // of layer 0, without its memory
  int64_t num_blocks_ = 0;
  AlignedBuffer data_;
};

}  // namespace paceline
