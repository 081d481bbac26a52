// The scalar definition of the sixteen lanes: plain loops that say what the other two definitions must compute.
#pragma once

#include <bit>
#include <cmath>

#include "paceline/half.hpp"

namespace paceline::PACELINE_ISA {

struct F32x16 {
  float lane[16];
};
struct I32x16 {
  int32_t lane[16];
};
// Sixteen groups of four unsigned bytes: the weights of 16 columns at 4 consecutive inputs.
struct U8x64 {
  uint8_t byte[64];
};

template <class Function>
inline F32x16 each_lane(Function function) {
  F32x16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = function(i);
  return out;
}

inline F32x16 broadcast(float x) {
  return each_lane([=](int) { return x; });
}
inline F32x16 zero() { return broadcast(0.0F); }
inline F32x16 load(const float* source) {
  return each_lane([=](int i) { return source[i]; });
}
// Loads the first `count` (0..16) values; the other lanes are zero.
inline F32x16 load_partial(const float* source, int count) {
  return each_lane([=](int i) { return i < count ? source[i] : 0.0F; });
}
inline void store(float* target, F32x16 x) { std::memcpy(target, x.lane, sizeof(x.lane)); }
inline void store_partial(float* target, F32x16 x, int count) {
  for (int i = 0; i < count; ++i) target[i] = x.lane[i];
}
inline F32x16 load_half(const uint16_t* source) {
  return each_lane([=](int i) { return half_to_float(source[i]); });
}
inline F32x16 load_bfloat16(const uint16_t* source) {
  return each_lane([=](int i) { return std::bit_cast<float>(static_cast<uint32_t>(source[i]) << 16); });
}
inline void store_half(uint16_t* target, F32x16 x) {
  for (int i = 0; i < 16; ++i) target[i] = float_to_half(x.lane[i]);
}

inline F32x16 add(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline F32x16 subtract(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.lane[i] - b.lane[i]; });
}
inline F32x16 multiply(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline F32x16 divide(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.lane[i] / b.lane[i]; });
}
inline F32x16 maximum(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F32x16 minimum(F32x16 a, F32x16 b) {
  return each_lane([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline F32x16 absolute(F32x16 a) {
  return each_lane([&](int i) { return std::fabs(a.lane[i]); });
}
// a * b + c, rounded once.
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return each_lane([&](int i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
}
// c - a * b, rounded once.
inline F32x16 negated_fma(F32x16 a, F32x16 b, F32x16 c) {
  return each_lane([&](int i) { return std::fma(-a.lane[i], b.lane[i], c.lane[i]); });
}
// a < b ? if_less : otherwise, lane by lane.
inline F32x16 select_less(F32x16 a, F32x16 b, F32x16 if_less, F32x16 otherwise) {
  return each_lane([&](int i) { return a.lane[i] < b.lane[i] ? if_less.lane[i] : otherwise.lane[i]; });
}
// Sets the lanes from `count` on to `fill`.
inline F32x16 keep_first(F32x16 x, int count, float fill) {
  return each_lane([&](int i) { return i < count ? x.lane[i] : fill; });
}
// ((lane i + lane i+8) + (lane i+4 + lane i+12)) and so on: halves are folded until one value is left.
inline float reduce_add(F32x16 x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.lane[i] += x.lane[i + width];
  }
  return x.lane[0];
}
inline float reduce_maximum(F32x16 x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.lane[i] = x.lane[i] > x.lane[i + width] ? x.lane[i] : x.lane[i + width];
  }
  return x.lane[0];
}

inline I32x16 zero_int() { return I32x16{}; }
inline I32x16 broadcast_int(int32_t x) {
  I32x16 out;
  for (int32_t& lane : out.lane) lane = x;
  return out;
}
// Rounds half to even.
inline I32x16 round_to_int(F32x16 x) {
  I32x16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = static_cast<int32_t>(std::lrint(x.lane[i]));
  return out;
}
inline F32x16 to_float(I32x16 x) {
  return each_lane([&](int i) { return static_cast<float>(x.lane[i]); });
}
inline void store_as_int8(int8_t* target, I32x16 x) {
  for (int i = 0; i < 16; ++i) target[i] = static_cast<int8_t>(x.lane[i]);
}
inline int32_t reduce_add_int(I32x16 x) {
  int32_t sum = 0;
  for (const int32_t lane : x.lane) sum += lane;
  return sum;
}
// Returns the largest sum of magnitudes of sixteen values, over the sixteen runs of sixteen values each.
inline int largest_sixteen(const int8_t* values) {
  int largest = 0;
  for (int i = 0; i < 256; i += 16) {
    int sum = 0;
    for (int j = i; j < i + 16; ++j) sum += std::abs(values[j]);
    if (sum > largest) largest = sum;
  }
  return largest;
}
// Returns bits for 256 values: bit q says whether any of the values 4q to 4q + 3 is not zero.
inline uint64_t nonzero_quads(const int8_t* values) {
  uint64_t quads = 0;
  for (int i = 0; i < 256; ++i) quads |= static_cast<uint64_t>(values[i] != 0) << i / 4;
  return quads;
}
// x where the magnitude of `by` is above kLimit, otherwise 0.
template <int kLimit>
inline I32x16 keep_beyond(I32x16 x, I32x16 by) {
  for (int i = 0; i < 16; ++i) x.lane[i] = std::abs(by.lane[i]) > kLimit ? x.lane[i] : 0;
  return x;
}
inline I32x16 add_int(I32x16 a, I32x16 b) {
  for (int i = 0; i < 16; ++i) a.lane[i] += b.lane[i];
  return a;
}
inline I32x16 subtract_int(I32x16 a, I32x16 b) {
  for (int i = 0; i < 16; ++i) a.lane[i] -= b.lane[i];
  return a;
}
// x * 2^kShift
template <int kShift>
inline I32x16 shift_left(I32x16 x) {
  for (int32_t& lane : x.lane) lane *= 1 << kShift;
  return x;
}
// x / 2^kShift, rounded down.
template <int kShift>
inline I32x16 shift_right(I32x16 x) {
  for (int32_t& lane : x.lane) lane >>= kShift;
  return x;
}
// x * 2^n for results in the normal range.
inline F32x16 scale_by_power_of_two(F32x16 x, I32x16 n) {
  return each_lane([&](int i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x.lane[i]) + (static_cast<uint32_t>(n.lane[i]) << 23);
    return std::bit_cast<float>(bits);
  });
}

// Bytes and exact integer dot products, for GEMM -----------------------------------------------------------------------------
// Whether add_dots takes 8-bit weights as weight - 128 (true) or as they are (false).
constexpr bool kCentersEightBits = false;

inline U8x64 load_bytes(const uint8_t* source) {
  U8x64 out;
  std::memcpy(out.byte, source, sizeof(out.byte));
  return out;
}
// (x >> kShift) & kMask in each byte, to the left where kShift is negative. kMask must leave out the bits that the shift
// brings in from the neighbour.
template <int kShift, int kMask>
inline U8x64 extract_bits(U8x64 x) {
  for (uint8_t& byte : x.byte) {
    const unsigned shifted = kShift >= 0 ? unsigned{byte} >> (kShift & 7) : unsigned{byte} << (-kShift & 7);
    byte = static_cast<uint8_t>(shifted & kMask);
  }
  return x;
}
// base | extract_bits(x)
template <int kShift, int kMask>
inline U8x64 insert_bits(U8x64 base, U8x64 x) {
  const U8x64 bits = extract_bits<kShift, kMask>(x);
  for (int i = 0; i < 64; ++i) base.byte[i] |= bits.byte[i];
  return base;
}
// table[index] for each byte; indices are below 16.
inline U8x64 lookup(const uint8_t (&table)[16], U8x64 index) {
  for (uint8_t& byte : index.byte) byte = table[byte];
  return index;
}
// Unfinished dot products of 16 columns, in the form that an instruction set adds fastest.
using Dots = I32x16;
// How many registers of weights can be added to Dots; the sums of more might not fit.
template <int kBits>
constexpr int kDotRegisters = 8;
inline Dots begin_dots(int32_t start) { return broadcast_int(start); }
// Returns the start value of dot products of 6-bit weights (zero point 32) with kCount activations of this sum.
template <int kCount>
inline int32_t centred_start(const int8_t*, int32_t sum) {
  return -32 * sum;
}
// Adds a register of weights (below 2^kBits) times four consecutive activations (-127..127), exactly.
template <int kBits>
inline Dots add_dots(Dots dots, U8x64 weights, const int8_t* activations) {
  for (int i = 0; i < 64; ++i) dots.lane[i / 4] += weights.byte[i] * activations[i % 4];
  return dots;
}
// Multiplies the first register of weights.
template <int kBits>
inline Dots first_dots(U8x64 weights, const int8_t* activations) {
  return add_dots<kBits>(begin_dots(0), weights, activations);
}
// sum + dots
inline I32x16 finish_dots(I32x16 sum, Dots dots) { return add_int(sum, dots); }
// Sixteen bytes, which are signed or unsigned integers.
struct U8x16 {
  uint8_t byte[16];
};
inline U8x16 load_sixteen_bytes(const uint8_t* source) {
  U8x16 out;
  std::memcpy(out.byte, source, sizeof(out.byte));
  return out;
}
template <int kShift, int kMask>
inline U8x16 extract_bits(U8x16 x) {
  for (uint8_t& byte : x.byte) byte = static_cast<uint8_t>(byte >> kShift & kMask);
  return x;
}
template <bool kIsSigned>
inline I32x16 widen_bytes(U8x16 x) {
  I32x16 out;
  for (int i = 0; i < 16; ++i) out.lane[i] = kIsSigned ? static_cast<int8_t>(x.byte[i]) : x.byte[i];
  return out;
}
// Integer scales of 16 columns, in the form that finish_dots takes.
using Factors = I32x16;
template <bool kIsSigned>
inline Factors make_factors(U8x16 scales) {
  return widen_bytes<kIsSigned>(scales);
}
// sum + dots * factors
inline I32x16 finish_dots(I32x16 sum, Dots dots, Factors factors) {
  for (int i = 0; i < 16; ++i) sum.lane[i] += dots.lane[i] * factors.lane[i];
  return sum;
}
// Whether dots that fit 16 bits can be finished in fewer instructions. If so, the next two functions do that.
constexpr bool kHasWordDots = false;
template <bool kIsSigned>
inline Factors make_word_factors(U8x16 scales) {
  return make_factors<kIsSigned>(scales);
}
inline I32x16 finish_word_dots(I32x16 sum, Dots dots, Factors factors) { return finish_dots(sum, dots, factors); }
// Returns two 16-bit integers in each lane, in the form that pair_dot takes.
template <bool kIsSigned>
inline I32x16 make_pairs(U8x16 first, U8x16 second) {
  I32x16 out = widen_bytes<kIsSigned>(first);
  const I32x16 upper = widen_bytes<kIsSigned>(second);
  for (int i = 0; i < 16; ++i) {
    const uint32_t low = static_cast<uint16_t>(out.lane[i]);
    out.lane[i] = static_cast<int32_t>(low | static_cast<uint32_t>(upper.lane[i]) << 16);
  }
  return out;
}
// sum + first * values[0] + second * values[1], exactly.
inline I32x16 pair_dot(I32x16 sum, I32x16 pairs, const int16_t* values) {
  for (int i = 0; i < 16; ++i) {
    sum.lane[i] += static_cast<int16_t>(pairs.lane[i]) * values[0] + (pairs.lane[i] >> 16) * values[1];
  }
  return sum;
}

}  // namespace paceline::PACELINE_ISA
