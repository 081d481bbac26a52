#include "decoder/kv_store.hpp"

#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

namespace paceline {
namespace {

template <class Integer>
void copy_column(const uint8_t* source, int64_t from, uint8_t* target, int64_t to, int64_t head_dim) {
  const Integer* column = reinterpret_cast<const Integer*>(source) + from;
  Integer* copy = reinterpret_cast<Integer*>(target) + to;
  for (int64_t d = 0; d < head_dim; ++d) copy[d * kBlockSlots] = column[d * kBlockSlots];
}

}  // namespace

void KvView::copy_key(const uint8_t* source, int64_t from, uint8_t* target, int64_t to) const {
  if (type == KvCacheType::kF16) {
    copy_column<uint16_t>(source, from, target, to, head_dim);
  } else {
    copy_column<uint8_t>(source, from, target, to, head_dim);
    for (int64_t i = 0; i < num_key_scales(); ++i) {
      scales(target)[i * kBlockSlots + to] = scales(source)[i * kBlockSlots + from];
    }
  }
}

void KvView::copy_value(const uint8_t* source, int64_t from, uint8_t* target, int64_t to) const {
  const int64_t size = head_dim * element_bytes();
  std::memmove(target + to * size, source + from * size, size);
  if (type == KvCacheType::kQ8) scales(target)[to] = scales(source)[from];
}

KvStore::KvStore(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim, KvCacheType type) : num_layers_(num_layers) {
  layout_.num_kv_heads = num_kv_heads;
  layout_.head_dim = head_dim;
  layout_.type = type;
  layout_.block_stride = num_layers * layout_.layer_bytes();
}

void KvStore::allocate(int64_t num_blocks) {
  if (num_blocks < 0) throw std::invalid_argument("a KV store cannot have a negative number of blocks");
  if (num_blocks > std::numeric_limits<int64_t>::max() / block_size_bytes()) throw std::bad_alloc();
  num_blocks_ = 0;
  data_ = AlignedBuffer();
  data_ = AlignedBuffer(static_cast<size_t>(num_blocks * block_size_bytes()));
  num_blocks_ = num_blocks;
}

KvView KvStore::layer(int64_t index) {
  KvView view = layout_;
  view.base = data_.as<uint8_t>() + index * layout_.layer_bytes();
  return view;
}

void KvStore::move_slot(int64_t source, int64_t destination) {
  const int64_t source_block = source / kBlockSlots;
  const int64_t block = destination / kBlockSlots;
  const int64_t from = source % kBlockSlots;
  const int64_t to = destination % kBlockSlots;
  for (int64_t index = 0; index < num_layers_; ++index) {
    const KvView view = layer(index);
    for (int64_t head = 0; head < view.num_kv_heads; ++head) {
      view.copy_key(view.keys(source_block, head), from, view.keys(block, head), to);
      view.copy_value(view.values(source_block, head), from, view.values(block, head), to);
    }
  }
}

}  // namespace paceline
