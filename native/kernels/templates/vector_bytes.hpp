// Sixteen bytes, in the form that AVX2 and AVX-512 share. vector_scalar.hpp says what each operation means.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace paceline::PACELINE_ISA {

struct U8x16 {
  __m128i value;
};
inline U8x16 load_sixteen_bytes(const uint8_t* source) {
  return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(source))};
}
template <int kShift, int kMask>
inline U8x16 extract_bits(U8x16 x) {
  return {_mm_and_si128(_mm_srli_epi16(x.value, kShift), _mm_set1_epi8(kMask))};
}

}  // namespace paceline::PACELINE_ISA
