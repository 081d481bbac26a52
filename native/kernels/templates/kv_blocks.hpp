// Stores K and V in KV memory, rounded to its type, and converts them back to floats; see native/decoder/kv_store.hpp.
#pragma once

#include <limits>

#include "decoder/attention_task.hpp"
#include "vector.hpp"

namespace paceline::PACELINE_ISA {

static_assert(kBlockSlots == kLanes);

enum class Part { kKeys, kValues };

inline uint8_t* part_of(const KvView& kv, Part part, int64_t block, int64_t head) {
  return part == Part::kKeys ? kv.keys(block, head) : kv.values(block, head);
}

inline void store_half_head(const KvView& kv, Part part, int64_t offset, const float* source, uint8_t* target) {
  auto* halves = reinterpret_cast<uint16_t*>(target);
  uint16_t rounded[kLanes];
  for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
    store_half(rounded, load(source + d));
    for (int64_t i = 0; part == Part::kKeys && i < kLanes; ++i) halves[(d + i) * kBlockSlots + offset] = rounded[i];
    if (part == Part::kValues) std::memcpy(halves + offset * kv.head_dim + d, rounded, sizeof(rounded));
  }
}

// Rounds `count` elements to int8 and returns their scale. If one of them is not finite, writes zeros and returns NaN.
inline float round_q8(const float* source, int64_t count, int8_t* rounded) {
  if (!is_finite(source, count)) {
    std::memset(rounded, 0, static_cast<size_t>(count));
    return std::numeric_limits<float>::quiet_NaN();
  }
  F32x16 magnitudes = absolute(load(source));
  for (int64_t d = kLanes; d < count; d += kLanes) magnitudes = maximum(absolute(load(source + d)), magnitudes);
  const float largest = reduce_maximum(magnitudes);
  const float inverse = 127.0F / largest;
  const bool is_zero = inverse > 3.4e38F;  // the division by zero, or nearly zero, gives infinity
  const F32x16 factor = broadcast(is_zero ? 0.0F : inverse);
  for (int64_t d = 0; d < count; d += kLanes) {
    store_as_int8(rounded + d, round_to_int(multiply(load(source + d), factor)));
  }
  return is_zero ? 0.0F : largest / 127.0F;
}

inline void store_q8_head(const KvView& kv, Part part, int64_t offset, const float* source, uint8_t* target) {
  static_assert(kKeyScaleElements == kLanes);
  if (part == Part::kValues) {
    kv.scales(target)[offset] = round_q8(source, kv.head_dim, reinterpret_cast<int8_t*>(target) + offset * kv.head_dim);
    return;
  }
  int8_t rounded[kKeyScaleElements];
  for (int64_t run = 0; run < kv.num_key_scales(); ++run) {
    const int64_t d = run * kKeyScaleElements;
    kv.scales(target)[run * kBlockSlots + offset] = round_q8(source + d, kKeyScaleElements, rounded);
    for (int64_t i = 0; i < kKeyScaleElements; ++i) {
      target[(d + i) * kBlockSlots + offset] = static_cast<uint8_t>(rounded[i]);
    }
  }
}

// `key`, `value`: [num_kv_heads][head_dim].
inline void store_kv(const KvView& kv, int64_t slot, const float* key, const float* value) {
  const auto store_head = kv.type == KvCacheType::kF16 ? store_half_head : store_q8_head;
  const int64_t block = slot / kBlockSlots;
  const int64_t offset = slot % kBlockSlots;
  for (int64_t head = 0; head < kv.num_kv_heads; ++head) {
    store_head(kv, Part::kKeys, offset, key + head * kv.head_dim, kv.keys(block, head));
    store_head(kv, Part::kValues, offset, value + head * kv.head_dim, kv.values(block, head));
  }
}

// Converts one block's keys or values to floats, and prefetches `next`, a block of the same size (it may be `source`).
// Keys are written in rows of kStep floats, values in rows of head_dim.
template <Part kPart>
inline void widen_half(const KvView& kv, const uint8_t* source, const uint8_t* next, float* target) {
  constexpr int64_t kRowBytes = kLanes * sizeof(uint16_t);
  const int64_t stride = kPart == Part::kKeys ? kStep : kLanes;
  for (int64_t row = 0; row < kv.head_dim; row += 2) {
    __builtin_prefetch(next + row * kRowBytes, 0, 2);
    const auto* halves = reinterpret_cast<const uint16_t*>(source + row * kRowBytes);
    store(target + row * stride, load_half(halves));
    store(target + (row + 1) * stride, load_half(halves + kLanes));
  }
}

inline F32x16 load_q8(const uint8_t* source, F32x16 scale) {
  return multiply(to_float(widen_bytes<true>(load_sixteen_bytes(source))), scale);
}

inline void widen_q8_keys(const KvView& kv, const uint8_t* source, const uint8_t* next, float* target) {
  for (int64_t run = 0; run < kv.num_key_scales(); ++run) {
    const F32x16 scales = load(kv.scales(source) + run * kBlockSlots);
    __builtin_prefetch(kv.scales(next) + run * kBlockSlots, 0, 2);
    for (int64_t d = run * kKeyScaleElements; d < (run + 1) * kKeyScaleElements; ++d) {
      if (d % 4 == 0) __builtin_prefetch(next + d * kLanes, 0, 2);
      store(target + d * kStep, load_q8(source + d * kLanes, scales));
    }
  }
}

inline void widen_q8_values(const KvView& kv, const uint8_t* source, const uint8_t* next, float* target) {
  for (int64_t at = 0; at < kBlockSlots; ++at) {
    const F32x16 scale = broadcast(kv.scales(source)[at]);
    for (int64_t d = 0; d < kv.head_dim; d += kLanes) {
      const int64_t i = at * kv.head_dim + d;
      if (i % 64 == 0) __builtin_prefetch(next + i, 0, 2);
      store(target + i, load_q8(source + i, scale));
    }
  }
}

// `target` is where the floats of the step's first block begin; `block` is the block's index in the step.
inline void widen_block(const KvView& kv, Part part, const uint8_t* source, const uint8_t* next, int64_t block, float* target) {
  target += block * kBlockSlots * (part == Part::kKeys ? 1 : kv.head_dim);
  const bool is_half = kv.type == KvCacheType::kF16;
  if (part == Part::kKeys) {
    is_half ? widen_half<Part::kKeys>(kv, source, next, target) : widen_q8_keys(kv, source, next, target);
  } else {
    is_half ? widen_half<Part::kValues>(kv, source, next, target) : widen_q8_values(kv, source, next, target);
  }
}

}  // namespace paceline::PACELINE_ISA
