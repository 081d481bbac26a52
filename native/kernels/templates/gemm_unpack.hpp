// Reads packed weights (native/quant/layouts.hpp) into registers: integers of a group, scales of a super-block.
//
// The row loops in gemm_tile.hpp know a layout only through these two.
#pragma once

#include "paceline/packed_matrix.hpp"
#include "quant/layouts.hpp"
#include "vector.hpp"

namespace paceline::PACELINE_ISA {

constexpr int kRegisterBytes = 64;
constexpr int kGroupRegisters = 8;  // 32 inputs

struct GroupWeights {
  U8x64 registers[kGroupRegisters];
};

template <int kFirst>
inline void unpack_nibbles(const uint8_t* plane, GroupWeights& weights) {
  if constexpr (kFirst < 4) {
    const U8x64 packed = load_bytes(plane + kFirst * kRegisterBytes);
    weights.registers[kFirst] = extract_bits<0, 0x0f>(packed);
    weights.registers[kFirst + 4] = extract_bits<4, 0x0f>(packed);
    unpack_nibbles<kFirst + 1>(plane, weights);
  }
}

// Unpacks two bits of each integer, from register kFirst on.
template <int kFirst>
inline void unpack_two_bits(const uint8_t* plane, GroupWeights& weights) {
  if constexpr (kFirst < kGroupRegisters) {
    const U8x64 packed = load_bytes(plane + kFirst / 4 * kRegisterBytes);
    weights.registers[kFirst] = extract_bits<2 * (kFirst % 4), 3>(packed);
    unpack_two_bits<kFirst + 1>(plane, weights);
  }
}

// Adds kWidth bits at bit kTarget of each integer, from register kFirst on; a byte of the plane holds 8 / kWidth registers.
template <int kWidth, int kTarget, int kFirst>
inline void insert_upper_bits(const uint8_t* plane, GroupWeights& weights) {
  if constexpr (kFirst < kGroupRegisters) {
    constexpr int kPerByte = 8 / kWidth;
    constexpr int kPosition = kWidth * (kFirst % kPerByte);
    constexpr int kMask = ((1 << kWidth) - 1) << kTarget;
    const U8x64 packed = load_bytes(plane + kFirst / kPerByte * kRegisterBytes);
    weights.registers[kFirst] = insert_bits<kPosition - kTarget, kMask>(weights.registers[kFirst], packed);
    insert_upper_bits<kWidth, kTarget, kFirst + 1>(plane, weights);
  }
}

// Returns the stored integers of 16 columns by 32 inputs; the zero point is still added to them.
template <GgmlType type>
inline GroupWeights unpack_group(const uint8_t* group) {
  constexpr int kStoredBits = Layout<type>::kStoredBits;
  GroupWeights weights;
  if constexpr (kStoredBits == 8) {
    for (int i = 0; i < kGroupRegisters; ++i) weights.registers[i] = load_bytes(group + i * kRegisterBytes);
  } else if constexpr (kStoredBits <= 3) {
    unpack_two_bits<0>(group, weights);
    if constexpr (kStoredBits == 3) insert_upper_bits<1, 2, 0>(group + 2 * kRegisterBytes, weights);
  } else {
    unpack_nibbles<0>(group, weights);
    if constexpr (kStoredBits == 5) insert_upper_bits<1, 4, 0>(group + 4 * kRegisterBytes, weights);
    if constexpr (kStoredBits == 6) insert_upper_bits<2, 4, 0>(group + 4 * kRegisterBytes, weights);
  }
  if constexpr (type == GgmlType::kIQ4_NL) {
    for (U8x64& integers : weights.registers) integers = lookup(kNonLinearWeights, integers);
  }
  return weights;
}

// Returns only register `index` of a group; the compiler leaves out the work for the others.
template <GgmlType type, int kFirst = 0>
inline U8x64 unpack_register(const uint8_t* group, int index) {
  if constexpr (kFirst + 1 < kGroupRegisters) {
    if (index != kFirst) return unpack_register<type, kFirst + 1>(group, index);
  }
  return unpack_group<type>(group).registers[kFirst];
}

template <GgmlType type>
struct LayoutTraits {
  using Numbers = Layout<type>;
  static constexpr bool kHasFloatMinima = Numbers::kScales == ScaleKind::kHalfWithMinimum;
  static constexpr bool kHasIntegerMinima =
      Numbers::kScales == ScaleKind::kByteWithMinimum || Numbers::kScales == ScaleKind::kNibbleWithMinimum;
  // These types have blocks of 256, and so no ragged super-blocks.
  static constexpr bool kHasIntegerScales = kHasIntegerMinima || Numbers::kScales == ScaleKind::kSignedByte;
  static constexpr bool kIsSigned = !kHasIntegerMinima;  // whether integer scales are signed; minima never are
  static constexpr int kRunsPerGroup = 32 / Numbers::kScaleInputs;
};

// Reads the scales of one super-block with `groups` groups of 32. If scales are integers, integer_scale(i) has the
// signed or unsigned bytes of the i-th run of kScaleInputs inputs; otherwise scale(i) is the scale of the i-th group.
template <ScaleKind kind>
struct ScaleReader;

template <>
struct ScaleReader<ScaleKind::kHalf> {
  const uint16_t* scales;
  ScaleReader(const uint8_t* source, int) : scales(reinterpret_cast<const uint16_t*>(source)) {}
  F32x16 scale(int group) const { return load_half(scales + kColumnBlock * group); }
};

template <>
struct ScaleReader<ScaleKind::kHalfWithMinimum> {
  const uint16_t* scales;
  int groups;
  ScaleReader(const uint8_t* source, int num_groups)
      : scales(reinterpret_cast<const uint16_t*>(source)), groups(num_groups) {}
  F32x16 scale(int group) const { return load_half(scales + kColumnBlock * group); }
  F32x16 minimum(int group) const { return load_half(scales + kColumnBlock * (groups + group)); }
};

template <>
struct ScaleReader<ScaleKind::kSignedByte> {
  const uint8_t* scales;
  ScaleReader(const uint8_t* source, int) : scales(source) {}
  U8x16 integer_scale(int run) const { return load_sixteen_bytes(scales + kColumnBlock * run); }
  F32x16 block_scale() const { return load_half(reinterpret_cast<const uint16_t*>(scales + 16 * kColumnBlock)); }
};

template <>
struct ScaleReader<ScaleKind::kByteWithMinimum> {
  const uint8_t* scales;
  ScaleReader(const uint8_t* source, int) : scales(source) {}
  U8x16 integer_scale(int run) const { return load_sixteen_bytes(scales + kColumnBlock * run); }
  U8x16 integer_minimum(int run) const { return load_sixteen_bytes(scales + kColumnBlock * (8 + run)); }
  F32x16 block_scale() const { return load_half(reinterpret_cast<const uint16_t*>(scales + 16 * kColumnBlock)); }
  F32x16 minimum_scale() const { return load_half(reinterpret_cast<const uint16_t*>(scales + 18 * kColumnBlock)); }
};

template <>
struct ScaleReader<ScaleKind::kNibbleWithMinimum> {
  const uint8_t* scales;
  ScaleReader(const uint8_t* source, int) : scales(source) {}
  U8x16 integer_scale(int run) const { return extract_bits<0, 15>(load_sixteen_bytes(scales + kColumnBlock * run)); }
  U8x16 integer_minimum(int run) const { return extract_bits<4, 15>(load_sixteen_bytes(scales + kColumnBlock * run)); }
  F32x16 block_scale() const { return load_half(reinterpret_cast<const uint16_t*>(scales + 16 * kColumnBlock)); }
  F32x16 minimum_scale() const { return load_half(reinterpret_cast<const uint16_t*>(scales + 18 * kColumnBlock)); }
};

}  // namespace paceline::PACELINE_ISA
