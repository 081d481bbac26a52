// Expands the blocks of quantized GGUF tensors to one integer per byte; repacking and dequantizing start from these.
//
// Block formats: ggml's quantization types as the GGUF specification names them. The integers have the layout's zero
// point added (native/quant/layouts.hpp); those of IQ4_NL are indices into its table.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "paceline/ggml_type.hpp"

static_assert(std::endian::native == std::endian::little, "GGUF blocks and packed words are little endian");

namespace paceline {

struct ExpandedBlock {
  uint8_t integers[256];  // in the order of the inputs; 32 or 256 of them
  uint16_t scale;         // half: d
  uint16_t minimum;       // half: m or dmin, where the type has one
  uint8_t scales[16];     // sub-scales of the K types, as int8 for Q3_K and Q6_K
  uint8_t minima[16];     // sub-minima of the K types
};

// kValues weights in kBytes bytes; expand(source, block) fills the fields that the type has.
template <GgmlType type>
struct FileBlock;

inline uint16_t load_u16(const uint8_t* source) {
  uint16_t value;
  std::memcpy(&value, source, sizeof(value));
  return value;
}
inline uint32_t load_u32(const uint8_t* source) {
  uint32_t value;
  std::memcpy(&value, source, sizeof(value));
  return value;
}

// Low nibbles are the first half of the values, high nibbles the second.
template <int kCount>
inline void expand_nibbles(const uint8_t* source, uint8_t* integers) {
  for (int i = 0; i < kCount / 2; ++i) {
    integers[i] = source[i] & 15U;
    integers[i + kCount / 2] = source[i] >> 4;
  }
}

// Adds the fifth bits of 32 values; bit i of a 32-bit word belongs to value i. Works on eight values at a time: bit i
// of a byte is kept in byte i of a 64-bit word, and adding 127 carries it to that byte's top.
inline void expand_fifth_bits(const uint8_t* source, uint8_t* integers) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t kept = source[i] * 0x0101010101010101ULL & 0x8040201008040201ULL;
    const uint64_t fifth = ((kept + 0x7f7f7f7f7f7f7f7fULL) & 0x8080808080808080ULL) >> 3;
    uint64_t values;
    std::memcpy(&values, integers + 8 * i, sizeof(values));
    values |= fifth;
    std::memcpy(integers + 8 * i, &values, sizeof(values));
  }
}

template <>
struct FileBlock<GgmlType::kQ8_0> {
  static constexpr int kValues = 32;
  static constexpr int kBytes = 34;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    block.scale = load_u16(source);
    for (int i = 0; i < 32; ++i) block.integers[i] = source[2 + i] ^ 0x80U;
  }
};

template <>
struct FileBlock<GgmlType::kQ4_0> {
  static constexpr int kValues = 32;
  static constexpr int kBytes = 18;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    block.scale = load_u16(source);
    expand_nibbles<32>(source + 2, block.integers);
  }
};

template <>
struct FileBlock<GgmlType::kIQ4_NL> : FileBlock<GgmlType::kQ4_0> {};

template <>
struct FileBlock<GgmlType::kQ4_1> {
  static constexpr int kValues = 32;
  static constexpr int kBytes = 20;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    block.scale = load_u16(source);
    block.minimum = load_u16(source + 2);
    expand_nibbles<32>(source + 4, block.integers);
  }
};

template <>
struct FileBlock<GgmlType::kQ5_0> {
  static constexpr int kValues = 32;
  static constexpr int kBytes = 22;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    block.scale = load_u16(source);
    expand_nibbles<32>(source + 6, block.integers);
    expand_fifth_bits(source + 2, block.integers);
  }
};

template <>
struct FileBlock<GgmlType::kQ5_1> {
  static constexpr int kValues = 32;
  static constexpr int kBytes = 24;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    block.scale = load_u16(source);
    block.minimum = load_u16(source + 2);
    expand_nibbles<32>(source + 8, block.integers);
    expand_fifth_bits(source + 4, block.integers);
  }
};

// scales[16] (low nibble scale, high nibble minimum), 64 bytes of 2 bits, d, dmin.
template <>
struct FileBlock<GgmlType::kQ2_K> {
  static constexpr int kValues = 256;
  static constexpr int kBytes = 84;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    for (int i = 0; i < 16; ++i) {
      block.scales[i] = source[i] & 15U;
      block.minima[i] = source[i] >> 4;
    }
    for (int group = 0; group < 8; ++group) {
      const uint8_t* bits = source + 16 + 32 * (group / 4);
      for (int i = 0; i < 32; ++i) block.integers[32 * group + i] = bits[i] >> (2 * (group % 4)) & 3U;
    }
    block.scale = load_u16(source + 80);
    block.minimum = load_u16(source + 82);
  }
};

// 32 bytes of upper bits, 64 bytes of 2 bits, 12 bytes of 6-bit scales (8 of low nibbles, 4 of upper bits), d.
template <>
struct FileBlock<GgmlType::kQ3_K> {
  static constexpr int kValues = 256;
  static constexpr int kBytes = 110;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    for (int group = 0; group < 8; ++group) {
      const uint8_t* bits = source + 32 + 32 * (group / 4);
      for (int i = 0; i < 32; ++i) {
        const unsigned upper = source[i] >> group & 1U;
        block.integers[32 * group + i] = static_cast<uint8_t>((bits[i] >> (2 * (group % 4)) & 3U) | upper << 2);
      }
    }
    const uint8_t* scales = source + 96;
    for (int i = 0; i < 16; ++i) {
      const unsigned low = scales[i % 8] >> (4 * (i / 8)) & 15U;
      const unsigned high = scales[8 + i % 4] >> (2 * (i / 4)) & 3U;
      block.scales[i] = static_cast<uint8_t>((low | high << 4) - 32U);
    }
    block.scale = load_u16(source + 108);
  }
};

// Eight 6-bit scales and minima in 12 bytes: four of each in the low bits of bytes 0..3 and 4..7; the low nibbles of the
// other four in bytes 8..11, their upper bits in the top of bytes 0..7.
inline void expand_six_bit_scales(const uint8_t* source, ExpandedBlock& block) {
  for (int i = 0; i < 4; ++i) {
    block.scales[i] = source[i] & 63U;
    block.minima[i] = source[i + 4] & 63U;
    block.scales[i + 4] = static_cast<uint8_t>((source[i + 8] & 15U) | (source[i] >> 6) << 4);
    block.minima[i + 4] = static_cast<uint8_t>(source[i + 8] >> 4 | (source[i + 4] >> 6) << 4);
  }
}

// d, dmin, scales and minima, 128 bytes of nibbles: each 32 bytes are two groups of 32.
template <>
struct FileBlock<GgmlType::kQ4_K> {
  static constexpr int kValues = 256;
  static constexpr int kBytes = 144;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    block.scale = load_u16(source);
    block.minimum = load_u16(source + 2);
    expand_six_bit_scales(source + 4, block);
    for (int pair = 0; pair < 4; ++pair) expand_nibbles<64>(source + 16 + 32 * pair, block.integers + 64 * pair);
  }
};

// Like Q4_K, with 32 bytes of fifth bits (bit g for group g) before the nibbles.
template <>
struct FileBlock<GgmlType::kQ5_K> {
  static constexpr int kValues = 256;
  static constexpr int kBytes = 176;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    block.scale = load_u16(source);
    block.minimum = load_u16(source + 2);
    expand_six_bit_scales(source + 4, block);
    for (int pair = 0; pair < 4; ++pair) expand_nibbles<64>(source + 48 + 32 * pair, block.integers + 64 * pair);
    for (int group = 0; group < 8; ++group) {
      for (int i = 0; i < 32; ++i) {
        block.integers[32 * group + i] |= static_cast<uint8_t>((source[16 + i] >> group & 1U) << 4);
      }
    }
  }
};

// 128 bytes of low nibbles, 64 of upper bits, int8 scales[16], d; each half of the block is four groups of 32.
template <>
struct FileBlock<GgmlType::kQ6_K> {
  static constexpr int kValues = 256;
  static constexpr int kBytes = 210;
  static void expand(const uint8_t* source, ExpandedBlock& block) {
    for (int half = 0; half < 2; ++half) {
      uint8_t* integers = block.integers + 128 * half;
      expand_nibbles<128>(source + 64 * half, integers);
      const uint8_t* upper = source + 128 + 32 * half;
      for (int group = 0; group < 4; ++group) {
        for (int i = 0; i < 32; ++i) {
          integers[32 * group + i] |= static_cast<uint8_t>((upper[i] >> (2 * group) & 3U) << 4);
        }
      }
    }
    std::memcpy(block.scales, source + 192, 16);
    block.scale = load_u16(source + 208);
  }
};

}  // namespace paceline
