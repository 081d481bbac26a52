// Repacked weight layouts and the arithmetic that every GEMM kernel follows, bit for bit.
//
// LAYOUT. A packed matrix is [column block of 16 outputs][super-block of 256 inputs], each super-block contiguous. If
// the inputs are not a multiple of 256 (types with blocks of 32), the last super-block has fewer groups of 32. A
// super-block with G groups is
//
//   integers  [G][planes], kIntegerBytes a group; see below
//   scales    by kScales, columns fastest:
//     kHalf                half scale[G][16]
//     kHalfWithMinimum     half scale[G][16], half minimum[G][16]
//     kByteWithMinimum     uint8 scale[8][16], uint8 minimum[8][16], half d[16], half dmin[16]
//     kNibbleWithMinimum   uint8 (scale | minimum << 4)[16][16], half d[16], half dmin[16]
//     kSignedByte          int8 scale[16][16], half d[16], padding up to 8 * kGroupBytes
//
// A register of weights is [16 columns][4 consecutive inputs] of unsigned bytes, the form that vpdpbusd multiplies. A
// group of 32 inputs unpacks to registers 0..7. The planes of a group hold, for byte (column c, input j of 4) at offset
// 4 * c + j:
//   4 bits   4 registers; register r: low nibble = register r of the group, high nibble = register r + 4
//   1 bit    1 register; bit i = register i of the group
//   2 bits   2 registers; register h: bits 2i and 2i + 1 = register 4h + i of the group
//   8 bits   8 registers, as they are
// Integers of 5 and 6 bits have a plane of 4 bits and a plane of the upper bits; those of 3 bits have a plane of 2 bits
// and a plane of 1. The stored integer is weight integer + kZeroPoint (IQ4_NL: an index into its table). Columns beyond
// the matrix are zero bytes: weight 0.
//
// ACTIVATIONS are rounded to 15 bits, or to 8 bits with room for outliers, with one scale for 256 inputs (the last run
// may be shorter):
//   15 bits   limit = 16256, usual = max |x|
//   8 bits    limit = 127, usual = min(max |x|, ratio * mean |x|); ratio is 12 for rows that come from a norm (inputs
//             of QKV, gate and up, and the output layer) and 32 for all others. For the mean, sixteen lanes sum every
//             sixteenth |x|; then the lanes are folded in halves.
//   inverse = limit / usual; scale = usual / limit; integer = round half to even of (x * inverse)
// If `inverse` overflows (usual is 0 or nearly 0), scale and integers are 0. If an x is infinite or NaN, scale is NaN,
// and so are all results of the row.
// Byte multipliers take integers as two planes of int8, integer = 128 * high + low. An integer up to a magnitude of 127
// is low alone; for a larger one, low is in -64..63. Nearly all of a high plane is zero, and zeros need not be
// multiplied.
//
// ARITHMETIC of a result (row, column); `fma` rounds once; dot products, sums and everything called integer are exact in int32:
//   total = 0
//   for each super-block b in order:
//     scales of 256 (kByteWithMinimum, kNibbleWithMinimum, kSignedByte), g over groups of kScaleInputs inputs:
//       high = sum over g of scale_g * (sum of weight integer * high activation), low likewise
//       partial = fma(float(high), 128, float(low)) * float(d), rounded after each of the two
//       with minima: M = sum over g of minimum_g * (sum of the group's activation integers)
//                    partial = fma(float(M), -float(dmin), partial)
//     scales of 32 (kHalf, kHalfWithMinimum), g over groups of 32 inputs in order:
//       partial = 0, then: partial = fma(float(sum of weight integer * activation integer), float(scale_g), partial)
//       with minima:       partial = fma(float(sum of the group's activation integers), float(minimum_g), partial)
//     total = fma(partial, activation_scale_b, total)
// Lanes are columns, and integer sums are exact in any order. So results do not depend on the other rows of a pass, on
// the range of columns or on the instruction set.
//
// FLOAT WEIGHTS (F32, F16, BF16): [column block][input][16 columns]; total = fma(weight, activation, total) over inputs in
// order.
#pragma once

#include <cstdint>

#include "paceline/ggml_type.hpp"

namespace paceline {

enum class ScaleKind { kHalf, kHalfWithMinimum, kByteWithMinimum, kNibbleWithMinimum, kSignedByte };

// Kernels compiled for different instruction sets include this file and must share no code. So it has only constants,
// and one template that is instantiated with a closure type of the including file.
template <int stored_bits, int weight_bits, int zero_point, int scale_inputs, ScaleKind scales, int scale_bytes>
struct LayoutConstants {
  static constexpr int kStoredBits = stored_bits;
  static constexpr int kWeightBits = weight_bits;  // of an unpacked integer
  static constexpr int kZeroPoint = zero_point;
  static constexpr int kScaleInputs = scale_inputs;
  static constexpr ScaleKind kScales = scales;
  static constexpr int kIntegerBytes = 64 * stored_bits;           // of 16 columns by 32 inputs
  static constexpr int kGroupBytes = kIntegerBytes + scale_bytes;  // with their share of the scales
};

template <GgmlType type>
struct Layout;

// clang-format off
template <> struct Layout<GgmlType::kQ8_0>   : LayoutConstants<8, 8, 128, 32, ScaleKind::kHalf, 32> {};
template <> struct Layout<GgmlType::kQ4_0>   : LayoutConstants<4, 4,   8, 32, ScaleKind::kHalf, 32> {};
template <> struct Layout<GgmlType::kQ4_1>   : LayoutConstants<4, 4,   0, 32, ScaleKind::kHalfWithMinimum, 64> {};
template <> struct Layout<GgmlType::kQ5_0>   : LayoutConstants<5, 5,  16, 32, ScaleKind::kHalf, 32> {};
template <> struct Layout<GgmlType::kQ5_1>   : LayoutConstants<5, 5,   0, 32, ScaleKind::kHalfWithMinimum, 64> {};
template <> struct Layout<GgmlType::kIQ4_NL> : LayoutConstants<4, 8, 128, 32, ScaleKind::kHalf, 32> {};
template <> struct Layout<GgmlType::kQ2_K>   : LayoutConstants<2, 2,   0, 16, ScaleKind::kNibbleWithMinimum, 40> {};
template <> struct Layout<GgmlType::kQ3_K>   : LayoutConstants<3, 3,   4, 16, ScaleKind::kSignedByte, 36> {};
template <> struct Layout<GgmlType::kQ4_K>   : LayoutConstants<4, 4,   0, 32, ScaleKind::kByteWithMinimum, 40> {};
template <> struct Layout<GgmlType::kQ5_K>   : LayoutConstants<5, 5,   0, 32, ScaleKind::kByteWithMinimum, 40> {};
template <> struct Layout<GgmlType::kQ6_K>   : LayoutConstants<6, 6,  32, 16, ScaleKind::kSignedByte, 40> {};
// clang-format on

// The weights that IQ4_NL's four bits stand for, plus 128.
constexpr uint8_t kNonLinearWeights[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};

// Calls function.operator()<type>() if the type is a quantized one; returns whether it is.
template <class Function>
bool visit_quantized(GgmlType type, Function function) {
  switch (type) {
    case GgmlType::kQ8_0: function.template operator()<GgmlType::kQ8_0>(); return true;
    case GgmlType::kQ4_0: function.template operator()<GgmlType::kQ4_0>(); return true;
    case GgmlType::kQ4_1: function.template operator()<GgmlType::kQ4_1>(); return true;
    case GgmlType::kQ5_0: function.template operator()<GgmlType::kQ5_0>(); return true;
    case GgmlType::kQ5_1: function.template operator()<GgmlType::kQ5_1>(); return true;
    case GgmlType::kIQ4_NL: function.template operator()<GgmlType::kIQ4_NL>(); return true;
    case GgmlType::kQ2_K: function.template operator()<GgmlType::kQ2_K>(); return true;
    case GgmlType::kQ3_K: function.template operator()<GgmlType::kQ3_K>(); return true;
    case GgmlType::kQ4_K: function.template operator()<GgmlType::kQ4_K>(); return true;
    case GgmlType::kQ5_K: function.template operator()<GgmlType::kQ5_K>(); return true;
    case GgmlType::kQ6_K: function.template operator()<GgmlType::kQ6_K>(); return true;
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBF16: break;
  }
  return false;
}

}  // namespace paceline
