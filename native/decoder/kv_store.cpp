#include "decoder/kv_store.hpp"

#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

namespace paceline {

KvStore::KvStore(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim)
    : num_layers_(num_layers),
      num_kv_heads_(num_kv_heads),
      head_dim_(head_dim),
      layer_halves_(2 * num_kv_heads * head_dim * kBlockSlots),
      block_halves_(num_layers * layer_halves_) {}

void KvStore::allocate(int64_t num_blocks) {
  if (num_blocks < 0) throw std::invalid_argument("a KV store cannot have a negative number of blocks");
  if (num_blocks > std::numeric_limits<int64_t>::max() / block_size_bytes()) throw std::bad_alloc();
  num_blocks_ = 0;
  data_ = AlignedBuffer();
  data_ = AlignedBuffer(static_cast<size_t>(num_blocks * block_size_bytes()));
  num_blocks_ = num_blocks;
}

KvView KvStore::layer(int64_t index) {
  return {data_.as<uint16_t>() + index * layer_halves_, block_halves_, num_kv_heads_, head_dim_};
}

void KvStore::move_slot(int64_t source, int64_t destination) {
  const int64_t from = source % kBlockSlots;
  const int64_t to = destination % kBlockSlots;
  for (int64_t index = 0; index < num_layers_; ++index) {
    const KvView view = layer(index);
    for (int64_t head = 0; head < num_kv_heads_; ++head) {
      const uint16_t* source_keys = view.keys(source / kBlockSlots, head) + from;
      uint16_t* destination_keys = view.keys(destination / kBlockSlots, head) + to;
      for (int64_t d = 0; d < head_dim_; ++d) destination_keys[d * kBlockSlots] = source_keys[d * kBlockSlots];
      std::memmove(view.values(destination / kBlockSlots, head) + to * head_dim_,
                   view.values(source / kBlockSlots, head) + from * head_dim_, head_dim_ * sizeof(uint16_t));
    }
  }
}

}  // namespace paceline
